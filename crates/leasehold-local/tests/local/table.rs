//! One key, several keys, modes, the whole table, guards, ids, entries.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{ManualClock, Mode};
use leasehold_local::locks::{Keys, LocalLocks, LockError, LocksConfig, Options, ReleaseOutcome};

use crate::common::*;

fn refused<T: std::fmt::Debug>(result: Result<T, LockError>) -> bool {
    matches!(result, Err(LockError::Held))
}

#[test]
fn a_key_has_one_exclusive_holder_and_leaves_nothing() {
    let locks = Locks::new();
    let guard = locks.try_acquire("a", &Options::new()).unwrap();
    assert!(refused(locks.try_acquire("a", &Options::new())));
    let other = locks.try_acquire("b", &Options::new()).unwrap();
    assert_ne!(guard.id(), other.id());
    assert_eq!(guard.release(), ReleaseOutcome::Released);
    assert!(locks.try_acquire("a", &Options::new()).is_ok());
    drop(other);
    assert!(locks.is_empty());
}

#[test]
fn ids_are_never_used_twice() {
    let locks: LocalLocks<u64> = LocalLocks::new();
    let mut ids: Vec<_> =
        (0..1_000).map(|key| locks.try_acquire(key % 50, &once()).unwrap().id()).collect();
    ids.push(locks.try_acquire_all(&once()).unwrap().id());
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 1_001);
}

#[test]
fn a_shard_knows_each_of_its_keys_whichever_is_unlocked_first() {
    for first in 0..3 {
        let config = LocksConfig::new().shards(1);
        let locks: LocalLocks<u32> = LocalLocks::with_config(config).unwrap();
        let shared = |key| locks.try_acquire(Keys::shared(key), &once());
        let mut guards = vec![shared(0).unwrap(), shared(1).unwrap(), shared(2).unwrap()];
        drop(guards.remove(first as usize));
        let left: Vec<_> = (0..3).filter(|key| *key != first).collect();
        for key in &left {
            assert!(refused(locks.try_acquire(*key, &once())), "{key} of {left:?}");
            guards.push(shared(*key).unwrap());
        }
        let anew = locks.try_acquire(first, &once()).unwrap();
        assert!(refused(shared(first)));
        assert_eq!(held(&locks).len(), 5, "two readers of {left:?} each, and {first}");
        assert!(refused(locks.try_acquire_all(&once())));
        guards.push(anew);
        for guard in guards {
            assert_eq!(guard.release(), ReleaseOutcome::Released);
        }
        assert!(locks.is_empty());
    }
}

#[test]
fn several_keys_are_locked_all_or_none() {
    let locks = Locks::new();
    let b = locks.try_acquire("b", &once()).unwrap();
    assert!(refused(locks.try_acquire(["c", "a", "b"], &once())));
    assert_eq!(held(&locks), [Some("b")]);
    drop(b);
    let all = locks.try_acquire(["c", "a", "b", "a", "c"], &once()).unwrap();
    assert_eq!(all.keys().copied().collect::<Vec<_>>(), ["a", "b", "c"]);
    assert_eq!(held(&locks), [Some("a"), Some("b"), Some("c")]);
    for key in ["a", "b", "c"] {
        assert!(refused(locks.try_acquire(key, &once())));
    }
    assert_eq!(all.release(), ReleaseOutcome::Released);
    assert!(locks.is_empty());
}

#[test]
fn many_keys_have_no_limit() {
    for shards in [1, 64, 256] {
        let config = LocksConfig::new().shards(shards);
        let locks: LocalLocks<u32> = LocalLocks::with_config(config).unwrap();
        let all = locks.try_acquire((0..10_000).collect::<Vec<_>>(), &once()).unwrap();
        assert!(refused(locks.try_acquire(9_999, &once())));
        drop(all);
        assert!(locks.is_empty());
    }
}

#[test]
fn c9_shared_holders_exclude_exclusive_ones_and_count_up_to_the_max() {
    let locks = Locks::new();
    let at_most = |max| Keys::one("a", Mode::Shared { max: Some(NonZeroU32::new(max).unwrap()) });
    let first = locks.try_acquire(Keys::shared("a"), &once()).unwrap();
    assert!(refused(locks.try_acquire("a", &once())));
    assert!(refused(locks.try_acquire(at_most(1), &once())));
    let second = locks.try_acquire(at_most(2), &once()).unwrap();
    assert!(refused(locks.try_acquire(at_most(2), &once())));
    let third = locks.try_acquire(Keys::shared("a"), &once()).unwrap();
    drop((first, third));
    assert!(refused(locks.try_acquire("a", &once())));
    drop(second);
    let alone = locks.try_acquire("a", &once()).unwrap();
    assert!(refused(locks.try_acquire(Keys::shared("a"), &once())));
    drop(alone);
    assert!(locks.is_empty());
}

