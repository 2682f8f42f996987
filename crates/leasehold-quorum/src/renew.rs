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
use crate::leases::LeaseReporter;
use crate::queues::{Place, next_turns};
use crate::round::Round;

/// How many leases are put back on one node at a time.
const PUT_BACK: usize = 16;

/// One renewal in progress.
struct Renewing {
    quorum: Arc<Inner>,
    request: RenewRequest,
    started: Duration,
}

/// For each lease, whether a majority was seen to hold it.
type HeldBy = Arc<[bool]>;

impl Inner {
    /// Extends leases that a majority still holds, and puts them back on nodes that lack them.
    pub(crate) async fn renew(self: &Arc<Self>, request: &RenewRequest) -> Result<RenewReply> {
        let named = request.leases().iter().map(|lease| (lease.id(), lease.claims().keys()));
        let places = self.queues.join(false, named);
        let renewing = Arc::new(Renewing {
            quorum: Arc::clone(self),
            request: request.clone(),
            started: self.clock.now(),
        });
        let shortest = request.leases().iter().filter_map(|lease| lease.term().duration()).min();
        let (mut round, reporters) = Round::new(self, "renew", self.limits.of_renewal(shortest));
        let until = round.until();
        let (seen, held) = watch::channel(None);
        for (node, (places, reporter)) in places.into_iter().zip(reporters).enumerate() {
            let reporter = Arc::new(LeaseReporter::new(reporter, places.len()));
            let (renewing, held) = (Arc::clone(&renewing), held.clone());
            self.spawn(renewing.ask_in_turn(node, places, until, reporter, held));
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
    /// Sends a node the renewal of each lease when its turn there comes, several together where possible. Behind a
    /// request that may add the lease there, the node does not count: the others voted before that, and a lease
    /// that was broken meanwhile would revive.
    async fn ask_in_turn(
        self: Arc<Self>,
        node: usize,
        mut waiting: Vec<Place>,
        until: Duration,
        reporter: Arc<LeaseReporter<RenewOutcome>>,
        held: watch::Receiver<Option<HeldBy>>,
    ) {
        let (unsure, rest): (Vec<_>, _) = waiting.into_iter().partition(Place::follows_addition);
        waiting = rest;
        if !unsure.is_empty() {
            let message = "another request for this lease is not answered yet";
            reporter.report(&unsure, Err(Error::unavailable(Effect::Unknown, message)));
        }
        drop(unsure);
        while let Some(Some(turns)) = self.quorum.within(until, next_turns(&mut waiting)).await {
            if waiting.is_empty() {
                return self.ask(node, turns, reporter, held).await;
            }
            let (renewing, reporter) = (Arc::clone(&self), Arc::clone(&reporter));
            self.quorum.spawn(renewing.ask(node, turns, reporter, held.clone()));
        }
    }

    async fn ask(
        self: Arc<Self>,
        node: usize,
        mut turns: Vec<Place>,
        reporter: Arc<LeaseReporter<RenewOutcome>>,
        held: watch::Receiver<Option<HeldBy>>,
    ) {
        let named = |place: &Place| self.request.leases()[place.lease()].clone().without_token();
        let leases = turns.iter().map(named);
        let request = RenewRequest::new(leases.collect());
        let answer = self.quorum.nodes[node].store.renew(&request).await.map(|renewed| {
            let each = renewed.leases.into_iter().map(|lease| match lease {
                RenewOutcome::Failed(error) => Err(error),
                answer => Ok(answer),
            });
            each.collect::<Vec<_>>()
        });
        reporter.report(&turns, answer.clone());
        drop(reporter);
        let mut answers = answer.unwrap_or_default().into_iter();
        turns.retain(|_| tally::is_absent(&answers.next()));
        self.put_back(node, turns, held).await;
    }

    /// Puts back what a majority holds and the node lacks, so that a restarted node recovers. The node counts from
    /// the next renewal on, not for this one: else an expired or broken lease would revive.
    async fn put_back(
        &self,
        node: usize,
        absent: Vec<Place>,
        mut held: watch::Receiver<Option<HeldBy>>,
    ) {
        // If the caller went away before a majority answered, nothing is put back.
        let Ok(held) = held.wait_for(Option::is_some).await.map(|held| held.clone()) else {
            return;
        };
        let held = held.unwrap_or_default();
        let absent = absent.into_iter().filter(|place| held.get(place.lease()) == Some(&true));
        stream::iter(absent)
            .for_each_concurrent(PUT_BACK, |place| self.put_one_back(node, place))
            .await;
    }

    async fn put_one_back(&self, node: usize, place: Place) {
        let renewal = &self.request.leases()[place.lease()];
        let Some(term) = renewal.term().duration() else { return };
        // After the term it could only block others. A later request finds out by itself.
        let is_late = self.quorum.clock.now() >= self.started.saturating_add(term);
        if is_late || !place.add_if_last() {
            return;
        }
        let store = &self.quorum.nodes[node].store;
        let token = renewal.token().max(renewal.raise()).filter(|_| self.quorum.can.tokens);
        if let Ok(AcquireReply::Granted(_)) = store.acquire(&again(renewal)).await {
            if let Some(token) = token {
                let raised = renewal.clone().without_token().with_token_raised_to(token);
                // If it fails, the lease has the node's own token there.
                drop(store.renew(&RenewRequest::new(vec![raised])).await);
            }
        }
        drop(place);
    }
}

/// The acquire that puts a lease back.
fn again(renewal: &RenewEntry) -> AcquireRequest {
    let request =
        AcquireRequest::new(renewal.id().clone(), renewal.claims().clone(), renewal.term())
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
