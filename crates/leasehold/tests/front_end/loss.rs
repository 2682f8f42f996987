//! F4, F5 and F14: when a lease is lost, who is informed, and which replies do not count.

use crate::support::{Fault, Flaky, Sent, drift, ms, secs};
use futures_util::FutureExt;
use leasehold::inspect::Reason;
use leasehold::{
    Effect, ErrorKind, Event, Keepalive, LostReason, ManualClock, ReleaseOutcome, Remaining, Ttl,
    Wait,
};

#[tokio::test(start_paused = true)]
async fn loss_comes_by_the_local_deadline_while_the_store_cannot_be_reached() {
    for (fault, cause) in [
        (Fault::Hung, "did not answer"),
        (Fault::LostRequest, "the network failed"),
        (Fault::Unreachable, "the network failed"),
        (Fault::Denied, "the password is wrong"),
        (Fault::Incompatible, "no tables any more"),
    ] {
        let store = Flaky::new();
        let guard = store.locks().lock("k").ttl(secs(30)).await.unwrap();
        let granted = store.now();
        store.down(fault);
        assert_eq!(guard.lost().await, LostReason::StoreUnreachable, "{fault:?}");
        assert_eq!(store.now() - granted, secs(30) - drift(secs(30)), "{fault:?}");
        assert!(!guard.is_held());
        assert_eq!(guard.remaining(), Remaining::For(secs(0)));
        let error = guard.ensure_held().unwrap_err();
        assert!(error.to_string().contains(cause), "{error}");
        assert!(error.cause().is_some(), "{error}");
        store.up();
        assert!(!guard.is_held(), "loss is sticky");
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_renewal_is_no_loss_and_renewal_continues() {
    for fault in
        [Fault::LostRequest, Fault::Denied, Fault::Incompatible, Fault::EntriesFailed, Fault::Panic]
    {
        let store = Flaky::new();
        let guard = store.locks().lock("k").ttl(secs(30)).await.unwrap();
        store.down(fault);
        tokio::time::sleep(secs(25)).await;
        assert!(guard.is_held(), "{fault:?}");
        store.up();
        tokio::time::sleep(secs(100)).await;
        assert!(guard.is_held(), "{fault:?}");
        assert!(matches!(guard.release().await.unwrap().outcome, ReleaseOutcome::Released));
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_can_do_less_fails_new_locks_at_once_and_ends_no_lease() {
    let store = Flaky::new();
    let locks = store.locks();
    let guard = locks.lock("held").ttl(secs(30)).await.unwrap();
    let before = store.now();
    store.down(Fault::Incompatible);
    let error = locks.lock("free").wait(Wait::Forever).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Incompatible, Effect::NotApplied));
    assert_eq!(store.now(), before, "not waited for");
    let error = guard.renew().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible, "and not lost: {error}");
    tokio::time::sleep(secs(25)).await;
    assert!(guard.is_held());
    store.up();
    tokio::time::sleep(secs(100)).await;
    guard.verify().await.unwrap();
    drop(locks.lock("free").await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn the_term_counts_from_before_the_request_was_sent() {
    let store = Flaky::new();
    let started = store.now();
    store.on_acquire([Fault::SlowReply(secs(4))]);
    let guard = store.locks().lock("k").ttl(secs(10)).keepalive(Keepalive::Off).await.unwrap();
    let deadline = started + secs(10) - drift(secs(10));
    assert_eq!(guard.remaining(), Remaining::For(deadline - store.now()));
    store.on_renew([Fault::SlowReply(secs(3))]);
    let sent = store.now();
    guard.renew().await.unwrap();
    let deadline = sent + secs(10) - drift(secs(10));
    assert_eq!(guard.remaining(), Remaining::For(deadline - store.now()));
    assert_eq!(guard.lost().await, LostReason::Expired);
    assert_eq!(store.now(), deadline);
}

#[tokio::test(start_paused = true)]
async fn a_late_reply_to_the_guards_own_renewal_is_discarded() {
    let store = Flaky::new();
    let guard = store.locks().lock("k").ttl(secs(6)).keepalive(Keepalive::Off).await.unwrap();
    tokio::time::sleep(secs(4)).await;
    store.on_renew([Fault::SlowReply(secs(4))]);
    let error = guard.renew().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
    assert!(!guard.is_held());
    store.until_free("k").await;
}

#[tokio::test(start_paused = true)]
async fn a_late_reply_to_the_keepers_renewal_is_discarded() {
    let store = Flaky::new();
    let locks = store.locks();
    let guard = locks.lock("k").ttl(secs(6)).await.unwrap();
    let mut events = guard.events();
    // The reply to the first renewal, and to each that follows it, comes after the deadline.
    store.down(Fault::SlowReply(secs(5)));
    let lost = guard.lost().await;
    assert_eq!(lost, LostReason::StoreUnreachable);
    tokio::time::sleep(secs(20)).await;
    assert!(!guard.is_held());
    let mut seen = Vec::new();
    while let Some(event) = events.next().await {
        seen.push(event);
    }
    assert!(!seen.iter().any(|event| matches!(event, Event::Renewed { .. })), "{seen:?}");
    assert!(matches!(seen[..], [.., Event::Lost(LostReason::StoreUnreachable), Event::Stopped]));
}

#[tokio::test(start_paused = true)]
async fn a_lost_lease_is_released_in_the_background() {
    let store = Flaky::new();
    let locks = store.locks();
    let guard = locks.lock("k").ttl(secs(6)).keepalive(Keepalive::Off).await.unwrap();
    let id = guard.lease().id.clone();
    assert_eq!(guard.lost().await, LostReason::Expired);
    assert!(!store.is_free("k").await, "the store counts longer than the holder");
    store.until(|log| log.contains(&Sent::Release(vec![id.clone()]))).await;
    locks.close(ms(1)).await.unwrap();
    assert!(store.is_free("k").await);
    assert!(matches!(guard.release().await.unwrap().outcome, ReleaseOutcome::Expired));
    assert_eq!(store.released(&id), 1, "the guard's own release asked nothing");
}

#[tokio::test(start_paused = true)]
async fn the_store_keeps_a_lost_lock_for_the_lock_delay_and_a_released_one_not() {
    for (keeps, keepalive) in
        [(true, Keepalive::Off), (false, Keepalive::Off), (true, Keepalive::Auto)]
    {
        let store = Flaky::that_can(|can| can.keep = keeps);
        let locks = store.locks();
        let lock = locks.lock("k").ttl(secs(10)).lock_delay(secs(20)).keepalive(keepalive);
        let guard = lock.await.unwrap();
        store.down(Fault::Hung);
        guard.lost().await;
        store.up();
        let lost = store.now();
        store.until_free("k").await;
        let kept = store.now() - lost;
        assert!(kept >= secs(20) && kept < secs(21), "{kept:?}");
        let guard = locks.lock("k").lock_delay(secs(20)).await.unwrap();
        guard.release().await.unwrap();
        assert!(store.is_free("k").await);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_gone_from_the_store_is_lost_at_the_next_renewal() {
    let store = Flaky::new();
    let guard = store.locks().lock("k").ttl(secs(30)).await.unwrap();
    store.evict("k", "deploying").await;
    let before = store.now();
    let reason = guard.lost().await;
    assert_eq!(reason, LostReason::Evicted(Some(Reason::new("deploying").unwrap())));
    assert!(store.now() - before <= secs(10));
    assert!(matches!(guard.release().await.unwrap().outcome, ReleaseOutcome::NotHeld));
}

#[tokio::test(start_paused = true)]
async fn a_lease_without_end_notices_a_break_within_ten_seconds() {
    let store = Flaky::new();
    let guard = store.locks().lock("k").ttl(Ttl::NEVER).await.unwrap();
    tokio::time::sleep(secs(1_000)).await;
    assert!(guard.is_held());
    store.evict("k", "x").await;
    let before = store.now();
    assert!(matches!(guard.lost().await, LostReason::Evicted(_)));
    assert!(store.now() - before <= secs(10));
}

#[tokio::test(start_paused = true)]
async fn verify_queries_the_store() {
    let store = Flaky::new();
    let guard = store.locks().lock_all(["a", "b"]).await.unwrap();
    assert!(guard.verify().await.unwrap());
    store.evict("b", "x").await;
    assert!(guard.is_held(), "not known here yet");
    assert!(!guard.verify().await.unwrap());
    assert!(!guard.is_held());
    assert_eq!(guard.lost().await, LostReason::Gone);
}

#[tokio::test(start_paused = true)]
async fn run_drops_the_work_on_loss_and_returns_its_output_otherwise() {
    let store = Flaky::new();
    let guard = store.locks().lock("k").ttl(secs(6)).await.unwrap();
    assert_eq!(guard.run(async { 7 }).await.unwrap(), 7);
    struct Dropped(std::sync::Arc<std::sync::atomic::AtomicBool>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.store(true, std::sync::atomic::Ordering::SeqCst);
        }
    }
    let flag = std::sync::Arc::default();
    let dropped = Dropped(std::sync::Arc::clone(&flag));
    store.down(Fault::Hung);
    let work = async move {
        let _dropped = dropped;
        std::future::pending::<()>().await;
    };
    let error = guard.run(work).await.unwrap_err();
    assert_eq!(error.lost_reason(), Some(&LostReason::StoreUnreachable));
    assert!(flag.load(std::sync::atomic::Ordering::SeqCst));
    assert!(guard.run(async {}).await.is_err(), "a lost guard runs nothing");
}

#[tokio::test(start_paused = true)]
async fn lost_does_not_borrow_the_guard_and_never_ends_after_a_release() {
    let store = Flaky::new();
    let guard = store.locks().lock("k").await.unwrap();
    let lost = guard.lost();
    guard.release().await.unwrap();
    assert!(tokio::time::timeout(secs(1_000), lost).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn events_report_renewals_failures_and_the_end() {
    let store = Flaky::new();
    let guard = store.locks().lock("k").ttl(secs(9)).await.unwrap();
    let mut events = guard.events();
    assert!(matches!(events.next().await, Some(Event::Renewed { remaining: Remaining::For(_) })));
    store.on_renew([Fault::Unreachable]);
    assert!(matches!(events.next().await, Some(Event::Failed(_))));
    assert!(matches!(events.next().await, Some(Event::Renewed { .. })));
    guard.release().await.unwrap();
    assert!(matches!(events.next().await, Some(Event::Stopped)));
    assert!(events.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn events_reach_a_callback() {
    let store = Flaky::new();
    let guard = store.locks().lock("k").ttl(secs(9)).await.unwrap();
    let seen = std::sync::Arc::new(std::sync::Mutex::new(0));
    let count = std::sync::Arc::clone(&seen);
    let watching = guard.events().for_each(move |_| *count.lock().unwrap() += 1);
    let watch = crate::support::spawn(watching);
    tokio::time::sleep(secs(7)).await;
    drop(guard);
    watch.await.unwrap();
    assert_eq!(*seen.lock().unwrap(), 3, "two renewals and the end");
}

#[tokio::test(start_paused = true)]
async fn a_pause_longer_than_the_term_is_noticed_as_a_loss_first() {
    let store = Flaky::new();
    let guard = store.locks().lock("k").ttl(secs(2)).await.unwrap();
    // None of our code runs while time passes, as when the process or the machine stops.
    tokio::time::advance(secs(3)).await;
    assert!(!guard.is_held());
    assert_eq!(guard.renew().await.unwrap_err().lost_reason(), Some(&LostReason::Expired));
    let other = store.others().lock("k").await.unwrap();
    assert!(other.token() > guard.token());
    assert!(matches!(guard.release().await.unwrap().outcome, ReleaseOutcome::Expired));
    tokio::time::sleep(ms(10)).await;
    assert!(other.verify().await.unwrap(), "the overrun holder frees nobody else's lock");
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_fails_is_an_event_and_carries_all_that_a_quorum_needs() {
    let store = Flaky::new();
    let guard = store.locks().lock("k").group("o").host("db-3").comment("why").await.unwrap();
    let mut events = guard.events();
    store.on_renew([Fault::LostRequest]);
    assert_eq!(guard.renew().await.unwrap_err().kind(), ErrorKind::Unavailable);
    assert!(matches!(events.next().await, Some(Event::Failed(_))));
    assert!(matches!(events.next().await, Some(Event::Renewed { .. })), "tried again by itself");
    let renewals = store.renewals();
    assert_eq!(renewals.len(), 2);
    for renewal in renewals {
        assert_eq!(renewal.group().map(|group| group.as_str()), Some("o"));
        assert_eq!(renewal.note().host(), Some("db-3"));
        assert_eq!(renewal.note().comment(), Some("why"));
        assert!(renewal.note().pid().is_some());
        assert_eq!(renewal.token(), guard.token());
    }
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_lags_misses_the_oldest_events_and_never_the_last() {
    let store = Flaky::new();
    let guard = store.locks().lock("k").keepalive(Keepalive::Every(secs(1))).await.unwrap();
    let mut events = guard.events();
    tokio::time::sleep(secs(300)).await;
    guard.release().await.unwrap();
    let mut seen = Vec::new();
    while let Some(event) = events.next().await {
        seen.push(event);
    }
    assert_eq!(seen.len(), 64);
    assert!(matches!(seen.last(), Some(Event::Stopped)));
}

#[tokio::test]
async fn printing_a_guard_past_its_term_has_no_effect() {
    let clock = ManualClock::new();
    let locks = Flaky::on_manual_clock(&clock).locks();
    let guard = locks.lock("k").ttl(secs(10)).keepalive(Keepalive::Off).await.unwrap();
    let mut events = guard.events();
    assert!(format!("{guard:?}").contains("held: true"));
    clock.advance(secs(20));
    assert!(format!("{guard:?}").contains("held: false"));
    assert!(events.next().now_or_never().is_none());
    assert!(!guard.is_held());
    assert!(matches!(events.next().now_or_never(), Some(Some(Event::Lost(LostReason::Expired)))));
}
