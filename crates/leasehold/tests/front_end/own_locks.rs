//! F2 and F12: a caller whose own process holds the lock is told so, and a fenced one has its token.

use std::future::IntoFuture as _;

use crate::support::log::logged;
use crate::support::{Flaky, Sent, ms, secs, spawn};
use leasehold::{ErrorKind, Locker, Wait, blocking};

/// The warning with which a wait for a lease of the caller's own begins.
const ITSELF: &str = "a caller waits for a lease of its own";

/// Waits in vain, and states how often it was warned after 10 ms; the error reports that the holder is here.
async fn warned_at_once(locks: &Locker, key: &'static str, log: impl Fn() -> Vec<String>) -> usize {
    let warnings = || {
        let is_one = |line: &&String| line.contains("WARN") && line.contains(ITSELF);
        log().iter().filter(is_one).count()
    };
    let mut waits = Box::pin(locks.lock(key).wait(secs(30)).into_future());
    assert!(tokio::time::timeout(ms(10), &mut waits).await.is_err());
    let warned = warnings();
    let error = waits.await.unwrap_err();
    assert!(error.to_string().contains("its holder, of this very process, is lease"), "{error}");
    assert!(error.wait_report().unwrap().holder_is_here);
    assert_eq!(warnings(), warned, "once");
    warned
}

#[tokio::test(start_paused = true)]
async fn a_nested_lock_is_warned_of_at_once_through_any_locker_and_from_any_place_in_the_queue() {
    let store = Flaky::new();
    let locks = store.locks();
    let _guard = locks.lock("nested-1").ttl(secs(600)).await.unwrap();
    assert_eq!(warned_at_once(&locks, "nested-1", logged("nested-1")).await, 1);
    // Another `Locker` of the process.
    let _guard = locks.lock("nested-2").ttl(secs(600)).await.unwrap();
    assert_eq!(warned_at_once(&store.locks(), "nested-2", logged("nested-2")).await, 1);
    // Behind another caller.
    let locks = store.locks();
    let _guard = locks.lock("nested-3").ttl(secs(600)).await.unwrap();
    let asked = store.acquires().len();
    let first = spawn(locks.lock("nested-3").wait(Wait::Forever).into_future());
    store.until_acquires(asked + 2).await;
    tokio::time::sleep(ms(1)).await;
    assert_eq!(warned_at_once(&locks, "nested-3", logged("nested-3")).await, 1);
    first.abort();
}

#[tokio::test(start_paused = true)]
async fn callers_who_wait_for_each_other_are_not_warned() {
    let log = logged("other-");
    let store = Flaky::new();
    let locks = store.locks();
    let keeps = locks.clone();
    let (done, keeping) = tokio::sync::oneshot::channel::<()>();
    let holder = spawn(async move {
        let guard = keeps.lock("other-task").ttl(secs(600)).await.unwrap();
        drop(keeping.await);
        guard.release().await.unwrap();
    });
    store.until_acquires(1).await;
    tokio::time::sleep(ms(1)).await;
    assert_eq!(warned_at_once(&locks, "other-task", logged("other-task")).await, 0);
    done.send(()).unwrap();
    holder.await.unwrap();
    // A lease that is being released, and one that another process continues.
    drop(locks.lock("other-dropped").await.unwrap());
    locks.lock("other-dropped").await.unwrap().release().await.unwrap();
    locks.lock("other-detached").ttl(secs(600)).await.unwrap().detach();
    let error = locks.lock("other-detached").wait(ms(10)).await.unwrap_err();
    assert!(error.to_string().contains("its holder is lease"), "{error}");
    assert!(!error.wait_report().unwrap().holder_is_here);
    // One try waits for nothing.
    let _guard = locks.lock("other-try").await.unwrap();
    assert!(locks.try_lock("other-try").await.unwrap().is_none());
    let log = log();
    assert!(!log.iter().any(|line| line.contains(ITSELF)), "{log:?}");
}

#[test]
fn a_blocking_caller_is_warned_too() {
    let log = logged("nested-blocking");
    let locks = blocking::Locker::new(leasehold::LocalStore::new());
    let _guard = locks.lock("nested-blocking").take().unwrap();
    let error = locks.lock("nested-blocking").wait(ms(20)).take().unwrap_err();
    assert!(error.to_string().contains("of this very process"), "{error}");
    let log = log();
    assert_eq!(log.iter().filter(|line| line.contains(ITSELF)).count(), 1, "{log:?}");
}

#[tokio::test(start_paused = true)]
async fn a_fenced_lock_has_its_token_or_is_refused_before_anything_is_sent() {
    let locks = Flaky::new().locks();
    let guard = locks.lock("k").fenced().await.unwrap();
    assert_eq!(Some(guard.fencing_token().unwrap()), guard.token());
    let leadership = locks.election("n").fenced().campaign().await.unwrap();
    assert_eq!(Some(leadership.fencing_token().unwrap()), leadership.token());

    let store = Flaky::that_can(|can| can.tokens = false);
    let error = store.locks().lock("k").fenced().await.unwrap_err();
    assert_eq!((error.kind(), store.log()), (ErrorKind::Unsupported, Vec::<Sent>::new()));
    let mut lease = locks.lock("j").await.unwrap().detach();
    lease.token = None;
    let error = locks.adopt(lease).await.unwrap().fencing_token().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}
