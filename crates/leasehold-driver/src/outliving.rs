use std::future::Future;

use leasehold_core::{Effect, Error, Result};

/// Begins this now, in a task of its own, and runs it to its end even if its caller goes (C15): every request, and whatever
/// opens a transaction.
///
/// # Errors
/// Those of the exchange; `Unavailable` with an unknown effect if the runtime has ended.
///
/// # Cancel safety
/// May be dropped; the exchange continues.
pub fn outliving<T: Send + 'static>(
    exchange: impl Future<Output = Result<T>> + Send + 'static,
) -> impl Future<Output = Result<T>> + Send {
    #[expect(clippy::disallowed_methods, reason = "a request outlives its caller (C15)")]
    let task = tokio::spawn(exchange);
    async move {
        task.await.unwrap_or_else(|e| {
            Err(Error::unavailable(Effect::Unknown, "the request's task ended").with_source(e))
        })
    }
}
