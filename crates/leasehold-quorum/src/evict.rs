use std::sync::Arc;

use leasehold_core::tally::majority;
use leasehold_core::{
    Effect, Error, EvictReply, EvictRequest, EvictScope, EvictTarget, NodeReports, Reason, Result,
    Store,
};

use crate::inner::Inner;
use crate::round::Round;

impl Inner {
    /// Removes expired records on every node, with the limit applied to each, or exactly the named ones.
    pub(crate) async fn evict(self: &Arc<Self>, request: &EvictRequest) -> Result<EvictReply> {
        match request.scope() {
            EvictScope::Expired(_) => {
                let round = self.evict_once(request.clone()).await?;
                let mut evicted = EvictReply::new(Vec::new(), 0, false);
                for (node, one) in self.nodes.iter().zip(&round.answers) {
                    let Some(Ok(one)) = one else { continue };
                    merge(&mut evicted.removed, &one.removed, self.can.tokens);
                    evicted.unreadable.extend(one.unreadable.iter().cloned().map(|mut one| {
                        one.node = Some(node.name.as_str().into());
                        one
                    }));
                    evicted.counters_forgotten =
                        evicted.counters_forgotten.max(one.counters_forgotten);
                    evicted.more |= one.more;
                }
                evicted.nodes = reports(&round);
                Ok(evicted)
            }
            EvictScope::Exactly { targets, reason } => {
                let named = &targets[..targets.len().min(request.limit())];
                let mut evicted = self.evict_exactly(named, reason.clone()).await?;
                evicted.more = named.len() < targets.len();
                Ok(evicted)
            }
        }
    }

    /// Repeats until one round finds each lease on less than a majority: a renewal that a majority answered before
    /// may have put it back meanwhile, and would then find a majority again.
    async fn evict_exactly(
        self: &Arc<Self>,
        named: &[EvictTarget],
        reason: Option<Reason>,
    ) -> Result<EvictReply> {
        let request = EvictRequest::exactly(named.to_vec(), reason);
        let until = self.clock.now().saturating_add(self.limits.release);
        let mut evicted = EvictReply::new(Vec::new(), 0, false);
        loop {
            let round = self.evict_once(request.clone()).await?;
            let removed = || round.answers.iter().flatten().flatten().map(|one| &one.removed);
            removed().for_each(|removed| merge(&mut evicted.removed, removed, self.can.tokens));
            let found = |target: &EvictTarget| {
                let is_it = |other: &EvictTarget| other.key == target.key && other.id == target.id;
                removed().filter(|removed| removed.iter().any(is_it)).count()
            };
            evicted.nodes = reports(&round);
            if named.iter().all(|target| found(target) < majority(self.nodes.len())) {
                return Ok(evicted);
            }
            if self.clock.now() >= until {
                let message = format!(
                    "renewals of the holder put the lease back for {:?}; try again",
                    self.limits.release
                );
                return Err(Error::unavailable(Effect::Unknown, message).with_nodes(evicted.nodes));
            }
        }
    }

    /// Sends one request to every node; a majority must answer.
    async fn evict_once(self: &Arc<Self>, request: EvictRequest) -> Result<Round<EvictReply>> {
        let request = Arc::new(request);
        let round = self
            .ask_all("evict", |node| {
                let request = Arc::clone(&request);
                async move { node.store.evict(&request).await }
            })
            .await;
        if round.answered() < majority(self.nodes.len()) {
            return Err(round.failure(Effect::Unknown, reports(&round)));
        }
        Ok(round)
    }
}

fn reports(round: &Round<EvictReply>) -> NodeReports {
    round.reports(|_| Vec::new())
}

/// Merges what another node removed: each record once, whichever nodes had it.
fn merge(removed: &mut Vec<EvictTarget>, more: &[EvictTarget], tokens: bool) {
    for target in more {
        if removed.iter().any(|known| known.key == target.key && known.id == target.id) {
            continue;
        }
        let mut target = target.clone();
        target.token = target.token.filter(|_| tokens);
        removed.push(target);
    }
}
