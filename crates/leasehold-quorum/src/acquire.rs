use std::iter;
use std::slice::from_ref;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use leasehold_core::tally::{self, Decision, Verdict};
use leasehold_core::{
    AcquireReply, AcquireRequest, Effect, Error, ErrorKind, FencingToken, NodeOutcome,
    RefusalReason, ReleaseEntry, ReleaseRequest, RenewEntry, RenewOutcome, RenewRequest, Result,
    Store,
};

use crate::inner::Inner;
use crate::queues::Place;
use crate::renew::outcome as renewed;
use crate::round::Round;

/// One acquire in progress, with everything that its roll-back needs.
struct Attempt {
    quorum: Arc<Inner>,
    request: Arc<AcquireRequest>,
    /// What each node that has answered may hold.
    acted: Vec<Arc<OnceLock<Acted>>>,
    /// Kept until it is decided whether the grants stay: until then no renewal counts them.
    places: Vec<Place>,
}

/// What an acquire may have left on one node.
#[derive(Clone, Copy)]
struct Acted {
    /// Part of this lease, perhaps from an earlier request.
    perhaps: bool,
    /// Something that the node did not hold before.
    fresh: bool,
}

impl Inner {
    /// Takes all claims on a majority, or rolls back.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        request: &AcquireRequest,
    ) -> Result<AcquireReply> {
        let attempt = Attempt {
            quorum: Arc::clone(self),
            request: Arc::new(request.clone()),
            places: self.join(true, request),
            acted: self.nodes.iter().map(|_| Arc::default()).collect(),
        };
        let limit = self.limits.of_term(request.term().duration());
        let mut round = attempt.send(limit);
        let again = request.is_again().flatten();
        let decision = round
            .decide(|answers| match tally::acquire(answers, again, self.can.tokens) {
                Decision::Open => None,
                decision => Some(decision),
            })
            .await;
        let nodes = round.reports(|acquired| vec![outcome(acquired)]);
        match decision {
            Some(Decision::Made(AcquireReply::Granted(mut granted))) => {
                if let Some(token) = granted.token {
                    attempt.write_back(&round, token, limit).await?;
                }
                granted.nodes = nodes;
                Ok(AcquireReply::Granted(granted))
            }
            Some(Decision::Made(AcquireReply::Refused(mut refused))) => {
                attempt.roll_back(&round, request.is_again().is_some());
                self.hide_token(&mut refused.why);
                refused.nodes = nodes;
                Ok(AcquireReply::Refused(refused))
            }
            Some(Decision::Open | Decision::Undecided) | None => {
                // Rolled back: the id must not be used again, so the request must not be sent again (C10).
                let error = round.failure(Effect::NotApplied, nodes);
                let is_elsewhere = error.kind() == ErrorKind::InvalidInput;
                attempt.roll_back(&round, is_elsewhere || request.is_again().is_some());
                Err(match tally::retry_after(&round.answers) {
                    Some(after) => error.with_retry_after(after),
                    None => error,
                })
            }
        }
    }

    /// The places of its only lease.
    fn join(&self, adds: bool, request: &AcquireRequest) -> Vec<Place> {
        let lease = (request.id(), request.claims().keys());
        self.queues.join(adds, iter::once(lease)).into_iter().flatten().collect()
    }

    fn hide_token(&self, why: &mut RefusalReason) {
        if let RefusalReason::Held(Some(holder)) = why {
            holder.token = holder.token.filter(|_| self.can.tokens);
        }
    }
}

impl Attempt {
    /// Sends the request to each node when its turn comes.
    fn send(&self, limit: Duration) -> Round<AcquireReply> {
        let (round, reporters) = Round::new(&self.quorum, "acquire", limit);
        let until = round.until();
        for (at, reporter) in reporters.into_iter().enumerate() {
            let place = self.places[at].clone();
            let quorum = Arc::clone(&self.quorum);
            let (request, acted) = (Arc::clone(&self.request), Arc::clone(&self.acted[at]));
            self.quorum.spawn(async move {
                let is_turn = quorum.within(until, place.turn()).await.is_some();
                let (answer, left) = if is_turn {
                    let answer = quorum.nodes[at].store.acquire(&request).await;
                    let [perhaps, fresh] =
                        [false, true].map(|again| tally::rolls_back(&answer, again));
                    (answer, Acted { perhaps, fresh })
                } else {
                    let message = "an earlier request for this lease is not answered yet";
                    let error = Error::unavailable(Effect::NotApplied, message);
                    (Err(error), Acted { perhaps: true, fresh: false })
                };
                acted.set(left).unwrap_or_default();
                // A caller that has the answer may renew at once.
                drop(place);
                reporter.report(answer);
            });
        }
        round
    }

