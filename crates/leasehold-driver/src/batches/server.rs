use std::future::Future;
use std::time::Duration;

use leasehold_core::{AcquireRequest, Effect, Error, ReleaseEntry, RenewEntry};

use super::request::{Outcome, Request};
use crate::Deadline;

/// How requests of one kind are sent to a server.
pub trait Exchange<R: Request>: Send + Sync + 'static {
    /// Sends requests about one key each, of different keys and in key order, and returns an outcome for each. It does
    /// not wait long for what another client has locked. If it cannot begin before `begin`, none of them has acted.
    fn send(
        &self,
        requests: &[&R],
        begin: Deadline,
    ) -> impl Future<Output = Vec<Outcome<R::Reply>>> + Send;
}

/// A server that carries out requests, one exchange each.
pub trait Server: Exchange<AcquireRequest> + Exchange<RenewEntry> + Exchange<ReleaseEntry> {
    /// Closes every connection that exists now, the idle ones at once. None of them serves a later request.
    fn retire(&self);

    /// The error of an operation that had no reply within its limit.
    fn unanswered(&self, limit: Duration, effect: Effect) -> Error;
}
