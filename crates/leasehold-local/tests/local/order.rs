//! Who takes keys one after another in key order never ends in a deadlock: waiters keep others only from keys up to
//! the one that they wait for.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use leasehold_local::locks::{Keys, LocalLocks};

use crate::common::*;

#[test]
fn a_waiter_keeps_nobody_from_a_key_above_the_one_it_waits_for() {
    let (locks, _clock) = manual();
    let a = locks.try_acquire("a", &once()).unwrap();
    let both = waits(&locks, ["a", "b"], patient());
    let b = locks.try_acquire("b", &once()).unwrap();
    drop(a);
    assert_eq!(both.wakes(), 0);
    assert!(locks.try_acquire("a", &once()).is_err(), "it has this one now");
    drop(b);
    drop(both.done().unwrap());
    assert!(locks.is_empty());
}

#[test]
fn a_waiter_behind_a_waiter_keeps_nobody_from_greater_keys() {
    let (locks, _clock) = manual();
    // The holder of c asks for d, which a waiter for a and d must not keep, because a waits for c.
    let c = locks.try_acquire("c", &once()).unwrap();
    let a_and_c = waits(&locks, ["a", "c"], patient());
    let a_and_d = waits(&locks, ["a", "d"], patient());
    let d = locks.try_acquire("d", &once()).unwrap();
    drop((c, d));
    drop(a_and_c.done().unwrap());
    drop(a_and_d.done().unwrap());
    assert!(locks.is_empty());
}

#[test]
fn who_came_first_keeps_its_place_at_keys_it_did_not_wait_for_yet() {
    let (locks, _clock) = manual();
    let [a, b] = ["a", "b"].map(|key| locks.try_acquire(key, &once()).unwrap());
    let first = waits(&locks, ["a", "b"], patient());
    let second = waits(&locks, "b", patient());
    drop(a);
    drop(b);
    assert_eq!(second.wakes(), 0);
    drop(first.done().unwrap());
    drop(second.done().unwrap());
    assert!(locks.is_empty());
}

#[test]
fn a_waiter_for_the_whole_table_keeps_nobody_from_keys_above_the_one_it_waits_for() {
    let (locks, _clock) = manual();
    let b = locks.try_acquire("b", &once()).unwrap();
    let all = waits_for_all(&locks, patient());
    assert!(locks.try_acquire("a", &once()).is_err(), "below");
    assert!(locks.try_acquire("b", &once()).is_err());
    let c = locks.try_acquire("c", &once()).unwrap();
    drop(b);
    assert_eq!(all.wakes(), 0);
    assert!(locks.try_acquire("b", &once()).is_err(), "it waits for c now");
    let d = locks.try_acquire("d", &once()).unwrap();
    drop(c);
    drop(d);
    let all = all.done().unwrap();
    assert!(locks.try_acquire("e", &once()).is_err());
    drop(all);
    assert!(locks.is_empty());
}

#[test]
fn who_waited_before_the_whole_table_goes_first_and_who_came_later_goes_after() {
    let (locks, _clock) = manual();
    let b = locks.try_acquire("b", &once()).unwrap();
    let before = waits(&locks, ["b", "c"], patient());
    let all = waits_for_all(&locks, patient());
    let after = waits(&locks, ["b", "c"], patient());
    drop(b);
    let before = before.done().unwrap();
    assert_eq!((all.wakes(), after.wakes()), (0, 0));
    drop(before);
    let all = all.done().unwrap();
    assert_eq!(after.wakes(), 0);
    drop(all);
    drop(after.done().unwrap());
    assert!(locks.is_empty());
}

#[test]
fn several_waiters_for_the_whole_table_take_turns_with_keys() {
    let (locks, _clock) = manual();
    let held = locks.try_acquire_all(&once()).unwrap();
    let key = waits(&locks, "k", patient());
    let [first, second] = [(); 2].map(|()| waits_for_all(&locks, patient()));
    let late = waits(&locks, "k", patient());
    drop(held);
    assert_eq!((first.wakes(), late.wakes()), (0, 0));
    drop(key.done().unwrap());
    drop(first.done().unwrap());
    assert_eq!(late.wakes(), 0);
    drop(second.done().unwrap());
    drop(late.done().unwrap());
    assert!(locks.is_empty());
}

#[test]
fn who_waited_for_a_key_that_nobody_holds_goes_before_the_whole_table() {
    let (locks, _clock) = manual();
    let held = locks.try_acquire_all(&once()).unwrap();
    let key = waits(&locks, "k", patient());
    let all = waits_for_all(&locks, patient());
    drop(held);
    assert_eq!(all.wakes(), 0);
    drop(key.done().unwrap());
    drop(all.done().unwrap());
    assert!(locks.is_empty());
}