#[test]
fn one_request_has_keys_of_both_modes() {
    let locks = Locks::new();
    let mixed = locks.try_acquire(Keys::shared("a").and("b", Mode::Exclusive), &once()).unwrap();
    assert!(locks.try_acquire(Keys::shared("a"), &once()).is_ok());
    assert!(refused(locks.try_acquire(Keys::shared("b"), &once())));
    drop(mixed);
    let twice = locks.try_acquire(Keys::shared("a").and("a", Mode::Exclusive), &once());
    let message = twice.unwrap_err().to_string();
    assert!(message.contains("as exclusive and as shared"), "{message}");
}

#[test]
fn keys_come_as_slices_and_as_pairs_with_their_modes() {
    let locks = Locks::new();
    let slice: &[Name] = &["b", "a"];
    let guard = locks.try_acquire(slice, &once()).unwrap();
    assert_eq!(held(&locks), [Some("a"), Some("b")]);
    drop(guard);
    let pairs = vec![("a", Mode::SHARED), ("b", Mode::Exclusive)];
    let guard = locks.try_acquire(pairs, &once()).unwrap();
    let readers = locks.try_acquire(Keys::all_shared(["a", "c"]), &once()).unwrap();
    assert!(refused(locks.try_acquire(Keys::shared("b"), &once())));
    assert!(refused(locks.try_acquire("c", &once())));
    drop((guard, readers));
    assert!(locks.is_empty());
}

#[test]
fn an_empty_list_of_keys_is_an_error_that_names_acquire_all() {
    let locks = Locks::new();
    for result in [
        locks.try_acquire([], &once()).map(drop),
        locks.acquire_blocking(Vec::<Name>::new(), &once()).map(drop),
        locks.acquire_blocking(Vec::<(Name, Mode)>::new(), &once()).map(drop),
        locks.force_release([]).map(drop),
    ] {
        let error = result.unwrap_err();
        assert!(matches!(error, LockError::Invalid(_)));
        assert!(error.to_string().contains("acquire_all"), "{error}");
    }
}

#[test]
fn the_whole_table_excludes_every_key_and_is_excluded_by_every_key() {
    let locks = Locks::new();
    let reader = locks.try_acquire(Keys::shared("a"), &once()).unwrap();
    assert!(refused(locks.try_acquire_all(&once())));
    drop(reader);
    let all = locks.try_acquire_all(&once()).unwrap();
    assert!(refused(locks.try_acquire("z", &once())));
    assert!(refused(locks.try_acquire(["y", "z"], &once())));
    assert!(refused(locks.try_acquire_all(&once())));
    assert_eq!((held(&locks), all.keys().count()), (vec![None], 0));
    assert_eq!(all.release(), ReleaseOutcome::Released);
    assert!(locks.try_acquire(["y", "z"], &once()).is_ok());
    assert!(locks.is_empty());
}

#[test]
fn a_lock_without_its_guard_is_released_by_its_id() {
    let locks = Locks::new();
    let id = locks.try_acquire(["a", "b"], &once()).unwrap().keep();
    assert!(refused(locks.try_acquire("b", &once())));
    assert_eq!(locks.release(id), ReleaseOutcome::Released);
    assert_eq!(locks.release(id), ReleaseOutcome::NotHeld);
    let all = locks.try_acquire_all(&once()).unwrap().keep();
    assert!(refused(locks.try_acquire("b", &once())));
    assert_eq!(locks.release(all), ReleaseOutcome::Released);
    assert!(locks.is_empty());
}

#[test]
fn forced_release_ends_locks_and_their_holders_learn_of_it() {
    let locks = Locks::new();
    let guard = locks.try_acquire(["a", "b"], &once()).unwrap();
    let kept = locks.try_acquire("c", &once()).unwrap().keep();
    assert_eq!(locks.force_release(["b", "c", "d"]), Ok(2));
    let successor = locks.try_acquire("b", &once()).unwrap();
    assert_eq!(guard.release(), ReleaseOutcome::NotHeld);
    assert_eq!(locks.release(kept), ReleaseOutcome::NotHeld);
    assert_eq!(held(&locks), [Some("b")]);
    drop(successor);
    let all = locks.try_acquire_all(&once()).unwrap();
    assert!(locks.force_release_all() && !locks.force_release_all());
    assert_eq!(all.release(), ReleaseOutcome::NotHeld);
    let _forgotten = locks.try_acquire(["a", "b"], &once()).unwrap().keep();
    assert_eq!(locks.force_release(["a", "b"]), Ok(2));
    assert!(locks.is_empty(), "its id is forgotten with its last key");
}

