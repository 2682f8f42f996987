use std::future::Future;
use std::sync::Arc;

use leasehold_core::{AcquireReply, RefusalReason, Store};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::attempt::Attempt;
use crate::client::Client;
use crate::{Failure, Result};

/// Runs all futures at the same time, in tasks that start together; returns their results in order.
pub(crate) async fn together<T: Send + 'static>(
    futures: Vec<impl Future<Output = Result<T>> + Send + 'static>,
) -> Result<Vec<T>> {
    let start = Arc::new(Barrier::new(futures.len()));
    let mut tasks = JoinSet::new();
    for (at, future) in futures.into_iter().enumerate() {
        let start = Arc::clone(&start);
        tasks.spawn(async move {
            start.wait().await;
            (at, future.await)
        });
    }
    let mut answers = Vec::new();
    while let Some(task) = tasks.join_next().await {
        let (at, answer) = task.map_err(|panic| Failure::new(format!("a client: {panic}")))?;
        answers.push((at, answer?));
    }
    answers.sort_unstable_by_key(|(at, _)| *at);
    Ok(answers.into_iter().map(|(_, answer)| answer).collect())
}

/// Lets all acquire at the same time. If the store reports that a key is busy, the same request is sent again.
pub(crate) async fn contend<S: Store>(
    contenders: Vec<(Client<S>, Attempt)>,
) -> Result<Vec<AcquireReply>> {
    let tries = contenders.into_iter().map(|(client, attempt)| async move {
        for _ in 0..1_000 {
            match client.acquire(&attempt).await? {
                AcquireReply::Refused(refused) if matches!(refused.why, RefusalReason::Busy) => {
                    tokio::task::yield_now().await;
                }
                decided => return Ok(decided),
            }
        }
        Err(Failure::new(format!("{attempt:?} met a busy key a thousand times")))
    });
    together(tries.collect()).await
}
