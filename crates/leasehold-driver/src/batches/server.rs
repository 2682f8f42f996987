use std::future::Future;
use std::time::Duration;

use leasehold_core::{AcquireRequest, Effect, Error, ReleaseEntry, RenewEntry};

use super::request::{Outcome, Outcomes, Request, Requests};
use crate::Deadline;

/// A server that carries out batches.
pub trait Server: Send + Sync + 'static {
    /// Sends a batch, and returns an outcome for each request. It does not wait long for what another client has locked. If it
    /// cannot begin before `begin`, none of them has acted.
    fn send(
        &self,
        requests: &Requests<'_>,
        begin: Deadline,
    ) -> impl Future<Output = Outcomes> + Send;

    /// Closes every connection that exists now, the idle ones at once. None of them serves a later request.
    fn retire(&self);

    /// The error of an operation that had no reply within its limit.
    fn unanswered(&self, limit: Duration, effect: Effect) -> Error;
}

/// How requests of one kind are sent to a server whose batches have one kind.
pub trait Exchange<R: Request>: Send + Sync + 'static {
    /// As [`Server::send`].
    fn send(
        &self,
        requests: &[&R],
        begin: Deadline,
    ) -> impl Future<Output = Vec<Outcome<R::Reply>>> + Send;
}

/// Sends a batch to such a server.
pub async fn each_kind<S>(server: &S, requests: &Requests<'_>, begin: Deadline) -> Outcomes
where
    S: Exchange<AcquireRequest> + Exchange<RenewEntry> + Exchange<ReleaseEntry>,
{
    async fn of<R: Request>(
        server: &impl Exchange<R>,
        requests: &[&R],
        begin: Deadline,
    ) -> Vec<Outcome<R::Reply>> {
        if requests.is_empty() { Vec::new() } else { server.send(requests, begin).await }
    }
    Outcomes {
        acquires: of(server, &requests.acquires, begin).await,
        renewals: of(server, &requests.renewals, begin).await,
        releases: of(server, &requests.releases, begin).await,
    }
}