#[test]
fn entries_show_key_mode_holder_age_time_out_and_waiters() {
    let (locks, clock) = manual();
    let worker = leasehold_local::locks::OwnerHandle::new();
    let options = Options::new().owner(&worker).lock_timeout(10 * SECOND);
    let a = locks.try_acquire(Keys::shared("a"), &options).unwrap();
    let b = locks.try_acquire("b", &patient()).unwrap();
    clock.advance(4 * SECOND);
    let _waits = waits(&locks, "a", patient());
    let shown = entry(&locks, "a");
    assert_eq!((shown.mode, shown.id, shown.waiters), (Mode::SHARED, a.id(), 1));
    assert_eq!(shown.owner, Some(worker.owner()));
    assert_eq!((shown.age, shown.lock_timeout), (Some(4 * SECOND), Some(10 * SECOND)));
    assert_eq!(a.remaining(), Some(6 * SECOND));
    assert!(!shown.is_stale);
    let shown = entry(&locks, "b");
    assert_eq!((shown.id, shown.waiters, shown.owner), (b.id(), 0, None));
    assert_eq!((shown.age, shown.lock_timeout, b.remaining()), (None, None, None));
    clock.advance(6 * SECOND);
    assert!(entry(&locks, "a").is_stale && a.is_stale() && !b.is_stale());
}

#[test]
fn a_table_knows_the_ages_of_all_locks_if_it_is_to() {
    let clock = ManualClock::new();
    let config = LocksConfig::new().ages(true).clock(Arc::new(clock.clone())).sweep_every(SECOND);
    let locks: Locks = LocalLocks::with_config(config).unwrap();
    let a = locks.try_acquire("a", &patient()).unwrap();
    clock.advance(4 * SECOND);
    let b = locks.try_acquire(["b", "c"], &once().lock_timeout(9 * SECOND)).unwrap();
    let all = waits_for_all(&locks, patient());
    clock.advance(SECOND);
    let shown = |key| {
        let entry = entry(&locks, key);
        (entry.age, entry.lock_timeout, entry.is_stale)
    };
    assert_eq!(shown("a"), (Some(5 * SECOND), None, false));
    assert_eq!(shown("c"), (Some(SECOND), Some(9 * SECOND), false));
    assert_eq!((a.remaining(), b.remaining()), (None, Some(8 * SECOND)));
    drop((a, b));
    let all = all.done().unwrap();
    clock.advance(3_600 * SECOND);
    assert_eq!(locks.entries()[0].age, Some(3_600 * SECOND));
    assert_eq!(all.release(), ReleaseOutcome::Released);
    assert!(locks.is_empty());
}

#[test]
fn keys_may_be_of_any_type() {
    let locks: LocalLocks<(String, u8)> = LocalLocks::new();
    let guard = locks.try_acquire(("a".to_owned(), 1), &once()).unwrap();
    assert!(refused(locks.try_acquire([("a".to_owned(), 1)], &once())));
    assert!(locks.try_acquire(("a".to_owned(), 2), &once()).is_ok());
    drop(guard);
}

#[test]
fn guards_and_waits_can_be_sent() {
    fn sent<T: Send + Sync + 'static>(value: T) -> T {
        value
    }
    let locks = Locks::new();
    let guard = sent(locks.try_acquire("a", &once()).unwrap());
    std::thread::spawn(move || drop(guard)).join().unwrap();
    drop(Box::new(async move { locks.acquire("a", &once()).await.map(drop) })
        as Box<dyn std::future::Future<Output = _> + Send>);
}

#[test]
fn a_configuration_out_of_range_is_refused_with_its_value() {
    for (config, fragment) in [
        (LocksConfig::new().shards(48), "48 shards"),
        (LocksConfig::new().shards(0), "0 shards"),
        (LocksConfig::new().sweep_every(MS / 2), "500µs"),
        (LocksConfig::new().sweep_batch(0), "batch is 0"),
    ] {
        let error = LocalLocks::<u8>::with_config(config).unwrap_err().to_string();
        assert!(error.contains(fragment), "{error}");
    }
    for shards in [1, 2, 1_024] {
        let locks: Locks = LocalLocks::with_config(LocksConfig::new().shards(shards)).unwrap();
        assert!(locks.try_acquire(["a", "b", "c"], &once()).is_ok());
    }
}

#[test]
fn a_lock_time_out_of_zero_is_refused() {
    let locks = Locks::new();
    let error = locks.try_acquire("a", &Options::new().lock_timeout(Duration::ZERO)).unwrap_err();
    assert!(error.to_string().contains("never_stale"), "{error}");
}
