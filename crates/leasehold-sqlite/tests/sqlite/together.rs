//! Writes that wait behind another share one commit.

use std::sync::{Arc, mpsc};

use crate::common::{
    Hanging, SECOND, Workplace, acquire, count, grant, key, refuse, release, request,
};
use futures_util::FutureExt as _;
use futures_util::future::join_all;
use leasehold_core::{AcquireReply, Effect, ErrorKind, ReleaseOutcome, Result};
use leasehold_sqlite::SqliteStore;

/// A store whose first operation hangs, so that others wait behind it.
struct Crowd {
    place: Workplace,
    clock: Arc<Hanging>,
    hung: mpsc::Receiver<()>,
    store: SqliteStore,
}

impl Crowd {
    async fn new() -> Self {
        let place = Workplace::new();
        let (clock, hung) = Hanging::new(&place.clock);
        let store = place.config().clock(Arc::clone(&clock) as _).connect().await.unwrap();
        Self { place, clock, hung, store }
    }

    /// Lets these operations wait behind a hanging one, and returns their outcomes and the number of transactions.
    async fn act<T>(&self, operations: Vec<impl Future<Output = T>>) -> (Vec<T>, usize) {
        let mut first = Box::pin(acquire(&self.store, "first", "first"));
        self.clock.hang();
        let before = self.clock.transactions();
        assert!((&mut first).now_or_never().is_none());
        self.hung.recv().unwrap();
        let mut all = Box::pin(join_all(operations));
        assert!((&mut all).now_or_never().is_none());
        self.clock.resume();
        first.await.unwrap();
        (all.await, self.clock.transactions() - before - 1)
    }
}

fn outcome(reply: Result<AcquireReply>) -> &'static str {
    match reply {
        Ok(AcquireReply::Granted(granted)) if granted.fresh => "granted",
        Ok(AcquireReply::Granted(_)) => "confirmed",
        Ok(AcquireReply::Refused(_)) => "refused",
        Err(error) if error.effect() == Effect::NotApplied => match error.kind() {
            ErrorKind::Corrupt => "corrupt",
            ErrorKind::Unavailable => "unavailable",
            _ => "another failure",
        },
        Err(_) => "unknown",
    }
}

#[tokio::test]
async fn each_member_has_its_own_outcome_also_for_one_key() {
    let crowd = Crowd::new().await;
    let store = &crowd.store;
    let wanted = [("a", "k"), ("b", "k"), ("a", "k"), ("c", "other")];
    let all = wanted.iter().map(|(id, key)| acquire(store, id, key)).collect();
    let (replies, transactions) = crowd.act(all).await;
    let replies: Vec<_> = replies.into_iter().map(outcome).collect();
    assert_eq!(replies, ["granted", "refused", "confirmed", "granted"]);
    assert_eq!(transactions, 1);
    let (ended, transactions) = crowd
        .act(vec![release(store, "a", "k"), release(store, "a", "k"), release(store, "b", "other")])
        .await;
    assert!(
        matches!(
            ended[..],
            [ReleaseOutcome::Released, ReleaseOutcome::NotHeld, ReleaseOutcome::NotHeld]
        ),
        "{ended:?}"
    );
    assert_eq!(transactions, 1);
    grant(store, "b", "k").await;
}

#[tokio::test]
async fn a_member_that_fails_fails_alone() {
    let crowd = Crowd::new().await;
    let store = &crowd.store;
    grant(store, "z", "damaged").await;
    crowd.place.change(
        "PRAGMA ignore_check_constraints = ON;
         UPDATE leasehold_holders SET token = -1 WHERE key = 'damaged'",
    );
    let wanted = [("a", "k"), ("b", "damaged"), ("c", "other"), ("d", "k")];
    let all = wanted.iter().map(|(id, key)| acquire(store, id, key)).collect();
    let (replies, transactions) = crowd.act(all).await;
    let replies: Vec<_> = replies.into_iter().map(outcome).collect();
    assert_eq!(replies, ["granted", "corrupt", "granted", "refused"]);
    assert_eq!(transactions, 5, "one together, and one each");
}

#[tokio::test]
async fn a_member_whose_caller_has_gone_acts_and_disturbs_nobody() {
    let crowd = Crowd::new().await;
    let store = &crowd.store;
    let gone = request("gone", "k");
    let mut dropped = Some(Box::pin(leasehold_core::Store::acquire(store, &gone)));
    let all = vec![
        async {
            let sent = dropped.take().map(|mut dropped| (&mut dropped).now_or_never().is_none());
            assert_eq!(sent, Some(true));
            None
        }
        .boxed_local(),
        async { Some(acquire(store, "a", "other").await) }.boxed_local(),
    ];
    let (mut replies, transactions) = crowd.act(all).await;
    assert_eq!((replies.pop().flatten().map(outcome), transactions), (Some("granted"), 1));
    let refused = refuse(store, "b", "k").await;
    assert_eq!(refused.key, key("k"));
}

#[tokio::test]
async fn a_member_that_is_late_does_not_act_and_delays_nobody() {
    let crowd = Crowd::new().await;
    let hasty = crowd.place.config().clock(Arc::clone(&crowd.clock) as _);
    // The limit is that of the store, so time passes while they wait: the first of them is sent before.
    let store = hasty.timeout(2 * SECOND).connect().await.unwrap();
    let mut first = Box::pin(acquire(&store, "first", "first"));
    crowd.clock.hang();
    assert!((&mut first).now_or_never().is_none());
    crowd.hung.recv().unwrap();
    let mut early = Box::pin(acquire(&store, "a", "k"));
    assert!((&mut early).now_or_never().is_none());
    crowd.place.clock.advance(2 * SECOND);
    let mut later = Box::pin(acquire(&store, "b", "k"));
    assert!((&mut later).now_or_never().is_none());
    crowd.clock.resume();
    assert_eq!(outcome(first.await), "granted");
    assert_eq!(outcome(early.await), "unavailable");
    assert_eq!(outcome(later.await), "granted");
    assert_eq!(count(&crowd.place.raw(), "leasehold_holders"), 2);
}
