//! Measures several ways to do the same work in turns, so that other load on the machine affects them alike.

use std::sync::Arc;
use std::time::Duration;

use leasehold::Result;
use leasehold_core::BoxFuture;
use tokio::task::JoinSet;

use crate::measure::{float, median, micros, now, or_few, percentile, ratio};

/// One way to do the work.
#[derive(Clone)]
pub(crate) struct Side {
    pub(crate) name: String,
    work: Work,
}

/// Runs `pairs` pairs of acquire and release as the given task, one after the other.
type Work = Arc<dyn Fn(usize, usize) -> BoxFuture<'static, Result<()>> + Send + Sync>;

impl Side {
    pub(crate) fn new<F: Future<Output = Result<()>> + Send + 'static>(
        name: impl Into<String>,
        work: impl Fn(usize, usize) -> F + Send + Sync + 'static,
    ) -> Self {
        Self { name: name.into(), work: Arc::new(move |task, pairs| Box::pin(work(task, pairs))) }
    }

    /// How long this many tasks take for this many pairs each.
    pub(crate) async fn time(&self, tasks: usize, pairs: usize) -> Result<Duration> {
        let mut set = JoinSet::new();
        let start = now();
        for task in 0..tasks {
            set.spawn((self.work)(task, pairs));
        }
        while let Some(done) = set.join_next().await {
            done.expect("a task of the benchmark does not panic")?;
        }
        Ok(now() - start)
    }
}

/// How much work is done.
#[derive(Clone, Copy)]
pub(crate) struct Amount {
    pub(crate) tasks: usize,
    /// Of each task in one round.
    pub(crate) pairs: usize,
    pub(crate) rounds: usize,
}

/// The head of a table of [`rows`].
pub(crate) fn head() {
    println!(
        "| tasks | | µs per pair | pairs/s | time as a multiple of the first | throughput as a share of the first |"
    );
    println!("|---|---|---|---|---|---|");
}

/// Measures the sides in turns and prints a row for each. Ratios are computed for each round; the median is
/// printed.
pub(crate) async fn rows(sides: &[Side], amount: Amount) -> Result<()> {
    let Amount { tasks, pairs, rounds } = amount;
    let (pairs, rounds) = (or_few(pairs, 1), or_few(rounds, 1));
    for side in sides {
        side.time(tasks, pairs.min(16)).await?;
    }
    let mut times = vec![Vec::with_capacity(rounds); sides.len()];
    for round in 0..rounds {
        for turn in 0..sides.len() {
            let at = (round + turn) % sides.len();
            times[at].push(sides[at].time(tasks, pairs).await?);
        }
    }
    for (side, of_side) in sides.iter().zip(&times) {
        let multiples = of_side.iter().zip(&times[0]).map(|(one, first)| ratio(*one, *first));
        let multiple = median(multiples.collect());
        let wall = percentile(&mut of_side.clone(), 50);
        println!(
            "| {tasks} | {} | {} | {:.0} | {multiple:.2} | {:.2} |",
            side.name,
            micros(wall / u32::try_from(pairs).unwrap_or(u32::MAX)),
            float(pairs * tasks) / wall.as_secs_f64(),
            1.0 / multiple
        );
    }
    Ok(())
}
