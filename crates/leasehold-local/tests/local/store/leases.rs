//! Leases and locks exclude each other.

use leasehold_core::{EvictRequest, EvictTarget, RenewEntry, RenewOutcome, RenewRequest};

use super::*;

#[test]
fn a_lease_and_a_lock_of_one_key_exclude_each_other() {
    let both = both();
    let guard = both.lock("a b").unwrap();
    let refused = both.refused("w", "a c");
    assert_eq!((refused.key, refused.retry_after), (key("a"), None));
    assert!(matches!(refused.why, RefusalReason::Held(Some(lock)) if lock.id.is_none()));
    assert_eq!(both.refused("w", "b").key, key("b"));
    drop(guard);
    both.granted("w", "a c");
    for keys in ["a", "c", "b c"] {
        assert!(both.lock(keys).is_err(), "{keys}");
    }
    assert!(both.lock("b").is_ok());
    assert!(matches!(both.release("w", "a c"), ReleaseOutcome::Released));
    assert!(both.lock("a b c").is_ok());
    assert!(both.is_empty());
}

#[test]
fn shared_locks_and_shared_leases_count_together() {
    let both = both();
    let at_most = |max| Mode::Shared { max: std::num::NonZeroU32::new(max) };
    let shared = |mode| both.locks.try_acquire(Keys::one(key("a"), mode), &Options::new());
    let guard = shared(Mode::SHARED).unwrap();
    assert!(matches!(both.acquire("w", "a", at_most(1)), AcquireReply::Refused(_)));
    assert!(matches!(both.acquire("w", "a", at_most(2)), AcquireReply::Granted(_)));
    assert!(shared(at_most(2)).is_err() && shared(Mode::Exclusive).is_err());
    let another = shared(at_most(3)).unwrap();
    drop((guard, another));
    assert!(both.lock("a").is_err());
    both.release("w", "a");
    assert!(both.is_empty());
}

#[test]
fn a_lock_that_went_stale_excludes_no_lease_and_an_ended_lease_no_lock() {
    let both = both();
    let guard = both.locks.try_acquire(key("a"), &Options::new().lock_timeout(SECOND)).unwrap();
    assert_eq!(remaining(&both.refused("w", "a")), Some(SECOND));
    both.clock.advance(SECOND);
    both.granted("w", "a");
    assert_eq!(guard.release(), leasehold_local::locks::ReleaseOutcome::Expired);
    both.clock.advance(10 * SECOND - MS);
    assert!(both.lock("a").is_err());
    both.clock.advance(MS);
    let guard = both.lock("a").unwrap();
    assert!(matches!(both.release("w", "a"), ReleaseOutcome::Expired));
    drop(guard);
    assert!(both.is_empty());
}

#[test]
fn a_table_that_is_locked_whole_refuses_leases_and_renews_those_that_it_waits_for() {
    let both = both();
    both.granted("w", "a");
    let locks = both.locks.clone();
    let all = Task::pending(async move { locks.acquire_all(&patient()).await });
    assert!(both.is_queued("x", "a") || both.refused("x", "a").retry_after.is_some());
    let claims = Claims::one(key("a"), Mode::Exclusive);
    let entry = RenewEntry::extend(id("w"), claims, Ttl::new(20 * SECOND).unwrap());
    let renewed = answer(both.store.renew(&RenewRequest::new(vec![entry]))).unwrap();
    assert!(matches!(renewed.leases[0], RenewOutcome::Held(_)));
    both.release("w", "a");
    let all = all.done().unwrap();
    let refused = both.refused("x", "b");
    assert!(matches!(refused.why, RefusalReason::Held(Some(_))), "{refused:?}");
    drop(all);
    both.granted("x", "b");
    both.release("x", "b");
    assert!(both.is_empty());
}

