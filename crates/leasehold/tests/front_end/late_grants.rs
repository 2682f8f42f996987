//! F6 and C3: a grant whose caller is gone, or whose time has passed, is released, whenever it comes.

use std::future::poll_fn;
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use crate::cancel::poll_then_drop;
use crate::support::{Fault, Faulty, Flaky, Sent, secs};
use leasehold::store::{Clock, TokioClock};
use leasehold::{ErrorKind, LeaseId, Locker, Ttl, Wait, WaitCause};

/// Such a long term that no test sees its end: a free key was released.
const LONG: Duration = Duration::from_secs(24 * 3_600);

/// Ends when a release of `id` was sent, and checks that it freed `key`.
async fn until_released(store: &Flaky, id: &LeaseId, key: &str) {
    store.until(|log| log.contains(&Sent::Release(vec![id.clone()]))).await;
    store.until_free(key).await;
}

#[tokio::test(start_paused = true)]
async fn a_given_up_request_is_released_at_once_and_again_when_it_is_granted() {
    let store = Flaky::new();
    let locks = store.locks();
    store.on_acquire([Fault::SlowRequest(secs(20))]);
    let started = store.now();
    locks.lock("k").ttl(LONG).wait(secs(1)).await.unwrap_err();
    let id = store.acquires().remove(0);
    // It may have been granted, but the reply is lost: 10 s after its caller went away it is released.
    until_released(&store, &id, "k").await;
    assert_eq!((store.now() - started, store.released(&id)), (secs(11), 1));
    store.until(|log| log.iter().filter(|sent| is_release(sent, &id)).count() == 2).await;
    assert_eq!(store.now() - started, secs(20), "as soon as it was granted");
    store.until_free("k").await;
}

fn is_release(sent: &Sent, id: &LeaseId) -> bool {
    matches!(sent, Sent::Release(ids) if ids.contains(id))
}

#[tokio::test(start_paused = true)]
async fn a_late_grant_is_released_for_as_long_as_it_may_live() {
    let store = Flaky::new();
    let locks = store.locks();
    store.on_acquire([Fault::SlowRequest(secs(40))]);
    // The first is sent beside the request, the second after its grant, later than its term would have lasted.
    store.on_release([Fault::None, Fault::Unreachable]);
    locks.lock("k").ttl(secs(30)).wait(secs(1)).await.unwrap_err();
    tokio::time::sleep(secs(40)).await;
    assert!(store.is_free("k").await, "released at the second attempt, 29 s before its end");
    assert_eq!(store.released(&store.acquires()[0]), 3);
}

#[tokio::test(start_paused = true)]
async fn an_unanswered_request_is_released_for_as_long_as_it_may_live() {
    let store = Flaky::new();
    let clock = Arc::new(TokioClock::new());
    let locks = Locker::builder(Faulty(store.clone())).clock(clock).timeout(secs(60)).build();
    // Granted after 58 s, until 88 s; after 61 s its answer is no longer awaited.
    store.on_acquire([Fault::Unheard(secs(58))]);
    store.on_release([Fault::Unreachable]);
    let acquire = locks.lock("k").ttl(secs(30)).into_future();
    tokio::time::timeout(secs(1), acquire).await.unwrap_err();
    tokio::time::sleep(secs(59)).await;
    assert!(!store.is_free("k").await);
    tokio::time::sleep(secs(2)).await;
    assert!(store.is_free("k").await, "released at the second attempt");
}

#[tokio::test(start_paused = true)]
async fn close_does_not_wait_for_an_answer_that_nothing_needs() {
    let store = Flaky::new();
    let locks = store.locks();
    store.on_acquire([Fault::Hung]);
    locks.lock("k").wait(secs(1)).await.unwrap_err();
    let since = store.now();
    locks.close(LONG).await.unwrap();
    assert_eq!(store.now() - since, secs(10), "the release beside it was answered");
}

