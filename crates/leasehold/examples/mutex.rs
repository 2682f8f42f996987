//! One report at a time, on one machine. Run it in two terminals at once: the second waits for the first.
//!
//! ```sh
//! cargo run -p leasehold --features sqlite --example mutex
//! ```

use std::time::Duration;

use leasehold::{Locker, ReleaseOutcome, Result, Wait};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let locks = Locker::connect("sqlite:locks.db").await?;
    println!("waiting");
    report(&locks, async {
        println!("writing");
        tokio::time::sleep(Duration::from_secs(5)).await;
    })
    .await?;
    println!("done");
    // Waits for what is still to be released.
    locks.close(Duration::from_secs(5)).await
}

/// Writes the report while no other process does.
pub(crate) async fn report(locks: &Locker, write: impl Future<Output = ()>) -> Result<()> {
    let guard = locks.lock("report:monthly").wait(Wait::Forever).await?;
    // If the lease is lost, `run` drops the work at its next await and fails.
    guard.run(write).await?;
    match guard.release().await?.outcome {
        ReleaseOutcome::Released => {}
        other => eprintln!("the report took longer than its lease: {other:?}"),
    }
    Ok(())
}
