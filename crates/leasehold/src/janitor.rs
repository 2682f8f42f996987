use std::collections::HashSet;
use std::time::Duration;

use leasehold_core::{Error, EvictRequest, Filter, Random, Result, Unreadable};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::locker::Locker;
use crate::telemetry;

/// Purges expired records at an interval ([F15](crate::contract)), until it is stopped or dropped, or its [`Locker`] is
/// closed.
///
/// It saves space and is never needed for correctness: an expired record holds nothing, purged or not
/// ([C5](crate::contract)), and a live lease is never removed ([C8](crate::contract)). It runs in its own task and
/// keeps the `Locker` alive.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// # let locks = leasehold::Locker::new(leasehold::LocalStore::new());
/// use std::time::Duration;
///
/// let janitor = locks.janitor().every(Duration::from_secs(60)).spawn()?;
/// // … the work of the program …
/// println!("{} records were removed", janitor.stop().await.purged.records_removed);
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "the janitor stops when it is dropped"]
pub struct Janitor {
    pub(crate) reports: watch::Receiver<JanitorReport>,
    task: JoinHandle<()>,
}

/// Sets the options of a [`Janitor`].
#[derive(Debug)]
#[must_use = "the janitor begins when it is spawned"]
pub struct JanitorBuilder {
    locks: Locker,
    every: Duration,
    batch: usize,
}

impl JanitorBuilder {
    /// Sets the interval between two rounds, at least 1 s; by default [`Janitor::DEFAULT_INTERVAL`].
    pub fn every(mut self, every: Duration) -> Self {
        self.every = every;
        self
    }

    /// Sets how many records and counters one request removes at most, 1 to 1,000; by default [`Janitor::DEFAULT_BATCH`].
    pub fn batch(mut self, batch: usize) -> Self {
        self.batch = batch;
        self
    }

    /// Starts the janitor, on the caller's tokio runtime.
    ///
    /// The first round begins at a random time within [`every`](Self::every). Each further one begins `every`, less up
    /// to a tenth, after the end of the last, so that processes that start together do not purge together. A round that
    /// fails is reported, and the next one comes in its time.
    ///
    /// # Errors
    /// `InvalidInput` if an option is out of range; `Unexpected` outside a tokio runtime with timers.
    pub fn spawn(self) -> Result<Janitor> {
        let Self { locks, every, batch } = self;
        if every < Janitor::MIN_INTERVAL {
            return Err(Error::invalid_input(format!(
                "the janitor's interval is {every:?}; it must be at least {:?}",
                Janitor::MIN_INTERVAL
            )));
        }
        let request = EvictRequest::expired(Filter::default()).with_limit(batch);
        let keeper = &locks.0.keeper;
        keeper.can.admit(&request)?;
        let runtime = Handle::try_current().map_err(|e| {
            Error::unexpected("a janitor needs a tokio runtime; call this inside one")
                .with_source(e)
        })?;
        keeper.check_timers()?;
        let (sender, reports) = watch::channel(JanitorReport::default());
        let task = runtime.spawn(async move {
            tokio::select! {
                biased;
                () = locks.0.closed() => {}
                () = locks.sweep(every, &request, &sender) => {}
            }
        });
        Ok(Janitor { reports, task })
    }
}

/// What a [`Janitor`] has done so far.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct JanitorReport {
    /// How many rounds have ended, including failed ones.
    pub rounds: u64,
    /// The total of all rounds.
    pub purged: Purged,
    /// How many rounds failed.
    pub failed_rounds: u64,
    /// The error of the last round; `None` if it succeeded.
    pub error: Option<Error>,
}

/// What a purge removed.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Purged {
    /// How many expired records were removed.
    pub records_removed: usize,
    /// How many counters were forgotten ([C7](crate::contract)).
    pub counters_forgotten: usize,
    /// How many requests it took.
    pub batches: usize,
    /// What it left because it could not read it, each once; of several rounds, as the last one found it.
    pub unreadable: Vec<Unreadable>,
}

impl Purged {
    /// Adds a round.
    fn add(&mut self, round: Self) {
        self.records_removed += round.records_removed;
        self.counters_forgotten += round.counters_forgotten;
        self.batches += round.batches;
        self.unreadable = round.unreadable;
    }
}

impl Janitor {
    /// The default interval between two rounds.
    pub const DEFAULT_INTERVAL: Duration = Duration::from_secs(5 * 60);

    /// The default size of a batch.
    pub const DEFAULT_BATCH: usize = 100;

