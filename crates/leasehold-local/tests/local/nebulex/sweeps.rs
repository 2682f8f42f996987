//! Sweeps, every 100 ms in batches of 5: cases 16 to 20.

use leasehold_core::ManualClock;
use leasehold_local::locks::{Options, OwnerHandle};

use super::swept_often;
use crate::common::*;

/// Moves the clock over the next sweep, and waits until it is done.
fn sweep(locks: &Locks, clock: &ManualClock) {
    let before = locks.swept().sweeps;
    advance_to_next(clock);
    while locks.swept().sweeps == before {
        std::thread::yield_now();
    }
}

/// Has sweeps made by a lock that can go stale but does not.
fn anchor(locks: &Locks) {
    let long = Options::new().lock_timeout(86_400 * SECOND);
    locks.acquire_blocking("anchor", &long).expect("it is free").keep();
}

fn take_stale(locks: &Locks, keys: usize) {
    let brief = Options::new().lock_timeout(MS);
    for number in 0..keys {
        let key: Name = format!("key{number}").leak();
        locks.acquire_blocking(key, &brief).expect("it is free").keep();
    }
}

#[test]
fn case_16_sweep_removes_dead_owner_record() {
    let (locks, clock) = swept_often();
    let owner = OwnerHandle::new();
    locks.acquire_blocking("key", &patient().owner(&owner)).unwrap().keep();
    sweep(&locks, &clock);
    assert_eq!(held(&locks), [Some("key")]);
    drop(owner);
    sweep(&locks, &clock);
    assert!(locks.is_empty());
}

#[test]
fn case_17_sweep_removes_timed_out_record() {
    let (locks, clock) = swept_often();
    take_stale(&locks, 1);
    sweep(&locks, &clock);
    assert!(locks.is_empty());
}

#[test]
fn case_18_more_stale_records_than_a_batch_are_removed() {
    let (locks, clock) = swept_often();
    take_stale(&locks, 10);
    sweep(&locks, &clock);
    assert!(locks.is_empty());
    assert_eq!(locks.swept().removed, 10);
}

#[test]
fn case_19_an_empty_table_is_swept() {
    let (locks, clock) = swept_often();
    take_stale(&locks, 1);
    sweep(&locks, &clock);
    sweep(&locks, &clock);
    assert_eq!((locks.swept().removed, locks.is_empty()), (1, true));
}

#[test]
fn case_20_an_exact_multiple_of_the_batch_is_removed() {
    let (locks, clock) = swept_often();
    anchor(&locks);
    take_stale(&locks, 100);
    sweep(&locks, &clock);
    assert_eq!(held(&locks), [Some("anchor")]);
    assert_eq!(locks.swept().removed, 100);
}
