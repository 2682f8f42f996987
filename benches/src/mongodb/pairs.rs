//! Acquire and release of a key that nobody else wants.

use leasehold::Result;

use super::{POOL, TASKS};
use crate::sides::{Amount, Side, head, rows};

pub(crate) async fn run(server: &str, sides: &[Side]) -> Result<()> {
    println!("## Acquire and release of an uncontended key, on {server}\n");
    println!(
        "The first row is a pair of `findOneAndUpdate` on a document of a key, a lock id and an end. mongo-lock's queries: \
         one to lock, two to unlock. Each has a pool of {POOL} connections, and all writes wait for a majority and the \
         journal.\n"
    );
    all(sides).await
}

/// With keys that are used once.
pub(crate) async fn fresh(sides: &[Side]) -> Result<()> {
    println!("## Acquire and release of a key that is used once (`fresh`)\n");
    println!(
        "On a replica set of one. Each key is a random number. The first row leaves a document of each key.\n"
    );
    all(sides).await
}

async fn all(sides: &[Side]) -> Result<()> {
    head();
    for (tasks, pairs) in TASKS.into_iter().zip([200, 50, 30]) {
        rows(sides, Amount { tasks, pairs, rounds: 7 }).await?;
    }
    println!();
    Ok(())
}
