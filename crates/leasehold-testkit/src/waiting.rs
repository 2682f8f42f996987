//! How long tests wait.

use std::future::Future;
use std::time::Duration;

pub const SECOND: Duration = Duration::from_secs(1);

/// Longer than anything takes, even on a busy machine.
pub const LONG: Duration = Duration::from_secs(30);

/// Waits for `coming`, at most for a time in which anything ends.
pub async fn in_time<T>(coming: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONG, coming).await.expect("it comes in time")
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

/// Whether a server that was started answers in a time in which any server does; no event says so.
#[cfg(any(feature = "mysql", feature = "postgres", feature = "redis"))]
pub(crate) async fn starts<F: Future<Output = bool>>(mut answers: impl FnMut() -> F) -> bool {
    let answers = async {
        while !answers().await {
            tokio::time::sleep(EVERY).await;
        }
    };
    tokio::time::timeout(LONG, answers).await.is_ok()
}
