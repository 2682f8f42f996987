//! A sweep of many stale locks, and what others notice of it.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use leasehold_local::locks::{LocalLocks, LocksConfig, Options};

use crate::measure::{float, median, micros, now, or_few, percentile};

const ROUNDS: usize = or_few(5, 1);
const STALE: u64 = or_few(1_000_000, 2_000);
/// Pairs by which the time without a sweep is measured.
const PAIRS: u64 = or_few(200_000, 2_000);

/// Measures the sweep, and lock + unlock of other keys without it and meanwhile.
pub(crate) fn run() {
    println!("## Sweep\n");
    println!(
        "A sweep of {STALE} stale locks in batches of 100, while another thread locks and unlocks 1,000 other keys of the table. Medians of \
         {ROUNDS} rounds.\n"
    );
    let mut figures = Vec::new();
    for _ in 0..ROUNDS {
        figures.push(round());
    }
    let of = |at: usize| median(figures.iter().map(|round: &[f64; 5]| round[at]).collect());
    let time = |at| micros(Duration::from_secs_f64(of(at)));
    println!("| | p50, µs | p99, µs |");
    println!("|---|---|---|");
    println!("| lock + unlock without a sweep | {} | {} |", time(1), time(2));
    println!("| lock + unlock during the sweep | {} | {} |", time(3), time(4));
    println!("\nThe sweep took {:.0} ms.\n", of(0) * 1e3);
}

/// The time of the sweep, and p50 and p99 without it and during it.
fn round() -> [f64; 5] {
    let config = LocksConfig::new().sweep_never();
    let locks = LocalLocks::<u64>::with_config(config).expect("it is in range");
    let brief = Options::new().lock_timeout(Duration::from_nanos(1));
    for key in 0..STALE {
        locks.try_acquire(key, &brief).expect("it is free").keep();
    }
    let swept = AtomicBool::new(false);
    let lasting = Options::new().never_stale();
    let pair = |turn: u64| {
        let begun = now();
        drop(locks.try_acquire(STALE + turn % 1_000, &lasting).expect("it is free"));
        now() - begun
    };
    let mut without: Vec<Duration> = (0..PAIRS).map(pair).collect();
    let (took, mut during) = thread::scope(|threads| {
        let others = threads.spawn(|| {
            (0..).take_while(|_| !swept.load(Relaxed)).map(pair).collect::<Vec<Duration>>()
        });
        let begun = now();
        let removed = locks.sweep().removed;
        let took = now() - begun;
        swept.store(true, Relaxed);
        assert_eq!(removed, STALE, "each stale lock is swept");
        (took, others.join().expect("the other thread does not panic"))
    });
    during.extend(float(during.len()).eq(&0.0).then_some(took));
    let mut of = |percent| percentile(&mut without, percent).as_secs_f64();
    let [p50, p99] = [of(50), of(99)];
    let mut of = |percent| percentile(&mut during, percent).as_secs_f64();
    [took.as_secs_f64(), p50, p99, of(50), of(99)]
}
