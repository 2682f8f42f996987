//! Tasks and threads on few keys, with random cancellations: the counters are exact, and nothing remains.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold_core::{Mode, Random};
use leasehold_local::locks::{Guard, Keys, LocalLocks, LocksConfig, Options};

use crate::common::*;

const KEYS: u64 = 100;
const TASKS: u64 = 64;
const THREADS: u64 = 8;
const GRANTS: u64 = 1_000_000;

struct Stress {
    locks: LocalLocks<u64>,
    /// What each key protects: a counter that is read and, after others may have run, written.
    counters: Vec<AtomicU64>,
    /// How often a key was held exclusively.
    written: AtomicU64,
    granted: AtomicU64,
    given_up: AtomicU64,
}

impl Stress {
    fn goes_on(&self) -> bool {
        self.granted.load(Ordering::Relaxed) < GRANTS
    }

    fn count(&self, got: Option<Guard<u64>>) -> Option<Guard<u64>> {
        let counter = if got.is_some() { &self.granted } else { &self.given_up };
        counter.fetch_add(1, Ordering::Relaxed);
        got
    }

    /// What each of these keys protects, which the caller holds alone.
    fn read(&self, keys: &[u64]) -> Vec<u64> {
        keys.iter().map(|key| self.counter(*key).load(Ordering::Relaxed)).collect()
    }

    /// Adds one to what was read, which is wrong if somebody else held the key meanwhile.
    fn write(&self, keys: &[u64], read: Vec<u64>) {
        for (key, read) in keys.iter().zip(read) {
            self.counter(*key).store(read + 1, Ordering::Relaxed);
            self.written.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn counter(&self, key: u64) -> &AtomicU64 {
        &self.counters[usize::try_from(key).expect("it is small")]
    }
}

/// A number below `limit`.
fn below(random: &mut Random, limit: u64) -> u64 {
    let drawn = random.up_to(Duration::from_nanos(limit)).as_nanos();
    u64::try_from(drawn).expect("it is below the limit") - 1
}

/// What one request asks for.
enum Asked {
    Whole,
    Keys(Vec<u64>, Mode),
}

impl Asked {
    /// The keys that the lock protects alone.
    fn writes(&self) -> Vec<u64> {
        match self {
            Self::Whole => (0..KEYS).collect(),
            Self::Keys(keys, Mode::Exclusive) => {
                let mut keys = keys.clone();
                keys.sort_unstable();
                keys.dedup();
                keys
            }
            Self::Keys(..) => Vec::new(),
        }
    }
}

fn ask(random: &mut Random) -> Asked {
    match below(random, 200) {
        0 => Asked::Whole,
        1..40 => Asked::Keys(vec![below(random, KEYS)], Mode::SHARED),
        40..90 => Asked::Keys((0..4).map(|_| below(random, KEYS)).collect(), Mode::Exclusive),
        _ => Asked::Keys(vec![below(random, KEYS / 10)], Mode::Exclusive),
    }
}

fn grant_a_million(config: LocksConfig) {
    let stress = Arc::new(Stress {
        locks: LocalLocks::with_config(config).expect("it is in range"),
        counters: (0..KEYS).map(|_| AtomicU64::new(0)).collect(),
        written: AtomicU64::new(0),
        granted: AtomicU64::new(0),
        given_up: AtomicU64::new(0),
    });
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_time().build().expect("threads can be started");
    let tasks: Vec<_> = (0..TASKS)
        .map(|seed| runtime.spawn(task(stress.clone(), Random::from_seed(seed))))
        .collect();
    std::thread::scope(|threads| {
        for seed in 0..THREADS {
            let stress = &stress;
            threads.spawn(move || thread(stress, Random::from_seed(TASKS + seed)));
        }
    });
    runtime.block_on(async {
        for task in tasks {
            task.await.expect("it does not panic");
        }
    });
    let sum: u64 = stress.counters.iter().map(|counter| counter.load(Ordering::Relaxed)).sum();
    assert_eq!(sum, stress.written.load(Ordering::Relaxed));
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let (granted, given_up) = (count(&stress.granted), count(&stress.given_up));
    println!("{granted} locks granted, {given_up} requests given up, {sum} keys written");
    assert!(given_up > 10_000, "{given_up} given up");
    assert!(stress.locks.is_empty());
}

fn thread(stress: &Stress, mut random: Random) {
    while stress.goes_on() {
        let options = match below(&mut random, 4) {
            0 => Options::new().retries(1).interval_by(|_| MS / 10),
            _ => patient(),
        };
        let asked = ask(&mut random);
        let writes = asked.writes();
        let got = match asked {
            Asked::Whole => stress.locks.acquire_all_blocking(&options),
            Asked::Keys(keys, mode) => {
                stress.locks.acquire_blocking(Keys::all(keys, mode), &options)
            }
        };
        let Some(guard) = stress.count(got.ok()) else { continue };
        let read = stress.read(&writes);
        if below(&mut random, 4) == 0 {
            std::thread::yield_now();
        }
        stress.write(&writes, read);
        drop(guard);
    }
}

async fn task(stress: Arc<Stress>, mut random: Random) {
    while stress.goes_on() {
        let asked = ask(&mut random);
        let (options, writes) = (patient(), asked.writes());
        let request = async {
            match asked {
                Asked::Whole => stress.locks.acquire_all(&options).await,
                Asked::Keys(keys, mode) => {
                    stress.locks.acquire(Keys::all(keys, mode), &options).await
                }
            }
        };
        let got = match below(&mut random, 3) {
            0 => {
                // Polled a few times and then dropped.
                let mut request = Box::pin(request);
                let mut got = None;
                for _ in 0..below(&mut random, 4) {
                    let polled = std::future::poll_fn(|context| {
                        std::task::Poll::Ready(request.as_mut().poll(context))
                    });
                    if let std::task::Poll::Ready(guard) = polled.await {
                        got = guard.ok();
                        break;
                    }
                    tokio::task::yield_now().await;
                }
                got
            }
            _ => request.await.ok(),
        };
        if let Some(guard) = stress.count(got) {
            let read = stress.read(&writes);
            if below(&mut random, 4) == 0 {
                tokio::task::yield_now().await;
            }
            stress.write(&writes, read);
            drop(guard);
        }
        tokio::task::yield_now().await;
    }
}

#[test]
fn tasks_and_threads_with_random_cancellations_leave_exact_counters_and_nothing_else() {
    grant_a_million(LocksConfig::new());
}

#[test]
fn the_same_holds_where_newcomers_overtake() {
    grant_a_million(LocksConfig::new().barging(true));
}
