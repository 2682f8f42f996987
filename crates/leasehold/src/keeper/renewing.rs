use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{LeaseRenewed, MAX_ENTRIES, Remaining, Renew, Renewal, Result, Store};

use super::{Keeper, caught};
use crate::held::{Held, Verdict};
use crate::telemetry;

impl Keeper {
    /// The renewals to send now. Leases with less than a third left travel apart from the others, so that the
    /// nearest deadline, which limits a request, is not theirs for all (F3).
    pub(super) fn due(self: &Arc<Self>) -> Vec<Vec<Arc<Held>>> {
        let now = self.clock.now();
        let (mut urgent, mut usual) = (Vec::new(), Vec::new());
        for held in self.book.due(now) {
            if !matches!(self.verdict(&held), Verdict::Held(_)) {
                continue;
            }
            if held.start_renewal(now) {
                self.book.reschedule(&held);
                if held.is_urgent(now) { urgent.push(held) } else { usual.push(held) }
            }
        }
        urgent
            .chunks(MAX_ENTRIES)
            .chain(usual.chunks(MAX_ENTRIES))
            .map(<[Arc<Held>]>::to_vec)
            .collect()
    }

    /// Renews a batch and applies each lease's answer.
    pub(super) async fn renew(self: Arc<Self>, batch: Vec<Arc<Held>>) {
        let mut batch = Renewing { keeper: Arc::clone(&self), leases: batch };
        let sent = self.clock.now();
        let limit = renewal_limit(&batch.leases, sent);
        let outcomes = self.ask_renew(&batch.leases, sent, sent.saturating_add(limit)).await;
        for (held, outcome) in std::mem::take(&mut batch.leases).iter().zip(outcomes) {
            self.apply_renewal(held, sent, outcome);
        }
    }

    /// Renews leases for a caller who waits for the answer until `until`, outside the Keeper's own round.
    pub(crate) async fn renew_for(
        self: &Arc<Self>,
        leases: &[Arc<Held>],
        until: Duration,
    ) -> Vec<(Verdict, LeaseRenewed)> {
        let sent = self.clock.now();
        let outcomes = self.ask_renew(leases, sent, until).await;
        let apply = |(held, outcome): (&Arc<Held>, LeaseRenewed)| {
            (self.apply_renewal(held, sent, outcome.clone()), outcome)
        };
        leases.iter().zip(outcomes).map(apply).collect()
    }

    /// Applies one answer, unless the lease was lost before it came (F4, F5).
    pub(crate) fn apply_renewal(
        self: &Arc<Self>,
        held: &Arc<Held>,
        sent: Duration,
        outcome: LeaseRenewed,
    ) -> Verdict {
        telemetry::renewal(self.can.name, held, &outcome);
        let verdict = held.apply(sent, outcome, self.clock.now());
        self.settle(held, &verdict);
        self.reschedule(held);
        verdict
    }

    /// Asks for the renewal of leases in care; one outcome for each.
    async fn ask_renew(
        &self,
        leases: &[Arc<Held>],
        sent: Duration,
        until: Duration,
    ) -> Vec<LeaseRenewed> {
        let request = Renew::new(leases.iter().map(|held| held.renewal(sent)).collect());
        let (mut outcomes, error) = match self.send_renew(&request, until).await {
            Ok(outcomes) => (outcomes, self.unanswered("renew", until.saturating_sub(sent))),
            Err(error) => (Vec::new(), error),
        };
        outcomes.resize(leases.len(), LeaseRenewed::Failed(error));
        outcomes
    }

    /// Sends one renewal and waits for it until `until`. A renewal may be dropped: it revives nothing, and a
    /// reply that is not heard is not believed.
    async fn send_renew(&self, request: &Renew, until: Duration) -> Result<Vec<LeaseRenewed>> {
        let sent = self.clock.now();
        tokio::select! {
            biased;
            renewed = caught(self.store.renew(request)) => Ok(renewed??.leases),
            () = self.clock.sleep_until(until) => {
                Err(self.unanswered("renew", until.saturating_sub(sent)))
            }
        }
    }

    /// Renews a lease that is not in care.
    pub(crate) async fn renew_stranger(
        &self,
        renewal: Renewal,
        until: Duration,
    ) -> Result<(Duration, LeaseRenewed)> {
        let sent = self.clock.now();
        let mut leases = self.send_renew(&Renew::new(vec![renewal]), until).await?;
        let unanswered = || self.unanswered("renew", until.saturating_sub(sent));
        match leases.pop().ok_or_else(unanswered)? {
            LeaseRenewed::Failed(error) => Err(error),
            answer => Ok((sent, answer)),
        }
    }
}

/// The nearest deadline, and no more than a third of the shortest TTL, so that an unanswered renewal is sent
/// again while there is time.
fn renewal_limit(batch: &[Arc<Held>], now: Duration) -> Duration {
    let of_one = |held: &Arc<Held>| {
        let left = crate::held::left(held.deadline(), now);
        let third = held.lease.ttl.duration().map_or(Duration::from_secs(10), |ttl| ttl / 3);
        match left {
            Remaining::For(left) => left.min(third),
            Remaining::Never => third,
        }
    };
    batch.iter().map(of_one).min().unwrap_or_default()
}

/// Leases whose renewal is not answered; when the task ends with its runtime they are due again.
struct Renewing {
    keeper: Arc<Keeper>,
    leases: Vec<Arc<Held>>,
}

impl Drop for Renewing {
    fn drop(&mut self) {
        for held in &self.leases {
            held.rearm(self.keeper.clock.now());
            self.keeper.reschedule(held);
        }
    }
}
