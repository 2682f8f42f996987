use std::collections::HashMap;
use std::sync::Arc;

use futures_util::future::{join, join_all};
use leasehold_core::tally;
use leasehold_core::{
    LeaseId, NodeOutcome, ReleaseOutcome, ReleaseReply, ReleaseRequest, Result, Store,
};

use crate::inner::Inner;
use crate::leases::Each;
use crate::round::{Reporter, Round};
use crate::turns::Turn;

impl Inner {
    /// Ends leases on every node, behind whatever put them there.
    pub(crate) async fn release(
        self: &Arc<Self>,
        request: &ReleaseRequest,
    ) -> Result<ReleaseReply> {
        // A request may name one lease several times, and would wait for itself.
        let leases: HashMap<_, _> = request
            .leases()
            .iter()
            .map(|ending| (ending.id().clone(), self.turns.of(ending.id())))
            .collect();
        leases.values().for_each(|lease| lease.end());
        let request = Arc::new(request.clone());
        let mut round = Round::new(self, "release", self.limits.of_term(None));
        for at in 0..self.nodes.len() {
            let turns = leases.iter().map(|(id, lease)| (id.clone(), lease.take(at))).collect();
            let (quorum, request, reporter) =
                (Arc::clone(self), Arc::clone(&request), round.reporter(at));
            self.spawn(async move { quorum.release_on(at, &request, turns, reporter).await });
        }
        drop(leases);
        let decisions = round.decide_each(request.leases().len(), tally::release).await;
        let (leases, nodes) = round.conclude(decisions, outcome, ReleaseOutcome::Failed)?;
        let mut released = ReleaseReply::new(leases);
        released.nodes = nodes;
        Ok(released)
    }

    /// Releases on one node. A lease whose acquire is not answered soon is released all the same, and once
    /// more when that answer has come.
    async fn release_on(
        self: &Arc<Self>,
        node: usize,
        request: &ReleaseRequest,
        turns: Vec<(LeaseId, Turn)>,
        reporter: Reporter<Each<ReleaseOutcome>>,
    ) {
        let soon = self.clock.now().saturating_add(self.limits.of_term(None) / 2);
        let ready = join_all(turns.iter().map(|(_, turn)| turn.ready()));
        let all_ready = self.within(soon, async { ready.await.truncate(0) }).await;
        // Every turn lasts until this is answered too.
        let held: Vec<_> = turns.iter().map(|(_, turn)| turn.clone()).collect();
        let first = async move {
            let released = self.nodes[node].store.release(request).await;
            let each = |lease| match lease {
                ReleaseOutcome::Failed(error) => Err(error),
                released => Ok(released),
            };
            reporter.tell(released.map(|all| all.leases.into_iter().map(each).collect()));
            drop(held);
        };
        if all_ready {
            return first.await;
        }
        let late = turns.into_iter().map(|(id, turn)| async move {
            turn.ready().await;
            let of_id = request.leases().iter().filter(|ending| *ending.id() == id).cloned();
            let until = self.clock.now().saturating_add(self.limits.release);
            self.release_surely(node, &ReleaseRequest::new(of_id.collect()), &turn, until).await;
        });
        join(first, join_all(late)).await;
    }
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
