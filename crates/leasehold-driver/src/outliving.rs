use std::future::Future;

use leasehold_core::{Effect, Error, Result};

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
