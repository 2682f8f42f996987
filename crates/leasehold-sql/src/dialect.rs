//! What each server has of its own.

use std::future::Future;
use std::time::Duration;

use leasehold_core::{
    AcquireRequest, EvictTarget, Health, Key, Reason, ReleaseEntry, RenewEntry, Result, Wakeups,
};
use leasehold_driver::Deadline;

use crate::expired::{Purge, ScannedRow};
use crate::pool::Pool;
use crate::position::Position;
use crate::request::{Outcome, Request};
use crate::session::Source;
use crate::stored::Stored;

/// How requests of one kind are sent to a server.
pub trait Exchange<R: Request>: Send + Sync + 'static {
    /// Sends a request about an exclusive lease of one key, on a connection that is reserved for batches, without a long
    /// wait for its row. It did not act if there was no connection until `begin`.
    fn send(&self, request: &R, begin: Deadline) -> impl Future<Output = Outcome<R::Reply>> + Send;

    /// Sends several such requests, of different keys, in key order, in one transaction that waits for no row. An outcome
    /// for each. None of them acted if there was no connection until `begin`.
    fn send_batch(
        &self,
        requests: &[&R],
        begin: Deadline,
    ) -> impl Future<Output = Vec<Outcome<R::Reply>>> + Send;

    /// Sends any request, on a connection of its own, and tries until then if its rows are locked.
    fn send_alone(
        &self,
        request: &R,
        until: Deadline,
    ) -> impl Future<Output = Outcome<R::Reply>> + Send;
}

/// A server that carries out requests, one exchange each.
pub(crate) trait Server:
    Exchange<AcquireRequest> + Exchange<RenewEntry> + Exchange<ReleaseEntry>
{
    /// How many batches may be under way at a time: as many connections are reserved.
    fn lanes(&self) -> usize;

    /// The time limit of an operation.
    fn timeout(&self) -> Duration;

    /// Closes every connection that was made before now, the idle ones at once: none of them serves a request that is sent
    /// from now on.
    fn retire(&self);
}

/// A SQL server: its statements, what its rows and errors mean, and how it wakes waiters.
pub trait Dialect:
    Exchange<AcquireRequest> + Exchange<RenewEntry> + Exchange<ReleaseEntry> + Sized
{
    /// The name of the store, as in its URL.
    const NAME: &'static str;

    /// Where its connections come from.
    type Source: Source;

    /// Connects to the server that a URL names.
    fn connect(url: &str) -> impl Future<Output = Result<Self>> + Send;

    /// Its connections.
    fn pool(&self) -> &Pool<Self::Source>;

    /// What the server guarantees now.
    fn check(&self) -> impl Future<Output = Result<Health>> + Send;

    /// Creates its objects.
    fn prepare(&self) -> impl Future<Output = Result<()>> + Send;

    /// Whether the server can wake waiters.
    fn wakes(&self) -> bool {
        false
    }

    /// Whether somebody here waits for one of the keys: the next try must see what others did before, and goes in no batch.
    fn is_awaited(&self, _: &AcquireRequest) -> bool {
        false
    }

    /// How soon a waiter must try again because nothing can wake it at the moment.
    fn poll_within(&self) -> Option<Duration> {
        None
    }

    /// As [`Store::subscribe`](leasehold_core::Store::subscribe).
    fn subscribe(&self, _: &[Key]) -> impl Future<Output = Result<Wakeups>> + Send {
        async { Ok(Wakeups::none()) }
    }

    /// As [`Store::close`](leasehold_core::Store::close).
    fn close(&self) -> impl Future<Output = ()> + Send {
        self.pool().close(self.pool().deadline())
    }

    /// All rows of these keys with a lease, each with the server's clock.
    fn look_up(&self, keys: &[String]) -> impl Future<Output = Result<Vec<(i64, Stored)>>> + Send;

    /// At most `most` rows with a lease after a position, each with the server's clock; and whether there were as many.
    fn page(
        &self,
        after: &Position,
        most: usize,
    ) -> impl Future<Output = Result<(Vec<(i64, Stored)>, bool)>> + Send;

    /// Ends exactly these records, of which each has an id, and returns the positions of those that were there, counted
    /// from 1.
    fn evict(
        &self,
        targets: &[EvictTarget],
        reason: Option<&Reason>,
    ) -> impl Future<Output = Result<Vec<i64>>> + Send;

    /// What may be purged among the next `most` rows after a position, or of these keys, and the last of these rows in any
    /// case.
    fn scan(
        &self,
        keys: Option<&[String]>,
        after: &Position,
        most: usize,
    ) -> impl Future<Output = Result<Vec<ScannedRow>>> + Send;

    /// Removes what is over, and returns the positions of what is gone, counted from 1: of records as they are, of
    /// counters below zero.
    fn purge(&self, purge: &Purge) -> impl Future<Output = Result<Vec<i64>>> + Send;
}

impl<D: Dialect> Server for D {
    fn lanes(&self) -> usize {
        self.pool().lanes()
    }

    fn timeout(&self) -> Duration {
        self.pool().timeout()
    }

    fn retire(&self) {
        self.pool().retire();
    }
}
