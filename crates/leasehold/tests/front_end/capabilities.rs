//! C11 and F8: what a store cannot do is refused before anything is sent.

use crate::support::{Flaky, secs};
use leasehold::{ErrorKind, Level, LockRequest, Ttl};

/// The lock is `Unsupported` on a store without the feature that `lack` removes, and works on one that has it.
async fn needs(
    lack: impl FnOnce(&mut leasehold::inspect::Capabilities),
    fragment: &str,
    lock: impl Fn(&leasehold::Locker) -> LockRequest,
) {
    drop(lock(&Flaky::new().locks()).await.expect("a store that can"));
    let store = Flaky::that_can(lack);
    let error = lock(&store.locks()).await.expect_err("a store that cannot");
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains(fragment), "{error}");
    assert_eq!(store.log(), []);
}

#[tokio::test(start_paused = true)]
async fn many_keys_are_never_imitated() {
    needs(|can| can.many_keys = false, "several keys", |locks| locks.lock_all(["a", "b"])).await;
    needs(|can| can.max_claims = Some(2), "at most 2", |l| l.lock_all(["a", "b", "c"])).await;
}

#[tokio::test(start_paused = true)]
async fn modes_tokens_and_terms_are_never_weakened() {
    needs(|can| can.shared = false, "shared locks", |locks| locks.lock("k").shared()).await;
    needs(|can| can.shared_limit = false, "limit on shared", |l| l.lock("k").permits(2)).await;
    needs(|can| can.tokens = false, "fencing tokens", |locks| locks.lock("k").fenced()).await;
    needs(|can| can.never = false, "without end", |locks| locks.lock("k").ttl(Ttl::NEVER)).await;
    needs(|can| can.keep = false, "min_hold", |locks| locks.lock("k").min_hold(secs(1))).await;
    needs(|can| can.max_key_bytes = 3, "at most 3", |locks| locks.lock("long")).await;
    needs(|can| can.max_term = secs(60), "10ms to 60s", |locks| locks.lock("k").ttl(secs(61)))
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_ttl_below_the_stores_minimum_is_raised_and_shown() {
    let store = Flaky::that_can(|can| can.min_term = secs(2));
    let guard = store.locks().lock("k").ttl(secs(1)).await.unwrap();
    assert_eq!(guard.lease().ttl, Ttl::new(secs(2)).unwrap());
    assert!(store.records("k").await[0].remaining() > leasehold::Remaining::For(secs(1)));
}

#[tokio::test(start_paused = true)]
async fn a_lock_is_refused_below_the_level_that_it_requires() {
    let store = Flaky::new();
    let locks = store.locks();
    assert_eq!(
        locks.require(Level::Lease).unwrap_err().kind(),
        ErrorKind::Unsupported,
        "unchecked"
    );
    drop(locks.lock("k").require(Level::Fenced).await.expect("the local store reaches L2"));
    locks.require(Level::Fenced).unwrap();
    let sent = store.acquires().len();
    let election = locks.election("n").require(Level::FencedWrite);
    for error in [
        locks.lock("k").require(Level::FencedWrite).await.unwrap_err(),
        locks.require(Level::FencedWrite).unwrap_err(),
        election.campaign().await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        let fragment = "reaches L2 fenced, and L3 fenced write is required";
        assert!(error.to_string().contains(fragment), "{error}");
    }
    assert_eq!(store.acquires().len(), sent, "nothing is acquired");
}