    /// Writes the token to a majority, under the lease, or rolls the grant back. Nodes create tokens from their own clocks:
    /// without this, another majority could next grant a smaller token.
    async fn write_back(
        &self,
        granted: &Round<AcquireReply>,
        token: FencingToken,
        limit: Duration,
    ) -> Result<()> {
        if !tally::needs_write_back(&granted.answers, token) {
            return Ok(());
        }
        let (id, claims) = (self.request.id().clone(), self.request.claims().clone());
        let renewal =
            RenewEntry::extend(id, claims, self.request.term()).with_token_raised_to(token);
        let renew = Arc::new(RenewRequest::new(vec![renewal]));
        // Until a node has answered, no later lease of the id begins there.
        let places = self.quorum.join(false, &self.request);
        let (mut round, reporters) = Round::new(&self.quorum, "acquire", limit);
        for (at, reporter) in reporters.into_iter().enumerate() {
            match &granted.answers[at] {
                Some(Ok(AcquireReply::Granted(_))) => {
                    let (renew, store) = (Arc::clone(&renew), self.quorum.nodes[at].store.clone());
                    let place = places[at].clone();
                    self.quorum.spawn(async move {
                        let renewed = store.renew(&renew).await;
                        drop(place);
                        reporter.report(renewed.map(|renewed| renewed.leases));
                    });
                }
                Some(Err(error)) => reporter.report(Err(error.clone())),
                _ => reporter.report(Err(Error::unavailable(Effect::Unknown, "it did not grant"))),
            }
        }
        let vote = |leases: &Vec<RenewOutcome>| match leases.first() {
            Some(RenewOutcome::Held(_)) => Some(true),
            Some(RenewOutcome::Lost(_)) => Some(false),
            _ => None,
        };
        let verdict = round
            .decide(|answers| match tally::Tally::of(answers, vote).verdict() {
                Verdict::Open => None,
                verdict => Some(verdict),
            })
            .await;
        if verdict == Some(Verdict::Yes) {
            return Ok(());
        }
        self.roll_back(granted, self.request.is_again().is_some());
        let message = "a majority granted, but no majority accepted the grant's token, so the grant was rolled back";
        Err(Error::unavailable(Effect::NotApplied, message)
            .with_nodes(round.reports(|leases| leases.iter().map(renewed).collect())))
    }

    /// Rolls back, in the background, what was or may have been granted: also on nodes that did not answer.
    ///
    /// If the caller may already hold the lease, or holds it in another mode, only what is certainly fresh is
    /// rolled back. Waiters are woken only if a majority may have granted: those whom a minority refused do not wait
    /// for a wake-up.
    fn roll_back(&self, round: &Round<AcquireReply>, only_fresh: bool) {
        let keys = self.request.claims().keys().cloned();
        let mut ending = ReleaseEntry::new(self.request.id().clone(), keys);
        if !tally::may_have_granted(&round.answers) {
            ending = ending.without_wakeup();
        }
        let release = Arc::new(ReleaseRequest::new(vec![ending]));
        let places = self.quorum.join(false, &self.request);
        for (at, (acted, place)) in self.acted.iter().zip(places).enumerate() {
            let is_left = move |acted: &Acted| if only_fresh { acted.fresh } else { acted.perhaps };
            if acted.get().is_some_and(|acted| !is_left(acted)) {
                continue;
            }
            let (quorum, release, acted) =
                (Arc::clone(&self.quorum), Arc::clone(&release), Arc::clone(acted));
            self.quorum.spawn(async move {
                // Without an answer it is unknown what is fresh.
                if !only_fresh {
                    let soon = quorum.clock.now().saturating_add(quorum.limits.of_term(None));
                    let answered = quorum.within(soon, place.turn()).await.is_some();
                    if acted.get().is_none_or(is_left) {
                        quorum.release_surely(at, &release, from_ref(&place)).await;
                    }
                    if answered {
                        return;
                    }
                }
                place.turn().await;
                if acted.get().is_some_and(is_left) {
                    quorum.release_surely(at, &release, from_ref(&place)).await;
                }
            });
        }
    }
}

fn outcome(acquired: &AcquireReply) -> NodeOutcome {
    match acquired {
        AcquireReply::Granted(_) => NodeOutcome::Granted,
        AcquireReply::Refused(_) => NodeOutcome::Refused,
    }
}
