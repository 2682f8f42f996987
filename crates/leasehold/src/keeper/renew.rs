use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::FutureExt;
use leasehold_core::{
    BoxFuture, MAX_ENTRIES, NodeReports, Remaining, RenewEntry, RenewOutcome, RenewReply,
    RenewRequest, Result, Store,
};

use super::task::Task;
use super::{Keeper, caught};
use crate::lease::state::{Answer, HoldStatus, LeaseState, left};
use crate::telemetry;

impl Keeper {
    /// The renewals to send now. A request ends at the nearest limit of its leases, so it carries only leases whose
    /// limits are within a factor of two: short leases must not cost a long one its answer (F3).
    pub(super) fn renewals(self: &Arc<Self>, task: &Arc<Task>) -> Vec<BoxFuture<'static, ()>> {
        let now = self.clock.now();
        let mut due = Vec::new();
        for held in self.schedule.due(now) {
            if matches!(self.status(&held), HoldStatus::Held(_)) && held.start_renewal(now) {
                self.schedule.reschedule(&held);
                due.push((renewal_limit(&held, now), held));
            }
        }
        due.sort_by_key(|(limit, _)| *limit);
        let mut renewals = Vec::new();
        while let Some((nearest, _)) = due.first() {
            let alike = due.partition_point(|(limit, _)| *limit <= *nearest * 2).min(MAX_ENTRIES);
            let until = now.saturating_add(*nearest);
            let leases = due.drain(..alike).map(|(_, held)| held).collect();
            let batch = Renewing::new(self, task, leases, until);
            renewals.push(Arc::clone(self).renew(batch).boxed());
        }
        renewals
    }

    /// Renews a batch and applies each lease's answer.
    async fn renew(self: Arc<Self>, mut batch: Renewing) {
        let sent = self.clock.now();
        let outcomes = self.ask_renew(&batch.leases, sent, batch.until).await;
        for (held, answer) in std::mem::take(&mut batch.leases).iter().zip(outcomes) {
            self.apply_renewal(held, sent, answer);
        }
    }

    /// Renews leases for a caller who waits for the answer until `until`, outside the Keeper's rounds.
    pub(crate) async fn renew_for(
        self: &Arc<Self>,
        leases: &[Arc<LeaseState>],
        until: Duration,
    ) -> Vec<(HoldStatus, RenewOutcome)> {
        let sent = self.clock.now();
        let outcomes = self.ask_renew(leases, sent, until).await;
        let apply = |(held, answer): (&Arc<LeaseState>, Answer)| {
            let outcome = answer.0.clone();
            (self.apply_renewal(held, sent, answer), outcome)
        };
        leases.iter().zip(outcomes).map(apply).collect()
    }

    /// Applies one answer, unless the lease was lost before it came (F4, F5).
    pub(crate) fn apply_renewal(
        self: &Arc<Self>,
        held: &Arc<LeaseState>,
        sent: Duration,
        answer: Answer,
    ) -> HoldStatus {
        self.record(held, &answer.0);
        self.apply(held, sent, answer)
    }

    /// Applies what a list that was sent at `sent` shows: the store no longer has the lease. No renewal was sent, and none
    /// is counted.
    pub(crate) fn apply_absence(self: &Arc<Self>, held: &Arc<LeaseState>, sent: Duration) {
        self.apply(held, sent, (RenewOutcome::Lost(None), NodeReports::default()));
    }

    fn apply(
        self: &Arc<Self>,
        held: &Arc<LeaseState>,
        sent: Duration,
        answer: Answer,
    ) -> HoldStatus {
        let status = held.apply(sent, answer, self.clock.now());
        self.settle(held, &status);
        self.reschedule(held);
        status
    }

    /// Counts an outcome, and logs it if it changes whether renewals succeed.
    fn record(&self, held: &LeaseState, outcome: &RenewOutcome) {
        let store = self.can.name;
        telemetry::renewed(store, held.label(), outcome);
        match outcome {
            RenewOutcome::Failed(error) => {
                let first = !self.failing.swap(true, Ordering::Relaxed);
                telemetry::renewal_failed(store, &held.lease, error, first);
            }
            RenewOutcome::Held(_) if self.failing.swap(false, Ordering::Relaxed) => {
                telemetry::renewals_succeed_again(store);
            }
            RenewOutcome::Held(_) | RenewOutcome::Lost(_) => {}
        }
    }

    /// Requests the renewal of held leases; one outcome for each.
    async fn ask_renew(
        &self,
        leases: &[Arc<LeaseState>],
        sent: Duration,
        until: Duration,
    ) -> Vec<Answer> {
        let request = RenewRequest::new(leases.iter().map(|held| held.renewal(sent)).collect());
        let (mut answers, error) = match self.send_renew(&request, until).await {
            Ok(answers) => (answers, None),
            Err(error) => (Vec::new(), Some(error)),
        };
        if answers.len() != leases.len() {
            let unanswered = || self.unanswered("renew", until.saturating_sub(sent));
            let error = error.unwrap_or_else(unanswered);
            let nodes = error.nodes().clone();
            answers.resize(leases.len(), (RenewOutcome::Failed(error), nodes));
        }
        answers
    }

    /// Sends one renewal and waits for it until `until`. A renewal may be dropped: it revives nothing, and a reply
    /// that is not read changes nothing here.
    async fn send_renew(&self, request: &RenewRequest, until: Duration) -> Result<Vec<Answer>> {
        let sent = self.clock.now();
        tokio::select! {
            biased;
            renewed = caught(self.store.renew(request)) => {
                let RenewReply { leases, nodes, .. } = renewed??;
                let leases = leases.into_iter().enumerate();
                Ok(leases.map(|(at, outcome)| (outcome, nodes.of_lease(at))).collect())
            }
            () = self.clock.sleep_until(until) => {
                Err(self.unanswered("renew", until.saturating_sub(sent)))
            }
        }
    }

    /// Renews a lease that this `Locker` does not hold.
    pub(crate) async fn renew_stranger(
        &self,
        renewal: RenewEntry,
        until: Duration,
    ) -> Result<Answer> {
        let sent = self.clock.now();
        let mut leases = self.send_renew(&RenewRequest::new(vec![renewal]), until).await?;
        let unanswered = || self.unanswered("renew", until.saturating_sub(sent));
        leases.pop().ok_or_else(unanswered)
    }
}

/// How long the renewal of a lease is awaited: until its deadline, but at most for a third of its TTL, so that there is
/// time to send an unanswered renewal again.
fn renewal_limit(held: &LeaseState, now: Duration) -> Duration {
    let third = held.lease.ttl.duration().map_or(Duration::from_secs(10), |ttl| ttl / 3);
    match left(held.deadline(), now) {
        Remaining::For(left) => left.min(third),
        Remaining::Never => third,
    }
}

/// Leases whose renewal is not answered. If the task ends with its runtime, they are due again.
struct Renewing {
    keeper: Arc<Keeper>,
    task: Arc<Task>,
    leases: Vec<Arc<LeaseState>>,
    /// How long the answer is awaited.
    until: Duration,
}

impl Renewing {
    fn new(
        keeper: &Arc<Keeper>,
        task: &Arc<Task>,
        leases: Vec<Arc<LeaseState>>,
        until: Duration,
    ) -> Self {
        task.begins_renewal(until);
        Self { keeper: Arc::clone(keeper), task: Arc::clone(task), leases, until }
    }
}

impl Drop for Renewing {
    fn drop(&mut self) {
        self.task.ends_renewal(self.until);
        for held in &self.leases {
            held.rearm(self.keeper.clock.now());
            self.keeper.reschedule(held);
        }
    }
}
