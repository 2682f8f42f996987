use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{
    BoxFuture, Ending, LeaseReleased, MAX_ENTRIES, Random, Release, Result, Store,
};

use super::Keeper;
use super::inbox::Releases;
use crate::held::Held;
use crate::own_ids::Named;

/// One lease to end in the background.
#[derive(Debug, Clone)]
pub(crate) struct Releasing {
    pub(crate) ending: Ending,
    /// Until when it is worth trying; `None` for ever.
    pub(crate) until: Option<Duration>,
    /// Bars the caller's own id until this is answered.
    #[expect(dead_code, reason = "held, not read")]
    pub(crate) named: Option<Arc<Named>>,
}

/// The shortest and the longest pause before a failed release is sent again.
const PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));

impl Releasing {
    pub(crate) fn of(held: &Held, now: Duration) -> Self {
        Self { ending: held.ending(now), until: held.store_term_end(), named: held.named.clone() }
    }
}

impl Keeper {
    /// What is to be done, as futures that end when it is.
    pub(super) fn take_work(self: &Arc<Self>) -> Vec<BoxFuture<'static, ()>> {
        let (calls, mut releases) = self.inbox.take();
        let mut work: Vec<BoxFuture<'static, ()>> = Vec::with_capacity(calls.len() + 1);
        for (unfinished, call) in calls {
            let keeper = Arc::clone(self);
            work.push(Box::pin(async move {
                if let Some(releasing) = call.await {
                    keeper.release(releasing);
                }
                drop(unfinished);
            }));
        }
        while !releases.is_empty() {
            let batch = releases.split_off(releases.len().saturating_sub(MAX_ENTRIES));
            work.push(Box::pin(Arc::clone(self).release_batch(batch)));
        }
        work
    }

    /// Sends releases until each is answered or its term has passed.
    async fn release_batch(self: Arc<Self>, mut batch: Releases) {
        let mut random = Random::seeded();
        let mut pause = PAUSE.0;
        loop {
            let endings = batch.iter().map(|(_, releasing)| releasing.ending.clone()).collect();
            let outcomes = self.release_now(&Release::new(endings)).await;
            let now = self.clock.now();
            let mut outcomes = outcomes.unwrap_or_default().into_iter();
            batch.retain(|(_, releasing)| {
                let answered =
                    outcomes.next().is_some_and(|o| !matches!(o, LeaseReleased::Failed(_)));
                !answered && releasing.until.is_none_or(|until| now < until)
            });
            if batch.is_empty() {
                return;
            }
            let next = now.saturating_add(pause / 2 + random.up_to(pause / 2));
            self.clock.sleep_until(next).await;
            pause = (pause * 2).min(PAUSE.1);
        }
    }

    /// Sends one release and wakes whoever waits in this process for what it freed.
    pub(crate) async fn release_now(&self, request: &Release) -> Result<Vec<LeaseReleased>> {
        let released = self.store.release(request).await.inspect_err(|error| {
            tracing::debug!(%error, "a release failed");
        })?;
        for (lease, outcome) in request.leases().iter().zip(&released.leases) {
            if !matches!(outcome, LeaseReleased::Kept(_) | LeaseReleased::Failed(_)) {
                self.lines.released(lease.keys());
            }
        }
        Ok(released.leases)
    }
}
