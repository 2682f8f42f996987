//! F3: leases renew themselves, in as few requests as possible, and stop when they should.

use std::sync::Arc;

use crate::support::{Fault, Flaky, drift, ms, secs};
use leasehold::store::{Drift, TokioClock};
use leasehold::{
    ErrorKind, Event, Keepalive, LocalStore, Locker, LostReason, ReleaseOutcome, Remaining, Ttl,
    Wait,
};

#[tokio::test(start_paused = true)]
async fn a_lease_lives_as_long_as_its_guard_and_renews_after_a_third() {
    let store = Flaky::new();
    let guard = store.locks().lock("k").ttl(secs(30)).await.unwrap();
    tokio::time::sleep(secs(3_600)).await;
    assert!(guard.is_held());
    let renewals = store.renews().len();
    assert!((360..=400).contains(&renewals), "every 9 to 10 s: {renewals}");
    guard.release().await.unwrap();
    tokio::time::sleep(secs(3_600)).await;
    assert_eq!(store.renews().len(), renewals, "a released lease is not renewed");
}

#[tokio::test(start_paused = true)]
async fn keepalive_every_and_off() {
    let store = Flaky::new();
    let locks = store.locks();
    let guard = locks.lock("k").keepalive(Keepalive::Every(secs(2))).await.unwrap();
    tokio::time::sleep(ms(20_500)).await;
    assert_eq!(store.renews().len(), 10);
    drop(guard);
    let guard = locks.lock("j").ttl(secs(5)).keepalive(Keepalive::Off).await.unwrap();
    let granted = store.now();
    assert_eq!(guard.lost().await, LostReason::Expired);
    assert_eq!(store.now() - granted, secs(5) - drift(secs(5)));
    assert_eq!(store.renews().len(), 10);
}

