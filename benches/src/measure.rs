//! Timing, percentiles and the machine's description.

use std::fs;
use std::time::Duration;

use leasehold::store::{Clock, SystemClock};

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

/// One duration as a multiple of another.
pub(crate) fn ratio(one: Duration, other: Duration) -> f64 {
    one.as_secs_f64() / other.as_secs_f64()
}

/// The middle one of several numbers.
pub(crate) fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

/// A count as a number to calculate with.
pub(crate) fn float(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

/// The version of a dependency, as the lock file has it.
pub(crate) fn version(package: &str) -> &'static str {
    let lock = include_str!("../../Cargo.lock");
    let of = format!("name = \"{package}\"\nversion = \"");
    let version = lock.split_once(&of).and_then(|(_, rest)| rest.split_once('"'));
    version.map_or("unknown", |(version, _)| version)
}

/// Prints processor, cores, kernel and compiler, as far as the system shows them, and the peers' versions.
pub(crate) fn print_machine(peers: &[(&str, &str)]) {
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let cpu = cpu.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("unknown");
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    println!("- processor: {} ({cores} cores)", cpu.trim_start_matches([' ', '\t', ':']));
    println!("- kernel: {}", kernel.trim());
    for (name, version) in peers {
        println!("- {name}: {version}");
    }
    println!("- profile: {}\n", if cfg!(debug_assertions) { "debug" } else { "release" });
}