#[tokio::test(start_paused = true)]
async fn an_own_id_waits_until_a_hung_request_is_no_longer_awaited() {
    let store = Flaky::new();
    let locks = store.locks();
    store.on_acquire([Fault::Hung]);
    locks.lock("k").lease_id("w").wait(secs(1)).await.unwrap_err();
    let since = store.now();
    let guard = locks.lock("k").lease_id("w").ttl(LONG).wait(LONG).await.unwrap();
    assert_eq!(store.now() - since, secs(70), "10 s for an answer, and 60 s beside the release");
    store.on_release([Fault::Hung]);
    drop(guard);
    let since = store.now();
    drop(locks.lock("k").lease_id("w").wait(LONG).await.unwrap());
    let waited = store.now() - since;
    assert!(waited >= secs(70) && waited < secs(71), "the same for a release: {waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_release_is_given_up_when_nothing_can_be_left() {
    let store = Flaky::new();
    let locks = store.locks();
    let guard = locks.lock("k").ttl(secs(30)).await.unwrap();
    store.down(Fault::LostRequest);
    drop(guard);
    let since = store.now();
    locks.close(LONG).await.unwrap();
    let took = store.now() - since;
    assert!(took >= secs(30) && took <= secs(35), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_later_answer_does_not_hide_a_lost_reply() {
    let store = Flaky::new();
    store.on_acquire([Fault::LostReply, Fault::Unreachable]);
    let error = store.locks().lock("k").ttl(LONG).wait(Wait::No).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let id = store.acquires().remove(0);
    until_released(&store, &id, "k").await;
}

#[tokio::test(start_paused = true)]
async fn a_try_that_ends_between_two_requests_reports_the_stores_answer() {
    let store = Flaky::new();
    let locks = store.locks();
    locks.check().await.unwrap();
    store.down(Fault::LostRequest);
    let since = store.now();
    let error = locks.lock("k").wait(Wait::No).await.unwrap_err();
    assert!(error.to_string().contains("the network failed"), "{error}");
    assert!(store.now() - since < secs(10), "nothing more would have been sent");
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_came_too_late_keeps_no_key_for_its_lock_delay() {
    let store = Flaky::new();
    store.on_acquire([Fault::SlowReply(secs(2))]);
    let lock = store.locks().lock("k").ttl(secs(1)).lock_delay(LONG);
    let error = lock.wait(Wait::No).await.unwrap_err();
    assert!(matches!(error.wait_report().unwrap().cause, WaitCause::GrantedTooLate), "{error}");
    let id = store.acquires().remove(0);
    until_released(&store, &id, "k").await;
}

#[tokio::test(start_paused = true)]
async fn a_lease_broken_before_it_was_made_endless_is_not_handed_out() {
    let store = Flaky::new();
    store.on_renew([Fault::SlowRequest(secs(2))]);
    let lock = store.locks().lock("k").ttl(Ttl::NEVER).wait(secs(60)).into_future();
    let lock = crate::support::spawn(lock);
    store.until(|log| log.iter().any(|sent| matches!(sent, Sent::Renew(_)))).await;
    store.evict("k", "x").await;
    let guard = lock.await.unwrap().unwrap();
    assert!(guard.is_held() && guard.verify().await.unwrap());
    assert_eq!(store.acquires().len(), 2);
}

/// The caller's own clock, one of whose sleeps fails.
#[derive(Debug)]
struct Frail {
    clock: TokioClock,
    /// After this many that succeed.
    next: Mutex<Option<(usize, Sleep)>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sleep {
    /// It panics when a sleep is requested.
    NotAtAll,
    /// It panics when it is polled again.
    NotAgain,
}

impl Frail {
    /// A clock, and a `Locker` whose task runs already.
    async fn locks(store: &Flaky) -> (Arc<Self>, Locker) {
        let clock = Arc::new(Self { clock: TokioClock::new(), next: Mutex::default() });
        let locks = Locker::builder(Faulty(store.clone())).clock(clock.clone()).build();
        locks.lock("first").await.unwrap().release().await.unwrap();
        tokio::time::sleep(secs(100)).await;
        (clock, locks)
    }
}

impl Clock for Frail {
    fn now(&self) -> Duration {
        self.clock.now()
    }

    fn wall_micros(&self) -> u64 {
        self.clock.wall_micros()
    }

    fn sleep_until(&self, at: Duration) -> leasehold_core::BoxFuture<'static, ()> {
        let mut next = self.next.lock().unwrap();
        let fault = match next.take() {
            Some((0, sleep)) => Some(sleep),
            later => {
                *next = later.map(|(left, sleep)| (left - 1, sleep));
                None
            }
        };
        drop(next);
        match fault {
            None => self.clock.sleep_until(at),
            Some(Sleep::NotAtAll) => planted(),
            Some(Sleep::NotAgain) => {
                let mut looked_at = false;
                Box::pin(poll_fn(move |_| {
                    if std::mem::replace(&mut looked_at, true) { planted() } else { Poll::Pending }
                }))
            }
        }
    }
}

/// A panic that no hook prints.
fn planted() -> ! {
    resume_unwind(Box::new("planted"))
}

#[tokio::test(start_paused = true)]
async fn a_lease_left_by_a_panic_of_the_clock_is_released() {
    let store = Flaky::new();
    let (clock, locks) = Frail::locks(&store).await;
    for sleep in [Sleep::NotAtAll, Sleep::NotAgain] {
        // Granted, and in the pause before the same request again.
        store.on_acquire([Fault::LostReply]);
        store.on_release([Fault::Unreachable]);
        // The first is that of the try's limit.
        *clock.next.lock().unwrap() = Some((1, sleep));
        let acquire = locks.lock("k").ttl(LONG).into_future();
        match sleep {
            Sleep::NotAtAll => {
                assert!(crate::support::spawn(acquire).await.unwrap_err().is_panic());
            }
            Sleep::NotAgain => assert!(!poll_then_drop(acquire, 1)),
        }
        let id = store.acquires().pop().unwrap();
        until_released(&store, &id, "k").await;
        assert_eq!(store.released(&id), 2, "{sleep:?}: sent again where it fails");
    }
    assert_eq!(store.acquires().len(), 3, "nothing was sent again");
    let other = locks.lock("other").ttl(secs(9)).await.unwrap();
    tokio::time::sleep(secs(100)).await;
    assert!(other.is_held(), "the Keeper lives");
}
