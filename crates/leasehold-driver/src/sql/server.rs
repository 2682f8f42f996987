use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Effect, Error, EvictTarget, Reason, Result};

use super::entry::{Done, Entry};
use super::old::{Old, Purge};
use super::position::Position;
use super::stored::Stored;
use crate::Deadline;

/// The statements of a server, one exchange each.
pub trait SqlServer: Send + Sync + 'static {
    /// How many batches of requests that travel together may be under way at a time: as many connections are reserved.
    fn lanes(&self) -> usize;

    /// A connection stalls, and perhaps all that were made before: none of them serves a request that is sent from now on.
    fn distrust(&self);

    /// Carries out an entry about an exclusive lease of one key, on the connection that is reserved for what travels
    /// together, without a long wait for its row. `None` if it did not act, and must be sent apart: also if there was no
    /// connection until `begin`.
    fn send(
        &self,
        entry: &Entry,
        begin: Deadline,
    ) -> impl Future<Output = Option<Result<Done>>> + Send;

    /// Carries out several such entries of one kind, of different keys, in one transaction that waits for no row. A
    /// reply for each; `None` for one that did not act, and must be sent apart: for all if there was no connection until
    /// `begin`.
    fn send_together(
        &self,
        entries: &[Arc<Entry>],
        begin: Deadline,
    ) -> impl Future<Output = Vec<Option<Result<Done>>>> + Send;

    /// Carries out any entry until then, on a connection of its own. `None` if somebody else's transaction held a row for
    /// the whole time.
    fn send_apart(
        &self,
        entry: &Entry,
        until: Deadline,
    ) -> impl Future<Output = Result<Option<Done>>> + Send;

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

    /// What may be purged among the next `most` rows after a position, or of these keys; and where the next step begins,
    /// unless these were the last rows.
    fn scan(
        &self,
        keys: Option<&[String]>,
        after: &Position,
        most: usize,
    ) -> impl Future<Output = Result<(Vec<Old>, Option<Position>)>> + Send;

    /// Removes what is over, and returns the positions of what is gone, counted from 1: of records as they are, of
    /// counters below zero.
    fn purge(&self, purge: &Purge) -> impl Future<Output = Result<Vec<i64>>> + Send;

    /// The server, for messages.
    fn name(&self) -> &str;

    /// The time limit of an operation.
    fn timeout(&self) -> Duration;
}

/// The error of a request that waited for a row in vain.
pub fn locked(server: &str) -> Error {
    let message = format!("{server}: another transaction holds the row of the key for too long");
    Error::unavailable(Effect::NotApplied, message)
}

/// The error of an operation that got no answer in time.
pub(super) fn unanswered(server: &str, until: Deadline, effect: Effect) -> Error {
    Error::unavailable(effect, format!("{server} did not answer within {:?}", until.limit()))
}

/// Runs this to its end even if its caller goes (C15): every request, and whatever opens a transaction.
///
/// # Errors
/// Those of the exchange; `Unavailable` with an unknown effect if the runtime has ended.
pub async fn outliving<T: Send + 'static>(
    exchange: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    #[expect(clippy::disallowed_methods, reason = "a request outlives its caller (C15)")]
    let task = tokio::spawn(exchange);
    task.await.unwrap_or_else(|e| {
        Err(Error::unavailable(Effect::Unknown, "the request's task ended").with_source(e))
    })
}