#[test]
fn a_cancelled_waiter_for_the_whole_table_lets_everybody_go_on() {
    let (locks, _clock) = manual();
    let b = locks.try_acquire("b", &once()).unwrap();
    let all = waits_for_all(&locks, patient());
    let a = waits(&locks, "a", patient());
    drop(all);
    drop(a.done().unwrap());
    let all = waits_for_all(&locks, patient());
    drop(b);
    assert_eq!(all.wakes(), 1);
    // It had been granted the table, and gives it back.
    drop(all);
    assert!(locks.is_empty());
    assert!(locks.try_acquire("a", &once()).is_ok());
}

/// A key that tells when it is copied, if it is held and not the first.
#[derive(PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Copied(u32);

/// What a request for the whole table and one for a key see of each other.
#[derive(Default)]
struct Meeting {
    /// The table is looked at.
    begins: AtomicBool,
    /// The key was locked meanwhile.
    passed: AtomicBool,
    /// The table is still looked at after that.
    goes_on: AtomicBool,
}

static MEETING: Mutex<Option<Arc<Meeting>>> = Mutex::new(None);

impl Clone for Copied {
    fn clone(&self) -> Self {
        let meeting = MEETING.lock().expect("nobody panics").clone();
        if let Some(meeting) = meeting.filter(|_| (1..Self::KEYS).contains(&self.0)) {
            meeting.begins.store(true, Ordering::Relaxed);
            // So that the other has time.
            std::thread::yield_now();
            if meeting.passed.load(Ordering::Relaxed) {
                meeting.goes_on.store(true, Ordering::Relaxed);
            }
        }
        Self(self.0)
    }
}

impl Copied {
    const KEYS: u32 = 100_000;
}

/// Whether another key was locked while a request for the whole table looked at the keys that are held.
fn is_passed_by_another(locks: &LocalLocks<Copied>) -> bool {
    let meeting = Arc::new(Meeting::default());
    *MEETING.lock().unwrap() = Some(meeting.clone());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !meeting.begins.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            drop(locks.acquire_blocking(Copied(Copied::KEYS), &patient()).unwrap());
            meeting.passed.store(true, Ordering::Relaxed);
        });
        let brief = once().retries(1).interval_by(|_| MS);
        locks.acquire_all_blocking(&brief).unwrap_err();
    });
    *MEETING.lock().unwrap() = None;
    meeting.goes_on.load(Ordering::Relaxed)
}

#[test]
fn a_request_for_the_whole_of_a_large_table_lets_others_go_on_meanwhile() {
    let locks: LocalLocks<Copied> = LocalLocks::new();
    let mut held: Vec<_> =
        (0..Copied::KEYS).map(|key| locks.try_acquire(Copied(key), &patient()).unwrap()).collect();
    // Each time the other thread has to be scheduled meanwhile.
    let passed = (0..10).filter(|_| is_passed_by_another(&locks)).count();
    assert!(passed > 7, "others had to wait until all was looked at, but for {passed} of 10");
    let all = Task::pending({
        let locks = locks.clone();
        async move { locks.acquire_all(&patient()).await }
    });
    assert!(locks.try_acquire(Copied(Copied::KEYS), &once()).is_ok());
    drop(held.split_off(1));
    assert!(locks.try_acquire(Copied(1), &once()).is_ok(), "it is above the first that is held");
    drop(held);
    drop(all.done().unwrap());
    assert!(locks.is_empty());
}

#[test]
fn threads_that_take_keys_in_order_and_the_whole_table_never_end_in_a_deadlock() {
    let locks: LocalLocks<u64> = LocalLocks::new();
    let rounds = 300;
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let locks = &locks;
            scope.spawn(move || {
                for round in 0..rounds {
                    let (low, high) = ((thread + round) % 4, 4 + (thread * round) % 4);
                    match (thread + round) % 5 {
                        0 => drop(locks.acquire_all_blocking(&patient()).unwrap()),
                        1 => drop(locks.acquire_blocking([low, high], &patient()).unwrap()),
                        _ => {
                            let low = locks.acquire_blocking(low, &patient()).unwrap();
                            let high = locks.acquire_blocking(high, &patient()).unwrap();
                            drop((low, high));
                        }
                    }
                }
            });
        }
    });
    assert!(locks.is_empty());
}

#[test]
fn who_waits_for_the_whole_table_notes_a_key_once_and_while_it_is_taken() {
    let locks = LocalLocks::<Arc<u32>>::new();
    let [first, shared, brief] = [0, 1, 2].map(Arc::new);
    let _first = locks.try_acquire(first, &patient()).unwrap();
    let join = || locks.try_acquire(Keys::shared(shared.clone()), &patient()).unwrap();
    let _joined = join();
    let inner = locks.clone();
    let _all = Task::pending(async move { inner.acquire_all(&patient()).await });
    for _ in 0..100 {
        drop(join());
        drop(locks.try_acquire(brief.clone(), &patient()).unwrap());
    }
    assert!(Arc::strong_count(&shared) < 10, "{}", Arc::strong_count(&shared));
    assert_eq!(Arc::strong_count(&brief), 1);
}
