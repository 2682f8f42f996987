use std::sync::Arc;

use leasehold_core::tally;
use leasehold_core::{
    NodeOutcome, ReleaseEntry, ReleaseOutcome, ReleaseReply, ReleaseRequest, Result, Store,
};

use crate::inner::Inner;
use crate::leases::LeaseReporter;
use crate::queues::{Place, next_turns};
use crate::round::Round;

impl Inner {
    /// Ends leases on every node, after the requests that may have put them there.
    pub(crate) async fn release(
        self: &Arc<Self>,
        request: &ReleaseRequest,
    ) -> Result<ReleaseReply> {
        let named = request.leases().iter().map(|lease| (lease.id(), lease.keys().iter()));
        let places = self.queues.join(false, named);
        let leases = request.leases().iter().cloned().map(ReleaseEntry::without_token);
        let request = Arc::new(ReleaseRequest::new(leases.collect()));
        let (mut round, reporters) = Round::new(self, "release", self.limits.of_term(None));
        for (node, (places, reporter)) in places.into_iter().zip(reporters).enumerate() {
            let reporter = Arc::new(LeaseReporter::new(reporter, places.len()));
            let (quorum, request) = (Arc::clone(self), Arc::clone(&request));
            self.spawn(quorum.release_in_turn(node, request, places, reporter));
        }
        if self.limits.release_waits {
            round.all().await;
        }
        let decisions = round.decide_each(request.leases().len(), tally::release).await;
        let (leases, nodes) = round.conclude(decisions, outcome, ReleaseOutcome::Failed)?;
        let mut released = ReleaseReply::new(leases);
        released.nodes = nodes;
        Ok(released)
    }

    /// Releases each lease on a node when its turn there comes, several together where possible. A lease whose
    /// turn does not come soon is released anyway, and again when its turn has come.
    async fn release_in_turn(
        self: Arc<Self>,
        node: usize,
        request: Arc<ReleaseRequest>,
        mut waiting: Vec<Place>,
        reporter: Arc<LeaseReporter<ReleaseOutcome>>,
    ) {
        let soon = self.clock.now().saturating_add(self.limits.of_term(None) / 2);
        while let Some(Some(turns)) = self.within(soon, next_turns(&mut waiting)).await {
            let part = only(&request, &turns);
            if waiting.is_empty() {
                return self.release_once(node, part, turns, reporter).await;
            }
            let (quorum, reporter) = (Arc::clone(&self), Arc::clone(&reporter));
            self.spawn(quorum.release_once(node, part, turns, reporter));
        }
        let (quorum, part) = (Arc::clone(&self), only(&request, &waiting));
        self.spawn(quorum.release_once(node, part, waiting.clone(), reporter));
        while let Some(turns) = next_turns(&mut waiting).await {
            let (quorum, again) = (Arc::clone(&self), only(&request, &turns));
            self.spawn(async move { quorum.release_surely(node, &again, &turns).await });
        }
    }

    async fn release_once(
        self: Arc<Self>,
        node: usize,
        request: Arc<ReleaseRequest>,
        places: Vec<Place>,
        reporter: Arc<LeaseReporter<ReleaseOutcome>>,
    ) {
        let released = self.nodes[node].store.release(&request).await;
        let each = |lease| match lease {
            ReleaseOutcome::Failed(error) => Err(error),
            released => Ok(released),
        };
        let each = released.map(|all| all.leases.into_iter().map(each).collect());
        reporter.report(&places, each);
    }
}

/// The part of a request about these of its leases.
fn only(request: &Arc<ReleaseRequest>, places: &[Place]) -> Arc<ReleaseRequest> {
    if places.len() == request.leases().len() {
        return Arc::clone(request);
    }
    let leases = places.iter().map(|place| request.leases()[place.lease()].clone());
    Arc::new(ReleaseRequest::new(leases.collect()))
}

fn outcome(released: &ReleaseOutcome) -> NodeOutcome {
    match released {
        ReleaseOutcome::Released => NodeOutcome::Released,
        ReleaseOutcome::Kept(_) => NodeOutcome::Kept,
        ReleaseOutcome::Expired => NodeOutcome::Expired,
        ReleaseOutcome::NotHeld => NodeOutcome::NotHeld,
        ReleaseOutcome::Failed(error) => NodeOutcome::Failed(error.clone()),
    }
}
