//! Lock + unlock of keys that nobody else wants.

use std::ops::Range;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use dashmap::DashMap;

use super::subjects::{self, Subject};
use crate::measure::{float, median, now, or_few, ratio};

/// Of each thread.
const PAIRS: u64 = or_few(1_000_000, 1_000);
/// The sides take turns slice by slice: a slice is so short that most are over before the system lets others run.
const SLICES: usize = or_few(50, 2);
/// How often all slices are measured.
const PASSES: usize = or_few(5, 1);

/// Measures one key and four keys at a time.
pub(crate) fn run() {
    println!("## Uncontended lock + unlock\n");
    println!(
        "Each thread has its share of the keys, at least as many as it takes at a time, and takes them in a scattered order. Wall time per pair of each thread; the sides take turns in \
         slices of a {SLICES}th of {PAIRS} keys. Figures are medians of {} slices, after one pass that does not count; ratios are within a slice.\n",
        PASSES * SLICES
    );
    println!(
        "While one key is locked by `dashmap`, {} of 1,000 others cannot be locked.\n",
        locked_with_another()
    );
    println!("| keys at a time | threads | keys | | ns per pair | as a multiple of the first |");
    println!("|---|---|---|---|---|---|");
    for at_once in [1, 4] {
        for threads in [1, 2] {
            for keys in [1, 1_000, 1_000_000] {
                row(at_once, threads, keys);
            }
        }
    }
    println!();
}

/// How many of 1,000 keys a map's entry keeps locked beside its own.
fn locked_with_another() -> usize {
    let map = DashMap::<u64, ()>::new();
    let _entry = map.entry(0);
    (1..=1_000).filter(|key| map.try_entry(*key).is_none()).count()
}

fn row(at_once: u64, threads: u64, keys: u64) {
    let pairs = PAIRS / at_once;
    let sets = (keys / threads / at_once).max(1);
    // An odd factor scatters the sets and leaves them different.
    let set_of = |thread: u64, turn: u64| {
        (thread * sets + (turn % sets)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    };
    let scattered = |thread| (0..pairs).map(move |turn| set_of(thread, turn));
    let singles: Vec<Vec<u64>> = (0..threads).map(|thread| scattered(thread).collect()).collect();
    // Keys of different sets differ in their upper bits. Sorted, for those who take them one after the other.
    let four = |set: u64| [0, 1, 2, 3].map(|n| (set << 2) | n);
    let fours: Vec<Vec<[u64; 4]>> =
        singles.iter().map(|sets| sets.iter().copied().map(four).collect()).collect();
    let subjects: Vec<Subject> = match at_once {
        1 => subjects::all(),
        _ => subjects::all().into_iter().filter(|side| side.fours.is_some()).collect(),
    };
    let time = |side: &Subject, pairs: Range<usize>| match &side.fours {
        Some(run) if at_once > 1 => timed(&fours, |sets| run(&sets[pairs.clone()])),
        _ => timed(&singles, |keys| (side.pairs)(&keys[pairs.clone()])),
    };
    for side in &subjects {
        time(side, 0..singles[0].len());
    }
    let pairs = singles[0].len() / SLICES;
    let mut times = vec![Vec::with_capacity(PASSES * SLICES); subjects.len()];
    for round in 0..PASSES * SLICES {
        let start = round % SLICES * pairs;
        for turn in 0..subjects.len() {
            let at = (round + turn) % subjects.len();
            times[at].push(time(&subjects[at], start..start + pairs));
        }
    }
    for (side, of_side) in subjects.iter().zip(&times) {
        let multiples = of_side.iter().zip(&times[0]).map(|(one, first)| ratio(*one, *first));
        let each = of_side.iter().map(|wall| wall.as_secs_f64() * 1e9 / float(pairs));
        println!(
            "| {at_once} | {threads} | {keys} | {} | {:.0} | {:.2} |",
            side.name,
            median(each.collect()),
            median(multiples.collect())
        );
    }
}

/// How long a thread for each part takes, from the start of the first to the end of the last.
fn timed<T: Sync>(parts: &[T], work: impl Fn(&T) + Sync) -> Duration {
    let ready = Barrier::new(parts.len());
    let run = |part| {
        ready.wait();
        let start = now();
        work(part);
        (start, now())
    };
    let times: Vec<(Duration, Duration)> = thread::scope(|threads| {
        let start = |part| {
            threads.spawn({
                let run = &run;
                move || run(part)
            })
        };
        let started: Vec<_> = parts.iter().map(start).collect();
        started.into_iter().map(|thread| thread.join().expect("a side does not panic")).collect()
    });
    let start = times.iter().map(|(start, _)| *start).min().unwrap_or_default();
    times.iter().map(|(_, end)| *end).max().unwrap_or_default() - start
}
