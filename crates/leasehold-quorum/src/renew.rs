use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use leasehold_core::tally::{self, Decision};
use leasehold_core::{
    AcquireReply, AcquireRequest, Effect, Error, NodeOutcome, RenewEntry, RenewOutcome, RenewReply,
    RenewRequest, Result, Store,
};
use tokio::sync::watch;

use crate::inner::Inner;
use crate::leases::Each;
use crate::round::Round;
use crate::turns::LeaseTurns;

/// How many leases are put back on one node at a time.
const PUT_BACK: usize = 16;

/// One renewal in progress.
struct Renewing {
    quorum: Arc<Inner>,
    request: RenewRequest,
    started: Duration,
    /// Of each lease its turns, and how often it had been ended when this began.
    leases: Vec<(Arc<LeaseTurns>, u64)>,
}

/// Of each lease, whether a majority was seen to hold it.
type HeldBy = Arc<[bool]>;

impl Inner {
    /// Extends leases that a majority still holds, and puts them back where they are absent.
    pub(crate) async fn renew(self: &Arc<Self>, request: &RenewRequest) -> Result<RenewReply> {
        let leases = request.leases().iter().map(|renewal| {
            let lease = self.turns.of(renewal.id());
            let ends = lease.ends();
            (lease, ends)
        });
        let renewing = Arc::new(Renewing {
            quorum: Arc::clone(self),
            request: request.clone(),
            started: self.clock.now(),
            leases: leases.collect(),
        });
        let shortest = request.leases().iter().filter_map(|lease| lease.to().duration()).min();
        let mut round = Round::new(self, "renew", self.limits.of_term(shortest));
        let (seen, held) = watch::channel(None);
        for at in 0..self.nodes.len() {
            let (renewing, reporter) = (Arc::clone(&renewing), round.reporter(at));
            let held = held.clone();
            self.spawn(async move {
                let answer = renewing.ask(at).await;
                let absent = renewing.absent(&answer);
                reporter.tell(answer);
                renewing.put_back(at, absent, held).await;
            });
        }
        let decisions = round.decide_each(request.leases().len(), tally::renew).await;
        let is_held = |decision: &_| matches!(decision, Decision::Made(RenewOutcome::Held(_)));
        seen.send_replace(Some(decisions.iter().map(is_held).collect::<HeldBy>()));
        let (leases, nodes) = round.conclude(decisions, outcome, RenewOutcome::Failed)?;
        let mut renewed = RenewReply::new(leases);
        renewed.nodes = nodes;
        Ok(renewed)
    }
}

impl Renewing {
    /// Renews on one node those leases that no other request is about there: what an acquire put there may
    /// yet be taken back, and does not count.
    async fn ask(&self, node: usize) -> Result<Each<RenewOutcome>> {
        let marks: Vec<_> = self.leases.iter().map(|(lease, _)| lease.idle(node)).collect();
        let asked: Vec<_> = self
            .request
            .leases()
            .iter()
            .zip(&marks)
            .filter_map(|(renewal, mark)| mark.map(|_| renewal.clone()))
            .collect();
        let unsure = || {
            Err(Error::unavailable(
                Effect::Unknown,
                "another request that names the lease is not answered yet",
            ))
        };
        let mut answers = if asked.is_empty() {
            Vec::new().into_iter()
        } else {
            let leases = self.leases.iter().zip(&marks).filter(|(_, mark)| mark.is_some());
            let _renewing: Vec<_> = leases.map(|((lease, _), _)| lease.renewing(node)).collect();
            let renewed = self.quorum.nodes[node].store.renew(&RenewRequest::new(asked)).await?;
            renewed.leases.into_iter()
        };
        let leases = self.leases.iter().zip(marks);
        Ok(leases
            .map(|((lease, _), mark)| {
                let answer = mark.and_then(|_| answers.next());
                match answer {
                    Some(RenewOutcome::Failed(error)) => Err(error),
                    Some(answer) if lease.idle(node) == mark => Ok(answer),
                    Some(_) | None => unsure(),
                }
            })
            .collect())
    }

    /// The leases that the node does not have.
    fn absent(&self, answer: &Result<Each<RenewOutcome>>) -> Vec<usize> {
        let Ok(leases) = answer else { return Vec::new() };
        let is_absent = |lease: &Result<RenewOutcome>| tally::is_absent(&Some(lease.clone()));
        leases.iter().enumerate().filter(|(_, l)| is_absent(l)).map(|(lease, _)| lease).collect()
    }

    /// Puts back on a node what a majority was seen to hold and the node does not have, so that a restarted
    /// node heals. It counts from the next renewal on, not for this one: else a lease that expired or was
    /// broken would revive.
    async fn put_back(
        &self,
        node: usize,
        absent: Vec<usize>,
        mut held: watch::Receiver<Option<HeldBy>>,
    ) {
        // Without a majority's answer, because the caller went away, nothing is put back.
        let Ok(held) = held.wait_for(Option::is_some).await.map(|held| held.clone()) else {
            return;
        };
        let held = held.unwrap_or_default();
        let absent = absent.into_iter().filter(|lease| held.get(*lease) == Some(&true));
        stream::iter(absent)
            .for_each_concurrent(PUT_BACK, |lease| self.put_one_back(node, lease))
            .await;
    }

    async fn put_one_back(&self, node: usize, lease: usize) {
        let renewal = &self.request.leases()[lease];
        let (turns, ends) = &self.leases[lease];
        let Some(term) = renewal.to().duration() else { return };
        // Later than a term it could only disturb others.
        if self.quorum.clock.now() >= self.started.saturating_add(term) {
            return;
        }
        // Taken at once, so that a release that comes now follows it; one that came already forbids it.
        let Some(turn) = turns.put_back(node, *ends) else { return };
        let store = &self.quorum.nodes[node].store;
        let token = renewal.token().max(renewal.raise()).filter(|_| self.quorum.can.tokens);
        if let Ok(AcquireReply::Granted(_)) = store.acquire(&again(renewal)).await {
            if let Some(token) = token {
                let raised = renewal.clone().with_token_raised_to(token);
                // If it fails, the lease is there with a token of the node's own.
                drop(store.renew(&RenewRequest::new(vec![raised])).await);
            }
        }
        drop(turn);
    }
}

/// The acquire that puts a lease back.
fn again(renewal: &RenewEntry) -> AcquireRequest {
    let request = AcquireRequest::new(renewal.id().clone(), renewal.claims().clone(), renewal.to())
        .with_note(renewal.note().clone())
        .again(renewal.token());
    match renewal.group() {
        Some(group) => request.with_group(group.clone()),
        None => request,
    }
}

pub(crate) fn outcome(renewed: &RenewOutcome) -> NodeOutcome {
    match renewed {
        RenewOutcome::Held(_) => NodeOutcome::Renewed,
        RenewOutcome::Lost(_) => NodeOutcome::Lost,
        RenewOutcome::Failed(error) => NodeOutcome::Failed(error.clone()),
    }
}
