//! A lock over three stores of which one may fail: here three SQLite files, which would be on three disks.
//!
//! ```sh
//! cargo run -p leasehold --features quorum,sqlite --example quorum
//! ```

use std::path::Path;
use std::time::Duration;

use leasehold::{Guard, Locker, Result};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let locks = connect([Path::new("a.db"), Path::new("b.db"), Path::new("c.db")]).await?;
    let guard = lock(&locks).await?;
    println!("held, with the term {:?}", guard.remaining());
    guard.release().await?;
    locks.close(Duration::from_secs(5)).await
}

/// Every client must name the same nodes. Their order does not matter.
pub(crate) async fn connect(files: [&Path; 3]) -> Result<Locker> {
    // A node with characters that have a meaning in a URL must be percent-encoded.
    let nodes = files.map(|file| format!("node=sqlite:{}", file.display()));
    Locker::connect(&format!("quorum:?{}", nodes.join("&"))).await
}

/// The lock is held if a majority of the nodes has granted it, whatever the others answer.
pub(crate) async fn lock(locks: &Locker) -> Result<Guard> {
    let guard = locks.lock("report:monthly").await?;
    for report in guard.nodes().iter() {
        match &report.error {
            None => println!("{}: {:?}", report.node, report.leases),
            Some(error) => println!("{} failed: {error}", report.node),
        }
    }
    Ok(guard)
}
