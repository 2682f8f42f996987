//! One key that many want: how fast it is handed over, and how evenly.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Barrier, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use tokio::task::JoinSet;

use super::subjects::{self, Subject};
use crate::measure::{float, median, micros, now, or_few, percentile};

/// How often the sides take turns.
const ROUNDS: usize = or_few(5, 1);
/// Of one round.
const LENGTH: Duration = or_few(Duration::from_millis(200), Duration::from_millis(10));

/// What the contenders for one key note while they hold it.
///
/// It counts from the moment when each has had the key once, or after a while if one does not get it.
pub(crate) struct Race {
    begun: OnceLock<Duration>,
    arrived: AtomicUsize,
    counts_from: OnceLock<Duration>,
    /// Who held the key last, and when it began to release it.
    last: AtomicUsize,
    released: AtomicU64,
    turns: Vec<Turns>,
    /// From the release by one contender to the grant to another.
    handovers: Mutex<Vec<Duration>>,
}

#[derive(Default)]
struct Turns {
    arrived: AtomicBool,
    counted: AtomicUsize,
}

impl Race {
    fn new(contenders: usize) -> Self {
        Self {
            begun: OnceLock::new(),
            arrived: AtomicUsize::new(0),
            counts_from: OnceLock::new(),
            last: AtomicUsize::new(usize::MAX),
            released: AtomicU64::new(0),
            turns: (0..contenders).map(|_| Turns::default()).collect(),
            handovers: Mutex::default(),
        }
    }

    pub(crate) fn begin(&self) {
        self.begun.get_or_init(now);
    }

    pub(crate) fn goes_on(&self) -> bool {
        self.counts_from.get().is_none_or(|from| now() < *from + LENGTH)
    }

    /// Notes that this contender holds the key, and that it is about to release it.
    pub(crate) fn turn(&self, contender: usize) {
        let granted = now();
        let last = self.last.swap(contender, Relaxed);
        let turns = &self.turns[contender];
        if !turns.arrived.swap(true, Relaxed) {
            self.arrived.fetch_add(1, Relaxed);
        }
        match self.counts_from.get() {
            Some(from) if granted < *from + LENGTH => {
                turns.counted.fetch_add(1, Relaxed);
                if last != contender {
                    let released = Duration::from_nanos(self.released.load(Relaxed));
                    let mut all = self.handovers.lock().unwrap_or_else(PoisonError::into_inner);
                    all.push(granted.saturating_sub(released));
                }
            }
            Some(_) => {}
            None => {
                let late = self.begun.get().is_some_and(|begun| granted > *begun + LENGTH);
                if late || self.arrived.load(Relaxed) == self.turns.len() {
                    self.counts_from.get_or_init(|| granted);
                }
            }
        }
        let released = u64::try_from(now().as_nanos()).unwrap_or(u64::MAX);
        self.released.store(released, Relaxed);
    }

    /// Hand-overs, p50, p99, locks per second, and the largest share as a multiple of the smallest.
    fn figures(&self) -> [f64; 5] {
        let mut handovers = self.handovers.lock().unwrap_or_else(PoisonError::into_inner);
        let count = float(handovers.len());
        let none = handovers.is_empty();
        let mut of = |percent| {
            if none { f64::NAN } else { percentile(&mut handovers, percent).as_secs_f64() }
        };
        let [p50, p99] = [of(50), of(99)];
        let counted = |turns: &Turns| float(turns.counted.load(Relaxed));
        let turns: Vec<f64> = self.turns.iter().map(counted).collect();
        let largest = turns.iter().copied().fold(0.0, f64::max);
        let smallest = turns.iter().copied().fold(f64::INFINITY, f64::min);
        [count, p50, p99, turns.iter().sum::<f64>() / LENGTH.as_secs_f64(), largest / smallest]
    }
}

/// Measures 2, 16 and 128 waiters, as threads and as tasks.
pub(crate) async fn run() {
    println!("## Hand-over of a contended key\n");
    println!(
        "One more than the waiters lock and unlock one key again and again; {} ms count, from when each has had it once. A hand-over is from the start of a release to \
         the moment when another than the releaser has the key. Where newcomers barge in, a releaser often takes the key again at once: more locks \
         per second, fewer hand-overs and uneven shares. Medians of {ROUNDS} rounds, in which the sides take turns.\n",
        LENGTH.as_millis()
    );
    println!("| waiters | | hand-overs | p50, µs | p99, µs | locks/s | largest share / smallest |");
    println!("|---|---|---|---|---|---|---|");
    let sides = subjects::all();
    for waiters in [2, 16, 128] {
        let mut figures = vec![Vec::with_capacity(ROUNDS); sides.len()];
        for round in 0..ROUNDS {
            for turn in 0..sides.len() {
                let at = (round + turn) % sides.len();
                figures[at].push(by_threads(&sides[at], waiters + 1));
            }
        }
        rows(&format!("{waiters} threads"), &sides, &figures);
    }
    for waiters in [2, 16, 128] {
        let mut figures = vec![Vec::with_capacity(ROUNDS); sides.len()];
        for round in 0..ROUNDS {
            for turn in 0..sides.len() {
                let at = (round + turn) % sides.len();
                figures[at].extend(by_tasks(&sides[at], waiters + 1).await);
            }
        }
        rows(&format!("{waiters} tasks"), &sides, &figures);
    }
    println!();
}

fn by_threads(side: &Subject, contenders: usize) -> [f64; 5] {
    let contend = &side.thread;
    let (race, ready) = (Race::new(contenders), Barrier::new(contenders));
    thread::scope(|threads| {
        for number in 0..contenders {
            let (race, ready) = (&race, &ready);
            threads.spawn(move || {
                ready.wait();
                contend(race, number);
            });
        }
    });
    race.figures()
}

async fn by_tasks(side: &Subject, contenders: usize) -> Option<[f64; 5]> {
    let contend = side.task.as_ref()?;
    let race = Arc::new(Race::new(contenders));
    let mut tasks = JoinSet::new();
    for number in 0..contenders {
        tasks.spawn(contend(race.clone(), number));
    }
    tasks.join_all().await;
    Some(race.figures())
}

fn rows(waiters: &str, sides: &[Subject], figures: &[Vec<[f64; 5]>]) {
    for (side, rounds) in sides.iter().zip(figures).filter(|(_, rounds)| !rounds.is_empty()) {
        let [count, p50, p99, rate, shares] =
            [0, 1, 2, 3, 4].map(|at| median(rounds.iter().map(|round| round[at]).collect()));
        let time = |seconds: f64| {
            if seconds.is_nan() {
                "–".to_owned()
            } else {
                micros(Duration::from_secs_f64(seconds))
            }
        };
        let [p50, p99] = [p50, p99].map(time);
        let shares =
            if shares.is_finite() { format!("{shares:.2}") } else { "one had none".into() };
        println!(
            "| {waiters} | {} | {count:.0} | {p50} | {p99} | {rate:.0} | {shares} |",
            side.name
        );
    }
}
