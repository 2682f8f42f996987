//! What a pool needs of a driver.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use futures_util::TryFutureExt as _;
use leasehold_core::{Error, Result};

use crate::reply::ReadRows;

/// Where the connections of a pool come from: a server, or a pool of the caller's.
pub trait Source: Send + Sync + 'static {
    /// A connection.
    type Session: Session;

    /// Makes a connection, or takes one of the caller's pool, outside a transaction.
    ///
    /// # Errors
    /// Those of connecting to `server`, all without effect.
    fn connect(&self, server: &str) -> impl Future<Output = Result<Self::Session>> + Send;

    /// Ends the idle connections of the caller's pool, where that can be done.
    fn retire(&self) {}

    /// How many idle connections of the caller's pool may be older than the last [`retire`](Self::retire).
    fn idle(&self) -> usize {
        0
    }

    /// The size of the caller's pool, if all its connections are in use.
    fn all_in_use(&self) -> Option<usize> {
        None
    }
}

/// A connection of a driver, or of a caller's pool, to which it returns when it is dropped.
pub trait Session: ReadRows + Send + Sized + 'static {
    /// The driver's error.
    type Error: Send + 'static;

    /// A statement with its values.
    type Call<'c>: Send;

    /// The rows that a call returns, in one exchange.
    ///
    /// # Errors
    /// The driver's.
    fn query<'q, 'c: 'q>(
        &'q mut self,
        call: Self::Call<'c>,
    ) -> Answer<'q, Vec<Self::Row>, Self::Error>;

    /// As [`query`](Self::query), for a call that may wait for rows. Where the server can limit the wait, it gives the
    /// call up after `patience`, so that the outcome is known: `None`.
    ///
    /// # Errors
    /// The driver's.
    fn query_within<'q, 'c: 'q>(
        &'q mut self,
        call: Self::Call<'c>,
        _patience: Duration,
    ) -> Answer<'q, Option<Vec<Self::Row>>, Self::Error> {
        Box::pin(self.query(call).map_ok(Some))
    }

    /// Whether it can be used again: it has not ended, every exchange on it has, and it is outside a transaction. Nobody may
    /// receive the late reply to another, and nobody's grant may be part of a transaction that nobody commits.
    fn is_usable(&self) -> bool;

    /// Whether the server answers. The pool asks before it uses a connection that was idle. A driver that notices the
    /// end of an idle connection need not implement it.
    fn ping(&mut self) -> impl Future<Output = bool> + Send {
        async { true }
    }

    /// The error of a server that is read-only; `None` if it can be written to.
    ///
    /// # Errors
    /// Those of the query, without effect.
    fn read_only(&mut self, server: &str) -> impl Future<Output = Result<Option<Error>>> + Send;

    /// Ends it as the protocol requires.
    fn end(self) -> impl Future<Output = ()> + Send;

    /// Whether a request was rolled back because of another transaction, and may succeed later.
    fn is_conflict(error: &Self::Error) -> bool;

    /// Whether such a request may succeed if it is sent again at once.
    fn is_over(_: &Self::Error) -> bool {
        false
    }

    /// Whether the server may no longer be the primary.
    fn casts_doubt(error: &Self::Error) -> bool;

    /// The error of a request to `server`.
    fn error(server: &str, error: Self::Error) -> Error;
}

/// The answer to a call, boxed because a driver's futures are large, and each operation has them several times over.
pub type Answer<'q, T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send + 'q>>;

/// A call of a source's driver.
pub type Call<'c, S> = <<S as Source>::Session as Session>::Call<'c>;

/// A row of a source's driver.
pub type Row<S> = <<S as Source>::Session as ReadRows>::Row;

/// The error of a source's driver.
pub type Failed<S> = <<S as Source>::Session as Session>::Error;
