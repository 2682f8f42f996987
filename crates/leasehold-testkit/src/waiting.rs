//! How long tests wait.

use std::fmt::Debug;
use std::future::Future;
use std::time::Duration;

use leasehold_core::{Error, ErrorKind, Result};

pub const SECOND: Duration = Duration::from_secs(1);

/// Longer than anything takes, even on a busy machine.
pub const LONG: Duration = Duration::from_secs(30);

/// Waits for `coming`, at most for a time in which anything ends.
pub async fn in_time<T>(coming: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONG, coming).await.expect("it comes in time")
}

/// The failure of an operation of a store that does not answer: `Unavailable`, and not much later than its limit.
pub async fn fails_within<T: Debug>(
    limit: Duration,
    operation: impl Future<Output = Result<T>>,
) -> Error {
    // Less than a second limit after the first.
    let outcome = tokio::time::timeout(limit * 7 / 4, operation).await;
    let error = outcome.expect("it ends in time").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    error
}

/// How often a condition without an event is asked for.
const EVERY: Duration = Duration::from_millis(10);

/// Asks until it holds, for conditions without an event.
pub async fn until(mut holds: impl AsyncFnMut() -> bool) {
    let holds = async {
        while !holds().await {
            tokio::time::sleep(EVERY).await;
        }
    };
    in_time(holds).await;
}

/// Whether a server that was started answers in a time in which any server does; no event shows it.
#[cfg(any(
    feature = "mongodb",
    feature = "mysql",
    feature = "postgres",
    feature = "redis",
    feature = "spanner"
))]
pub(crate) async fn starts<F: Future<Output = bool>>(mut answers: impl FnMut() -> F) -> bool {
    let answers = async {
        while !answers().await {
            tokio::time::sleep(EVERY).await;
        }
    };
    tokio::time::timeout(LONG, answers).await.is_ok()
}
