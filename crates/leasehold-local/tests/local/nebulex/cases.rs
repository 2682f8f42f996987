//! Named, anonymous, acquisition: cases 1 to 15, and 27.

use std::time::Duration;

use leasehold_local::locks::{
    LocalLocks, LockError, LocksConfig, Options, OwnerHandle, ReleaseOutcome,
};

use crate::common::*;

fn held_key(result: Result<impl std::fmt::Debug, LockError>) -> bool {
    matches!(result, Err(LockError::TimedOut { .. }))
}

#[test]
fn case_01_start_registers_process_and_table() {
    let started: Locks = LocalLocks::named("nebulex::01").unwrap();
    let found: Locks = LocalLocks::named("nebulex::01").unwrap();
    let guard = started.try_acquire("key", &once()).unwrap();
    assert_eq!((held(&found), found.name()), (vec![Some("key")], Some("nebulex::01")));
    drop(guard);
}

#[test]
fn case_02_acquire_two_keys_via_name_writes_both_records() {
    let locks: Locks = LocalLocks::named("nebulex::02").unwrap();
    let guard = locks.acquire_blocking(["key1", "key2"], &Options::new()).unwrap();
    for key in ["key1", "key2"] {
        let record = entry(&locks, key);
        assert_eq!((record.id, record.lock_timeout), (guard.id(), Some(30 * SECOND)));
    }
}

#[test]
fn case_03_second_process_times_out_on_held_key() {
    let locks: Locks = LocalLocks::named("nebulex::03").unwrap();
    let _guard = locks.acquire_blocking("key", &Options::new()).unwrap();
    let other = locks.clone();
    let options = Options::new().retries(2).interval(MS);
    let second = std::thread::spawn(move || other.acquire_blocking("key", &options).map(drop));
    let error = second.join().unwrap().unwrap_err();
    assert!(matches!(error, LockError::TimedOut { attempts: 3, .. }), "{error}");
}

#[test]
fn case_04_unnamed_start_gives_reference() {
    let (one, other) = (Locks::new(), Locks::new());
    assert_eq!(one.name(), None);
    let _guard = one.try_acquire("key", &once()).unwrap();
    assert!(other.try_acquire("key", &once()).is_ok(), "each is a table of its own");
    assert!(one.clone().try_acquire("key", &once()).is_err(), "a clone is the same");
}

#[test]
fn case_05_acquire_and_release_via_ref_removes_records() {
    let locks = Locks::new();
    let id = locks.acquire_blocking(["key1", "key2"], &Options::new()).unwrap().keep();
    assert_eq!(held(&locks), [Some("key1"), Some("key2")]);
    assert_eq!(locks.release(id), ReleaseOutcome::Released);
    assert!(locks.is_empty());
}

#[test]
fn case_06_contention_timeout_via_ref() {
    let locks = Locks::new();
    let _guard = locks.acquire_blocking("key", &Options::new()).unwrap();
    let options = Options::new().retries(1).interval(MS);
    assert!(held_key(locks.acquire_blocking("key", &options)));
}

#[test]
fn case_07_no_keys_lock_everything() {
    // Here an empty list is an error that names what locks everything, and that excludes every key.
    let locks = Locks::new();
    let error = locks.acquire_blocking([], &Options::new()).unwrap_err();
    assert!(error.to_string().contains("acquire_all"), "{error}");
    let _all = locks.acquire_all_blocking(&Options::new()).unwrap();
    assert_eq!(held(&locks), [None]);
    assert!(held_key(locks.acquire_blocking("key", &once())));
}

#[test]
fn case_08_unsorted_keys_all_locked() {
    let locks = Locks::new();
    let _guard = locks.acquire_blocking(["c", "a", "b"], &Options::new()).unwrap();
    assert_eq!(held(&locks), [Some("a"), Some("b"), Some("c")]);
}

#[test]
fn case_09_dead_owner_record_is_taken_over_owner_becomes_caller() {
    let locks = Locks::new();
    let (dead, caller) = (OwnerHandle::new(), OwnerHandle::new());
    let _kept = locks.acquire_blocking("key", &patient().owner(&dead)).unwrap().keep();
    drop(dead);
    let _guard = locks.acquire_blocking("key", &once().owner(&caller)).unwrap();
    assert_eq!(entry(&locks, "key").owner, Some(caller.owner()));
}

#[test]
fn case_10_timed_out_record_is_taken_over_timestamp_newer() {
    let (locks, clock) = manual();
    let second = Options::new().lock_timeout(SECOND);
    let old = locks.acquire_blocking("key", &second).unwrap();
    clock.advance(60 * SECOND);
    let taken = locks.acquire_blocking("key", &once()).unwrap();
    let record = entry(&locks, "key");
    assert_eq!((record.id, record.age), (taken.id(), Some(Duration::ZERO)));
    assert_ne!(old.id(), taken.id());
}

#[test]
fn case_11_all_or_nothing_leaves_no_key_behind() {
    let locks = Locks::new();
    let key1 = locks.acquire_blocking("key1", &Options::new()).unwrap();
    assert!(held_key(locks.acquire_blocking(["key1", "key2", "key3"], &once())));
    assert_eq!(held(&locks), [Some("key1")]);
    drop(key1);
    assert!(locks.is_empty());
}

#[test]
fn case_12_retry_with_jitter_wins_after_release() {
    let (locks, clock) = manual();
    let guard = locks.acquire_blocking("key", &patient()).unwrap();
    let options = Options::new().retries(10).interval(50 * MS);
    let task = waits(&locks, "key", options);
    clock.advance(100 * MS);
    drop(guard);
    assert!(task.done().is_ok());
}

#[test]
fn case_13_infinite_retries_eventually_win() {
    let (locks, clock) = manual();
    let guard = locks.acquire_blocking("key", &patient()).unwrap();
    let mut task = waits(&locks, "key", Options::new().retry_forever());
    clock.advance(86_400 * SECOND);
    assert!(task.poll().is_pending());
    drop(guard);
    assert!(task.done().is_ok());
}

#[test]
fn case_14_retries_0_on_a_held_key_times_out() {
    let locks = Locks::new();
    let _guard = locks.acquire_blocking("key", &Options::new()).unwrap();
    let error = locks.acquire_blocking("key", &Options::new().retries(0)).unwrap_err();
    assert!(matches!(error, LockError::TimedOut { attempts: 1, .. }), "{error}");
}

#[test]
fn case_15_retry_interval_0_does_not_crash_and_times_out_at_once() {
    let options = Options::new().retries(3).interval(Duration::ZERO);
    let (error, waited) = super::waited(&options);
    assert_eq!(waited, Duration::ZERO);
    assert_eq!(error, LockError::TimedOut { attempts: 4, waited });
}

#[test]
fn case_27_init_callback_receives_table_first() {
    let mut seen = None;
    let on_init = |table: &Locks| seen = table.name().map(str::to_owned);
    let locks = LocalLocks::named_with("nebulex::27", LocksConfig::new(), on_init).unwrap();
    assert_eq!(seen.as_deref(), locks.name());
}
