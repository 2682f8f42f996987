use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{LeaseRenewed, MAX_ENTRIES, Remaining, Renew, Renewal, Result, Store};

use super::Keeper;
use crate::held::{Held, Verdict, unanswered};
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
        let sent = self.clock.now();
        let request = Renew::new(batch.iter().map(|held| held.renewal(sent)).collect());
        let limit = renewal_limit(&batch, sent);
        let answer = self.ask_renew(&request, sent, limit).await;
        for (at, held) in batch.iter().enumerate() {
            let outcome = match &answer {
                Ok(leases) => leases.get(at).cloned(),
                Err(error) => Some(LeaseRenewed::Failed(error.clone())),
            };
            let outcome = outcome.unwrap_or_else(|| LeaseRenewed::Failed(unanswered(limit)));
            self.apply_renewal(held, sent, outcome);
        }
    }

    /// Applies one answer, unless the lease was lost before it came (F4, F5).
    pub(crate) fn apply_renewal(
        self: &Arc<Self>,
        held: &Arc<Held>,
        sent: Duration,
        outcome: LeaseRenewed,
    ) -> Verdict {
        telemetry::renewal(self.name, held, &outcome);
        let verdict = held.apply(sent, outcome, self.clock.now());
        self.settle(held, &verdict);
        self.book.reschedule(held);
        verdict
    }

    /// Sends one renewal and waits for it no longer than `limit`. A renewal may be dropped: it revives
    /// nothing, and a reply that is not heard is not believed.
    async fn ask_renew(
        &self,
        request: &Renew,
        sent: Duration,
        limit: Duration,
    ) -> Result<Vec<LeaseRenewed>> {
        tokio::select! {
            biased;
            renewed = self.store.renew(request) => renewed.map(|renewed| renewed.leases),
            () = self.clock.sleep_until(sent.saturating_add(limit)) => Err(unanswered(limit)),
        }
    }

    /// Renews one lease that the caller names, outside the Keeper's own round.
    pub(crate) async fn renew_one(&self, renewal: Renewal) -> Result<(Duration, LeaseRenewed)> {
        let sent = self.clock.now();
        let limit = self.limit;
        let leases = self.ask_renew(&Renew::new(vec![renewal]), sent, limit).await?;
        let outcome = leases.into_iter().next();
        Ok((sent, outcome.unwrap_or_else(|| LeaseRenewed::Failed(unanswered(limit)))))
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