#[test]
fn a_waiter_goes_on_when_a_lease_is_released_and_when_its_term_ends() {
    let both = both();
    both.granted("w", "a");
    let first = both.waits("a");
    both.release("w", "a");
    drop(first.done().unwrap());
    both.granted("w", "a");
    let (second, mut third) = (both.waits("a"), both.waits("a b"));
    both.clock.advance(10 * SECOND);
    let second = second.done().unwrap();
    assert!(third.poll().is_pending());
    drop(second);
    drop(third.done().unwrap());
    let locks = both.locks.clone();
    both.granted("x", "b");
    let all = Task::pending(async move { locks.acquire_all(&patient()).await });
    both.clock.advance(10 * SECOND);
    drop(all.done().unwrap());
    assert!(both.locks.try_acquire_all(&once()).is_ok());
}

#[test]
fn locks_are_listed_without_an_id_and_can_be_ended_by_force() {
    let both = both();
    let _guard = both.lock("b").unwrap();
    both.granted("w", "a");
    let listed = both.list();
    let shown: Vec<_> = listed.iter().map(|one| (one.key.as_str(), one.id.is_some())).collect();
    assert_eq!(shown, [("a", true), ("b", false)]);
    assert_eq!((listed[1].token, listed[1].age), (None, None));
    let targets = listed.iter().map(EvictTarget::of).collect();
    let evicted = answer(both.store.evict(&EvictRequest::exactly(targets, None))).unwrap();
    assert_eq!(evicted.removed.len(), 2);
    assert!(both.lock("a b").is_ok());
}

#[test]
fn lists_and_purges_of_many_keys_come_in_batches() {
    let both = both();
    for n in 0..250 {
        both.granted(&format!("w{n}"), &format!("k{n:03}"));
    }
    let (mut seen, mut request) = (Vec::new(), ListRequest::new(Filter::default()).with_limit(90));
    loop {
        let page = answer(both.store.list(&request)).unwrap();
        seen.extend(page.records.into_iter().map(|record| record.key));
        match page.next {
            Some(next) => request = request.with_cursor(next),
            None => break,
        }
    }
    assert_eq!(seen.len(), 250);
    assert!(seen.is_sorted());
    both.clock.advance(10 * SECOND);
    for (removed, more) in [(120, true), (120, true), (10, false)] {
        let request = EvictRequest::expired(Filter::default()).with_limit(120);
        let purged = answer(both.store.evict(&request)).unwrap();
        assert_eq!((purged.removed.len(), purged.more), (removed, more));
    }
    assert!(both.is_empty());
}

#[test]
fn what_ended_is_forgotten_an_hour_later() {
    let both = both();
    for n in 0..500 {
        both.granted(&format!("w{n}"), &format!("k{n}"));
    }
    both.clock.advance(3_600 * SECOND);
    assert!(matches!(both.release("w", "other"), ReleaseOutcome::NotHeld));
    assert_eq!(both.store.snapshot().entries().count(), 500);
    // All shards are looked through within a minute.
    both.clock.advance(70 * SECOND);
    assert!(matches!(both.release("w", "other"), ReleaseOutcome::NotHeld));
    assert!(both.is_empty());
}

#[test]
fn a_lock_that_ends_beside_a_lease_hands_the_key_to_nobody() {
    let both = both();
    assert!(matches!(both.acquire("l", "k", Mode::SHARED), AcquireReply::Granted(_)));
    let shared = both.locks.try_acquire(Keys::shared(key("k")), &patient()).unwrap();
    let mut writer = both.waits("k");
    drop(shared);
    assert!(writer.poll().is_pending());
    both.release("l", "k");
    drop(writer.done().unwrap());
    assert!(both.is_empty());
}

#[test]
fn two_stores_over_one_table_share_its_leases_and_its_tokens() {
    let both = both();
    let other = Both { store: LocalStore::over(&both.locks), ..self::both() };
    let first = both.granted("w", "a").token;
    other.refused("x", "a");
    assert!(matches!(other.release("w", "a"), ReleaseOutcome::Released));
    assert!(other.granted("x", "b").token > first);
    let addresses = [&both, &other].map(|one| answer(one.store.check()).unwrap().identity);
    assert_eq!(addresses[0], addresses[1]);
}
