//! Eight tasks, of which at most three use the graphics card at a time, in however many processes.
//!
//! ```sh
//! cargo run -p leasehold --features sqlite --example semaphore
//! ```

use std::time::Duration;

use leasehold::{Locker, Result, Wait};
use tokio::task::JoinSet;

/// The limit belongs to the request, so every caller must give the same one.
const CARDS: u32 = 3;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let locks = Locker::connect("sqlite:locks.db").await?;
    let mut tasks = JoinSet::new();
    for number in 1..=8 {
        let locks = locks.clone();
        tasks.spawn(async move {
            on_a_card(&locks, Wait::Forever, async {
                println!("{number} computes");
                tokio::time::sleep(Duration::from_secs(1)).await;
            })
            .await
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.expect("no task panics")?;
    }
    locks.close(Duration::from_secs(5)).await
}

/// Computes while fewer than [`CARDS`] others do.
pub(crate) async fn on_a_card(
    locks: &Locker,
    wait: Wait,
    compute: impl Future<Output = ()>,
) -> Result<()> {
    let guard = locks.lock("gpu").permits(CARDS).wait(wait).await?;
    guard.run(compute).await?;
    guard.release().await?;
    Ok(())
}
