//! What each server has of its own.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{
    AcquireRequest, EvictTarget, Health, Key, Reason, ReleaseEntry, RenewEntry, Result, Wakeups,
};
use leasehold_driver::Deadline;
use leasehold_driver::batches::Requests;

use crate::connection::Pool;
use crate::expired::{Purge, Scan};
use crate::position::Position;
use crate::request::Request;
use crate::session::{Call, Row, Source};

/// How the tries of a request that may have to wait for a row follow one another.
pub trait Tries: Send {
    /// Waits until a try may use a connection.
    ///
    /// # Errors
    /// Fails without effect if none may be used before the deadline.
    fn begin(&mut self, _: Deadline) -> impl Future<Output = Result<()>> + Send {
        async { Ok(()) }
    }

    /// How long a try may wait for a row, so that its answer arrives before `until`.
    fn patience(&self, until: Deadline) -> Duration {
        until.left()
    }

    /// Waits after a try whose row was locked, until another try makes sense. Returns false if none does before
    /// `until`, or if the last try has already had all the time.
    fn pause(&mut self, until: Deadline, was_last: bool) -> impl Future<Output = bool> + Send;
}

/// A client of a SQL server.
pub trait Client: Send + Sync + 'static {
    /// Where its connections come from.
    type Source: Source;

    /// Whether [`one`](Statements::one) may return no row, which means that it did not act.
    const ONE_MAY_BE_UNDECIDED: bool = false;

    /// Its connections.
    fn pool(&self) -> &Arc<Pool<Self::Source>>;

    /// The tries of a request that takes keys, or of another one.
    fn tries(&self, takes: bool) -> impl Tries + '_;
}

/// The statements of requests of one kind.
pub trait Statements<R: Request>: Client {
    /// For an exclusive lease of one key, without a long wait for its row.
    fn one<'c>(&'c self, request: &'c R) -> Call<'c, Self::Source>;

    /// For any lease. Waits at most `patience` for a row, where the server can limit the wait.
    fn any<'c>(&'c self, request: &'c R, patience: Duration) -> Call<'c, Self::Source>;
}

/// The statements about records of any lease.
pub trait Records: Client {
    /// All rows of these keys with a lease, each with the server's clock.
    fn look_up<'c>(&'c self, keys: &'c [String]) -> Call<'c, Self::Source>;

    /// At most `most` rows with a lease after a position, each with the server's clock.
    fn page<'c>(&'c self, after: &'c Position, most: usize) -> Call<'c, Self::Source>;

    /// Ends exactly these records. Waits at most `patience` for a row, where the server can limit the wait.
    fn evict<'c>(&'c self, these: Eviction<'c>, patience: Duration) -> Call<'c, Self::Source>;

    /// The rows that may be purged, and always the last row that was read. The columns: `o_more`, the row is the last
    /// and more may follow; `o_over`, its lease is over.
    fn scan<'c>(&'c self, these: Scan<'c>) -> Call<'c, Self::Source>;

    /// Removes what is over.
    fn purge<'c>(&'c self, purge: &'c Purge) -> Call<'c, Self::Source>;

    /// The positions that an eviction or a purge returns, counted from 1; `None` if another transaction holds a row.
    ///
    /// # Errors
    /// `Unexpected` for other rows.
    fn positions(&self, rows: &[Row<Self::Source>]) -> Result<Option<Vec<i64>>>;
}

/// Records that an eviction names.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Eviction<'e> {
    /// The records, of which each has an id.
    pub targets: &'e [EvictTarget],
    /// The reason that their holders get.
    pub reason: Option<&'e Reason>,
}

/// A SQL server: its statements, what its rows and errors mean, and how it wakes waiters.
pub trait Dialect:
    Statements<AcquireRequest> + Statements<RenewEntry> + Statements<ReleaseEntry> + Records + Sized
{
    /// The name of the store, as in its URL.
    const NAME: &'static str;

    /// For exclusive leases of one key each, in one transaction that waits for no row.
    fn batch<'c>(&'c self, requests: &Requests<'c>) -> Call<'c, Self::Source>;

    /// Whether a batch may have acquires and releases: an acquire in it waits for no other client, or not for long.
    fn mixes(&self) -> bool {
        true
    }

    /// Whether a batch whose first acquire is this one may have another.
    fn may_join(_first: &AcquireRequest, _other: &AcquireRequest) -> bool {
        true
    }

    /// Connects to the server that a URL names.
    fn connect(url: &str) -> impl Future<Output = Result<Self>> + Send;

    /// What the server guarantees now.
    fn check(&self) -> impl Future<Output = Result<Health>> + Send;

    /// Creates its objects.
    fn prepare(&self) -> impl Future<Output = Result<()>> + Send;

    /// Whether the server can wake waiters.
    fn wakes(&self) -> bool {
        false
    }

    /// Whether a waiter of this process waits for one of the keys. Its next try must see what other clients did
    /// before, so it is sent alone.
    fn is_awaited(&self, _: &AcquireRequest) -> bool {
        false
    }

    /// How soon a waiter must try again while nothing can wake it.
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
}