#[tokio::test(start_paused = true)]
async fn many_leases_are_renewed_in_few_requests() {
    let store = Flaky::new();
    let locks = store.locks();
    let mut guards = Vec::new();
    for n in 0..2_500 {
        guards.push(locks.lock(format!("k{n}")).ttl(secs(30)).await.unwrap());
        if n % 500 == 0 {
            tokio::time::sleep(ms(500)).await;
        }
    }
    tokio::time::sleep(secs(28)).await;
    assert!(guards.iter().all(leasehold::Guard::is_held));
    let sizes: Vec<_> = store.renews().iter().map(Vec::len).collect();
    assert!(sizes.iter().all(|size| *size <= 1_000), "{sizes:?}");
    assert!(sizes.len() <= 12, "three rounds of three requests and some: {sizes:?}");
    assert!(sizes.iter().sum::<usize>() >= 5_000);
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_hangs_is_given_up_in_time_to_try_again() {
    let store = Flaky::new();
    let guard = store.locks().lock("k").ttl(secs(30)).await.unwrap();
    store.on_renew([Fault::Hung]);
    tokio::time::sleep(secs(60)).await;
    assert!(guard.is_held(), "one lost packet costs no lock");
}

#[tokio::test(start_paused = true)]
async fn leases_near_their_end_do_not_shorten_the_time_of_others() {
    let store = Flaky::new();
    let locks = store.locks();
    let ten = Keepalive::Every(secs(10));
    let short = locks.lock("short").ttl(secs(12)).keepalive(ten).await.unwrap();
    let long = locks.lock("long").ttl(secs(30)).keepalive(ten).await.unwrap();
    let mut events = long.events();
    // Both are due at 10 s; the short one has less than 2 s left, and replies take 3 s.
    store.down(Fault::SlowReply(secs(3)));
    assert_eq!(short.lost().await, LostReason::StoreUnreachable);
    assert!(matches!(events.next().await, Some(Event::Renewed { .. })));
    assert_eq!(store.renews()[..2].iter().map(Vec::len).collect::<Vec<_>>(), [1, 1]);
}

#[tokio::test(start_paused = true)]
async fn short_leases_that_come_and_go_do_not_cost_a_long_one_its_renewals() {
    let store = Flaky::new();
    let locks = store.locks();
    let long = locks.lock("long").ttl(secs(30)).await.unwrap();
    store.down(Fault::SlowReply(ms(150)));
    let churn = (0..20).map(|n| {
        let locks = locks.clone();
        crate::support::spawn(async move {
            loop {
                let short = locks.lock(format!("short-{n}")).ttl(ms(600)).await.unwrap();
                tokio::time::sleep(ms(290 + 3 * n)).await;
                drop(short);
            }
        })
    });
    let churn: Vec<_> = churn.collect();
    tokio::time::sleep(secs(90)).await;
    assert!(long.is_held(), "{:?}", long.ensure_held());
    churn.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test(start_paused = true)]
async fn max_hold_ends_a_hold_that_renews() {
    let store = Flaky::new();
    let guard = store.locks().lock("k").ttl(secs(30)).max_hold(secs(100)).await.unwrap();
    let granted = store.now();
    let lost = tokio::time::timeout(secs(3_600), guard.lost()).await;
    assert_eq!(lost.unwrap(), LostReason::MaxHold);
    assert_eq!(store.now() - granted, secs(100));
    store.until_free("k").await;
    let endless = store.locks().lock("k").ttl(Ttl::NEVER).max_hold(secs(50)).await.unwrap();
    let lost = tokio::time::timeout(secs(3_600), endless.lost()).await;
    assert_eq!(lost.unwrap(), LostReason::MaxHold);
}

#[tokio::test(start_paused = true)]
async fn min_hold_keeps_the_key_taken_after_an_early_release_and_a_drop() {
    let store = Flaky::new();
    let locks = store.locks();
    let guard = locks.lock("k").ttl(secs(5)).min_hold(secs(60)).await.unwrap();
    tokio::time::sleep(secs(10)).await;
    let ReleaseOutcome::Kept(left) = guard.release().await.unwrap().outcome else {
        panic!("not kept")
    };
    assert!(left > secs(49) && left <= secs(50), "{left:?}");
    assert!(!store.is_free("k").await && store.records("k").await[0].kept);
    assert!(locks.try_lock("k").await.unwrap().is_none());
    let before = store.now();
    let next = locks.lock("k").min_hold(secs(60)).wait(secs(100)).await.unwrap();
    assert!(store.now() - before >= secs(49));
    drop(next);
    locks.close(secs(1)).await.unwrap();
    assert!(!store.is_free("k").await, "dropped early, kept");
    assert!(store.records("k").await[0].kept);
}

#[tokio::test(start_paused = true)]
async fn min_hold_holds_through_a_crash() {
    let store = Flaky::new();
    let guard = store.locks().lock("k").ttl(secs(5)).min_hold(secs(60)).await.unwrap();
    let granted = store.now();
    // A crash: nothing is renewed and nothing is released.
    guard.detach();
    drop(store.others().lock("k").wait(secs(100)).await.unwrap());
    assert!(store.now() - granted >= secs(60));
}

#[tokio::test(start_paused = true)]
async fn min_hold_of_a_continued_lease_holds_through_a_crash() {
    let store = Flaky::new();
    let locks = store.locks();
    let lease = locks.lock("k").ttl(secs(5)).await.unwrap().detach();
    let guard = locks.acquire_or_renew(lease).min_hold(secs(60)).await.unwrap();
    let resumed = store.now();
    assert!(!guard.is_fresh());
    guard.detach();
    drop(store.others().lock("k").wait(secs(100)).await.unwrap());
    assert!(store.now() - resumed >= secs(60));
}

#[tokio::test(start_paused = true)]
async fn a_late_release_after_min_hold_frees_at_once() {
    let store = Flaky::new();
    let guard = store.locks().lock("k").min_hold(secs(5)).await.unwrap();
    tokio::time::sleep(secs(6)).await;
    assert!(matches!(guard.release().await.unwrap().outcome, ReleaseOutcome::Released));
    assert!(store.is_free("k").await);
}

#[tokio::test(start_paused = true)]
async fn after_a_loss_the_store_keeps_the_lock_for_the_lock_delay() {
    let store = Flaky::new();
    let locks = store.locks();
    let guard = locks.lock("k").ttl(secs(10)).lock_delay(secs(20)).await.unwrap();
    assert_eq!(store.records("k").await[0].remaining(), Remaining::For(secs(30)));
    let Remaining::For(left) = guard.remaining() else { panic!("endless") };
    assert!(left <= secs(10), "{left:?}");
    assert_eq!(guard.lease().ttl, Ttl::new(secs(10)).unwrap());
    tokio::time::sleep(secs(60)).await;
    assert!(guard.is_held(), "renewed");

    // From now on both renewals and the release of a lost lease fail.
    store.on_renew([Fault::Unreachable; 100]);
    store.on_release([Fault::Unreachable; 100]);
    assert_eq!(guard.lost().await, LostReason::StoreUnreachable);
    let (lost, others) = (store.now(), store.locks());
    let next = others.lock("k").wait(Wait::Forever).await.unwrap();
    let delay = store.now() - lost;
    assert!(delay >= secs(20), "taken {delay:?} after it was lost");
    assert!(delay <= secs(31), "taken only {delay:?} after it was lost");
    drop(next);
}

#[tokio::test(start_paused = true)]
async fn drift_is_subtracted_from_every_term() {
    let clock = Arc::new(TokioClock::new());
    let store = LocalStore::with_clock(clock.clone());
    let locks = Locker::builder(store).clock(clock).drift(Drift::new(500, ms(0))).build();
    let guard = locks.lock("k").ttl(secs(10)).keepalive(Keepalive::Off).await.unwrap();
    assert_eq!(guard.remaining(), Remaining::For(secs(5)));
}

#[test]
fn after_the_keepers_runtime_ends_guards_end_and_the_next_acquire_starts_another() {
    let store = LocalStore::new();
    let locks = Locker::new(store);
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let first = runtime();
    let ttl = ms(300);
    let orphan = first.block_on(async { locks.lock("k").ttl(ttl).await.unwrap() });
    drop(first);
    let second = runtime();
    second.block_on(async {
        assert_eq!(orphan.lost().await, LostReason::Expired);
        let guard = locks.lock("k").ttl(ttl).await.unwrap();
        tokio::time::sleep(2 * ttl).await;
        assert!(guard.is_held(), "renewed by a Keeper on the second runtime");
    });
    drop(second);
    let outside = futures_util::FutureExt::now_or_never(locks.lock("j").into_future());
    let error = outside.expect("the error comes at once").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unexpected);
    assert!(error.to_string().contains("needs a tokio runtime"), "{error}");
}
