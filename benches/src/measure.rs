//! Timing, percentiles and the machine's description.

use std::fs;
use std::process::Command;
use std::time::Duration;

use leasehold::store::{Clock, SystemClock};

/// A debug build only shows that each benchmark runs: it does little of everything, and its figures mean nothing.
pub(crate) const IS_SMOKE: bool = cfg!(debug_assertions);

/// So many, or in a smoke run so few.
pub(crate) const fn or_few<T: Copy>(many: T, few: T) -> T {
    if IS_SMOKE { few } else { many }
}

/// Nanoseconds since a fixed point.
pub(crate) fn now() -> Duration {
    SystemClock::new().now()
}

/// The value below which `percent` of the samples lie; zero without samples.
pub(crate) fn percentile(samples: &mut [Duration], percent: usize) -> Duration {
    samples.sort_unstable();
    let last = samples.len().saturating_sub(1);
    samples.get((samples.len() * percent / 100).min(last)).copied().unwrap_or_default()
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

/// What is measured: a commit, with a `+` if files have changed since.
fn commit() -> String {
    let described = Command::new("git")
        .args(["describe", "--always", "--abbrev=12", "--exclude=*", "--dirty=+"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output();
    let printed = described.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    printed.ok().filter(|printed| !printed.is_empty()).unwrap_or_else(|| "unknown".to_owned())
}

/// Prints the commit, the processor, its cores and the kernel, as far as they can be known, and the peers' versions.
pub(crate) fn print_machine(peers: &[(&str, &str)]) {
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let cpu = cpu.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("unknown");
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    println!("- commit: {}", commit());
    println!("- processor: {} ({cores} cores)", cpu.trim_start_matches([' ', '\t', ':']));
    println!("- kernel: {}", kernel.trim());
    for (name, version) in peers {
        println!("- {name}: {version}");
    }
    println!(
        "- profile: {}\n",
        if IS_SMOKE { "debug: the figures mean nothing" } else { "release" }
    );
}
