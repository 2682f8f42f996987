//! Requests about one lock are sent one after the other, each in a transaction of its own.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use leasehold_core::{
    AcquireReply, AcquireRequest, Effect, Error, ReleaseEntry, ReleaseOutcome, ReleaseRequest,
    RenewEntry, RenewOutcome, RenewRequest, Result,
};
use leasehold_driver::Deadline;
use leasehold_driver::batches::{
    Exchange, Outcome, Outcomes, Request, Requests, Server, each_kind,
};

use super::{Inner, SpindleStore};
use crate::client::Times;

/// Carries out requests in their turns.
pub(super) struct Turns(pub(super) Arc<Inner>);

/// A request about one lock.
pub(super) trait OfLock: Request {
    /// Carries it out in a transaction that begins and ends in time.
    fn carry_out(
        &self,
        by: &Arc<Inner>,
        times: Times,
    ) -> impl Future<Output = Result<Self::Reply>> + Send;
}

impl OfLock for AcquireRequest {
    async fn carry_out(&self, by: &Arc<Inner>, times: Times) -> Result<AcquireReply> {
        by.acquire(self, times).await
    }
}

impl OfLock for RenewEntry {
    async fn carry_out(&self, by: &Arc<Inner>, times: Times) -> Result<RenewOutcome> {
        let request = RenewRequest::new(vec![self.clone()]);
        by.change(&by.client.renewals, times, self.key(), move |lock, table, now| {
            lock.decide(table, now, None, |rules| Ok(rules.renew(&request, now).leases.remove(0)))
        })
        .await
    }
}

impl OfLock for ReleaseEntry {
    async fn carry_out(&self, by: &Arc<Inner>, times: Times) -> Result<ReleaseOutcome> {
        let request = ReleaseRequest::new(vec![self.clone()]);
        by.change(&by.client.requests, times, self.key(), move |lock, table, now| {
            lock.decide(table, now, None, |rules| Ok(rules.release(&request, now).leases.remove(0)))
        })
        .await
    }
}

impl Server for Turns {
    async fn send(&self, requests: &Requests<'_>, begin: Deadline) -> Outcomes {
        each_kind(self, requests, begin).await
    }

    /// A client that answers nothing is retired when the time of its request is over.
    fn retire(&self) {}

    fn unanswered(&self, limit: Duration, effect: Effect) -> Error {
        self.0.client.unanswered(limit, effect)
    }
}

impl<R: OfLock> Exchange<R> for Turns {
    async fn send(&self, requests: &[&R], begin: Deadline) -> Vec<Outcome<R::Reply>> {
        let times = Times { begin, end: self.0.client.deadline(), gives_way: false };
        let sent = requests.iter().map(|request| request.carry_out(&self.0, times));
        join_all(sent).await.into_iter().map(Outcome::Done).collect()
    }
}

impl SpindleStore {
    /// Sends requests, each in its turn.
    pub(super) async fn send<R: OfLock>(
        &self,
        requests: impl IntoIterator<Item = R>,
    ) -> Vec<Result<R::Reply>> {
        let until = self.inner.client.deadline();
        let alone = |request: Arc<R>| {
            let inner = Arc::clone(&self.inner);
            async move { request.carry_out(&inner, Times::until(until)).await }
        };
        self.turns.carry_out(requests, until, |_| true, alone).await
    }
}
