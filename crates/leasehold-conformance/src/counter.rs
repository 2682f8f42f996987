//! A counter without atomic increments, incremented under the lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold_core::{AcquireReply, Mode, Store, Ttl};
use tokio::task::JoinSet;

use crate::attempt::{Attempt, all_of};
use crate::case::{CaseResult, PASSED};
use crate::client::Client;
use crate::failure::ensure_eq;
use crate::{Backing, Failure, Result, Subject};

const TASKS: u64 = 8;
const ROUNDS: u64 = 25;

/// Every task increments it the same number of times, and in the end none is lost.
pub(crate) async fn run<S: Subject>(subject: &S) -> CaseResult {
    let backing = subject.open().await?;
    let counter = Arc::new(AtomicU64::new(0));
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let client = Client::new(backing.client().await?, &subject.reports());
        if task == 0 {
            client.store().prepare().await?;
        }
        let counter = Arc::clone(&counter);
        tasks.spawn(async move {
            for _ in 0..ROUNDS {
                raise(&client, &counter).await?;
            }
            Ok::<_, Failure>(())
        });
    }
    while let Some(task) = tasks.join_next().await {
        task.map_err(|panic| Failure::new(format!("a client: {panic}")))??;
    }
    ensure_eq!(counter.load(Ordering::SeqCst), TASKS * ROUNDS, "the counter in the end");
    PASSED
}

/// Reads, lets the others run, and writes: one step under the lock, two without it.
async fn raise<S: Store>(client: &Client<S>, counter: &AtomicU64) -> Result {
    let can = client.store().capabilities();
    // Longer than the whole run, so that no term ends.
    let term = can.max_term.min(Duration::from_secs(3_600)).min(Ttl::MAX);
    loop {
        let attempt = Attempt::new(all_of(&["counter"], Mode::Exclusive), term);
        if let AcquireReply::Granted(_) = client.acquire(&attempt).await? {
            let read = counter.load(Ordering::SeqCst);
            tokio::task::yield_now().await;
            counter.store(read + 1, Ordering::SeqCst);
            return client.released(&attempt).await;
        }
        // A refusal has no event at the seam, and the test does not wait for terms to end.
        tokio::time::sleep(Duration::from_micros(200)).await;
    }
}
