//! F13: expiry, loss and time-outs are tested without sleeping, as a user of the library would.

use std::sync::Arc;
use std::time::Duration;

use leasehold::store::Clock;
use leasehold::{ErrorKind, Keepalive, LocalStore, Locker, LostReason, ManualClock, Wait};

const SECOND: Duration = Duration::from_secs(1);

fn locks(clock: &ManualClock) -> Locker {
    let clock = Arc::new(clock.clone());
    Locker::builder(LocalStore::with_clock(clock.clone())).clock(clock).build()
}

#[tokio::test]
async fn a_lease_is_lost_by_the_clock_of_the_test() {
    let clock = ManualClock::new();
    let locks = locks(&clock);
    let guard = locks.lock("k").ttl(30 * SECOND).keepalive(Keepalive::Off).await.unwrap();
    clock.advance(29 * SECOND);
    assert!(guard.is_held());
    clock.advance(SECOND);
    assert!(!guard.is_held());
    assert_eq!(guard.lost().await, LostReason::Expired);
    assert!(locks.lock("k").await.unwrap().token() > guard.token());
}

#[tokio::test]
async fn run_fails_if_the_lease_ended_while_its_work_completed() {
    let clock = ManualClock::new();
    let guard = locks(&clock).lock("k").ttl(30 * SECOND).await.unwrap();
    let error = guard.run(async { clock.advance(30 * SECOND) }).await.unwrap_err();
    assert_eq!(error.lost_reason(), Some(&LostReason::Expired));
}

#[tokio::test]
async fn a_lease_is_renewed_by_the_clock() {
    let clock = ManualClock::new();
    let locks = locks(&clock);
    let guard = locks.lock("k").ttl(30 * SECOND).keepalive(Keepalive::Every(10 * SECOND)).await;
    let guard = guard.unwrap();
    let mut events = guard.events();
    for _ in 0..10 {
        clock.slept_until(clock.now() + 10 * SECOND).await;
        clock.advance(10 * SECOND);
        assert!(matches!(events.next().await, Some(leasehold::Event::Renewed { .. })));
    }
    assert!(guard.is_held());
}

#[tokio::test]
async fn a_wait_times_out_by_the_clock_of_the_test() {
    let clock = ManualClock::new();
    let locks = locks(&clock);
    let _holder = locks.lock("k").await.unwrap();
    let waiting = locks.lock("k").wait(Wait::UpTo(5 * SECOND));
    let at = clock.now() + 5 * SECOND;
    let (error, ()) = tokio::join!(waiting.into_future(), async {
        clock.slept_until(at).await;
        clock.advance(5 * SECOND);
    });
    let error = error.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert_eq!(error.wait_report().unwrap().waited, 5 * SECOND);
}
