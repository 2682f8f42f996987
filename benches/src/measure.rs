//! Timing, percentiles and the machine's description.

use std::fs;
use std::time::Duration;

use leasehold::{Clock, SystemClock};

/// Nanoseconds since a fixed point.
pub(crate) fn now() -> Duration {
    SystemClock::new().now()
}

/// The value below which `percent` of the samples lie.
pub(crate) fn percentile(samples: &mut [Duration], percent: usize) -> Duration {
    samples.sort_unstable();
    samples[(samples.len() * percent / 100).min(samples.len() - 1)]
}

/// A duration in microseconds with a sensible number of digits.
pub(crate) fn micros(duration: Duration) -> String {
    let micros = duration.as_secs_f64() * 1e6;
    if micros < 100.0 { format!("{micros:.2}") } else { format!("{micros:.0}") }
}

/// Names processor, cores, kernel and compiler, as far as the system tells.
pub(crate) fn print_machine() {
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let cpu = cpu.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("unknown");
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    println!("- processor: {} ({cores} cores)", cpu.trim_start_matches([' ', '\t', ':']));
    println!("- kernel: {}", kernel.trim());
    println!("- SQLite: {} (bundled)", leasehold_sqlite::rusqlite::version());
    println!("- profile: {}\n", if cfg!(debug_assertions) { "debug" } else { "release" });
}