    /// The shortest interval between two rounds.
    pub const MIN_INTERVAL: Duration = Duration::from_secs(1);

    /// What it has done so far.
    pub fn report(&self) -> JanitorReport {
        self.reports.borrow().clone()
    }

    /// Waits for the end of a round that it has not reported yet; `None` once the janitor has ended. If several
    /// rounds have ended meanwhile, it reports them together.
    ///
    /// # Cancel safety
    /// May be dropped; no round is missed.
    pub async fn next_round(&mut self) -> Option<JanitorReport> {
        next_round(&mut self.reports).await
    }

    /// Stops it, also within a round, and ends when no task of it runs any more. Reports the rounds that ended.
    ///
    /// # Cancel safety
    /// May be dropped; the janitor stops all the same.
    pub async fn stop(mut self) -> JanitorReport {
        self.task.abort();
        // It was cancelled or had ended before; a panic of the store is an error of its round.
        (&mut self.task).await.unwrap_or_default();
        self.report()
    }
}

impl Drop for Janitor {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub(crate) async fn next_round(
    reports: &mut watch::Receiver<JanitorReport>,
) -> Option<JanitorReport> {
    reports.changed().await.ok()?;
    Some(reports.borrow_and_update().clone())
}

impl Locker {
    /// Removes expired records that match, and counters that may be forgotten ([C7](crate::contract)), at most `batch`
    /// (1 to 1,000) at a time, until nothing is left.
    ///
    /// Between two batches it pauses for as long as the last one took, but no longer than the limit of one
    /// operation. So at least half of the store's time is left to others: on a store with one writer at a time, a
    /// purge without pauses could block another caller through many batches.
    ///
    /// # Errors
    /// `InvalidInput` for a bad `batch`, else as any operation. What was removed stays removed, and calling again
    /// is safe.
    ///
    /// # Cancel safety
    /// May be dropped; what was removed stays removed.
    pub async fn purge(&self, filter: Filter, batch: usize) -> Result<Purged> {
        let mut purged = Purged::default();
        self.purge_into(&mut purged, &EvictRequest::expired(filter).with_limit(batch)).await?;
        Ok(purged)
    }

    /// A [`Janitor`] for this store: set its options, then [`spawn`](JanitorBuilder::spawn) it.
    pub fn janitor(&self) -> JanitorBuilder {
        JanitorBuilder {
            locks: self.clone(),
            every: Janitor::DEFAULT_INTERVAL,
            batch: Janitor::DEFAULT_BATCH,
        }
    }

    /// Purges until it is cancelled.
    async fn sweep(
        &self,
        every: Duration,
        request: &EvictRequest,
        sender: &watch::Sender<JanitorReport>,
    ) {
        let keeper = &self.0.keeper;
        let mut random = Random::seeded();
        let mut pause = random.up_to(every);
        loop {
            keeper.clock.sleep_until(keeper.clock.now().saturating_add(pause)).await;
            pause = every - random.up_to(every / 10);
            let mut purged = Purged::default();
            let round = self.purge_into(&mut purged, request).await;
            telemetry::janitor_round(keeper.can.name, &purged, round.as_ref().err());
            sender.send_modify(|report| {
                report.rounds += 1;
                report.purged.add(purged);
                report.failed_rounds += u64::from(round.is_err());
                report.error = round.err();
            });
        }
    }

    async fn purge_into(&self, purged: &mut Purged, request: &EvictRequest) -> Result<()> {
        let keeper = &self.0.keeper;
        let mut named = HashSet::new();
        loop {
            let sent = keeper.clock.now();
            let evicted = self.evict(request).await?;
            let (removed, forgotten) = (evicted.removed.len(), evicted.counters_forgotten);
            purged.records_removed += removed;
            purged.counters_forgotten += forgotten;
            purged.batches += 1;
            // Each batch finds it again.
            let unreadable = evicted.unreadable.into_iter();
            let new = unreadable.filter(|one| named.insert((one.name.clone(), one.node.clone())));
            purged.unreadable.extend(new);
            telemetry::purged(keeper.can.name, removed, forgotten);
            if !evicted.more {
                telemetry::unreadable(keeper.can.name, &purged.unreadable);
                return Ok(());
            }
            let now = keeper.clock.now();
            // The machine may have slept meanwhile.
            let took = now.saturating_sub(sent).min(keeper.limit);
            keeper.clock.sleep_until(now.saturating_add(took)).await;
            // A store that answers at once must let other tasks run.
            tokio::task::yield_now().await;
        }
    }
}
