//! A job that every machine starts at the full hour, and that runs once. Start it twice: the second run is skipped.
//!
//! ```sh
//! cargo run -p leasehold --features sqlite --example cron
//! ```

use std::time::Duration;

use leasehold::{Locker, Result, Wait};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let locks = Locker::connect("sqlite:locks.db").await?;
    match hourly(&locks, async { println!("running") }).await? {
        true => println!("done"),
        false => println!("skipped: it runs elsewhere, or has just run"),
    }
    locks.close(Duration::from_secs(5)).await
}

/// Runs the job unless it runs elsewhere or began less than five minutes ago; true if it ran.
pub(crate) async fn hourly(locks: &Locker, job: impl Future<Output = ()>) -> Result<bool> {
    let request = locks
        .lock("job:hourly")
        .wait(Wait::No)
        // The clocks of the machines differ. The lock stays taken for five minutes even if the job is done sooner, so
        // that a machine whose clock is behind does not start it again.
        .min_hold(Duration::from_secs(5 * 60))
        // A job that hangs is dropped after half an hour.
        .max_hold(Duration::from_secs(30 * 60));
    let guard = match request.await {
        Ok(guard) => guard,
        Err(error) if error.is_held() => return Ok(false),
        Err(error) => return Err(error),
    };
    guard.run(job).await?;
    guard.release().await?;
    Ok(true)
}
