use std::future::Future;
use std::time::Duration;

use leasehold_core::{Key, Result};

/// How a store sends requests, one alone or several together.
pub trait Combine: Send + Sync + 'static {
    /// A request about one key.
    type Request: Clone + Send + Sync + 'static;
    /// Its reply.
    type Reply: Send + 'static;
    /// Only requests of one kind travel together.
    type Kind: PartialEq + Send;

    /// The kind of a request.
    fn kind(request: &Self::Request) -> Self::Kind;

    /// The key of a request.
    fn key(request: &Self::Request) -> &Key;

    /// Whether a request may be sent while an earlier one of its key is unanswered on a connection that stalls: nothing
    /// is wrong if the earlier one acts last.
    fn may_pass(request: &Self::Request, earlier: &Self::Request) -> bool;

    /// How long a batch may take, connecting included. One that takes longer is on a runtime that nobody drives.
    fn limit(&self) -> Duration;

    /// A connection stalls, and perhaps all that were made before: what is sent from now on must use a new one.
    fn distrust(&self);

    /// Sends one request. `None` if it did not act, and must be sent by the caller without others behind it.
    fn send(
        &self,
        request: &Self::Request,
    ) -> impl Future<Output = Option<Result<Self::Reply>>> + Send;

    /// Sends several requests of one kind, in key order, each with a key of its own. One reply for each, in their
    /// order, as for [`send`](Combine::send).
    fn send_together(
        &self,
        requests: &[Self::Request],
    ) -> impl Future<Output = Vec<Option<Result<Self::Reply>>>> + Send;
}
