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

/// Asks until it holds, for conditions without an event.
pub async fn until(mut holds: impl AsyncFnMut() -> bool) {
    let holds = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    in_time(holds).await;
}
