use std::future::Future;
use std::time::Duration;

use leasehold_core::{
    AcquireReply, AcquireRequest, Effect, Error, Key, ReleaseEntry, ReleaseOutcome, RenewEntry,
    RenewOutcome,
};

use super::request::{Outcome, Request};
use crate::Deadline;

/// The requests of a batch about one key each, of different keys, each kind in key order: acquires and releases, or one kind.
#[derive(Debug, Default)]
#[expect(clippy::exhaustive_structs, reason = "each store sends all kinds")]
pub struct Requests<'b> {
    /// Those that take keys.
    pub acquires: Vec<&'b AcquireRequest>,
    /// Those that extend leases.
    pub renewals: Vec<&'b RenewEntry>,
    /// Those that end leases.
    pub releases: Vec<&'b ReleaseEntry>,
}

impl Requests<'_> {
    /// Their keys: those of the acquires, of the renewals, and of the releases.
    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        let acquires = self.acquires.iter().map(|one| one.key());
        let renewals = self.renewals.iter().map(|one| one.key());
        acquires.chain(renewals).chain(self.releases.iter().map(|one| one.key()))
    }
}

/// How each of [`Requests`] ended, in their order.
#[derive(Debug, Default)]
#[expect(clippy::exhaustive_structs, reason = "each store answers all kinds")]
pub struct Outcomes {
    /// Of those that take keys.
    pub acquires: Vec<Outcome<AcquireReply>>,
    /// Of those that extend leases.
    pub renewals: Vec<Outcome<RenewOutcome>>,
    /// Of those that end leases.
    pub releases: Vec<Outcome<ReleaseOutcome>>,
}

impl Outcomes {
    /// Each must be sent alone.
    #[must_use]
    pub fn alone(requests: &Requests<'_>) -> Self {
        fn of<R: Request>(requests: &[&R]) -> Vec<Outcome<R::Reply>> {
            requests.iter().map(|_| Outcome::SendAlone).collect()
        }
        Self {
            acquires: of(&requests.acquires),
            renewals: of(&requests.renewals),
            releases: of(&requests.releases),
        }
    }
}

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
