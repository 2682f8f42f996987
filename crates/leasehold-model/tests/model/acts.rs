//! What a client does when the quorum has answered.

use leasehold_core::tally::{self, Answer as NodeAnswer};
use leasehold_core::{
    AcquireReply, FencingToken, Granted, ReleaseOutcome, Remaining, RenewOutcome,
};

use crate::answers::{finite, made};
use crate::client::{Asking, Phase};
use crate::leasing::Leasing;
use crate::node::{Asked, Request, Then};
use crate::promises::{Event, Promise};
use crate::rules::Fault;
use crate::world::{Nodes, World};

/// The decision of a quorum.
#[derive(Debug)]
pub(crate) enum Verdict {
    Acquired(Vec<NodeAnswer<AcquireReply>>, AcquireReply),
    Renewed(RenewOutcome),
    Released(ReleaseOutcome),
}

impl Leasing {
    /// The quorum's decision on the client's request, as far as the read answers go; with `last`, as if the others
    /// had failed. `None` while it waits for more.
    pub(crate) fn verdict(
        &self,
        world: &World,
        client: usize,
        read: Nodes,
        last: bool,
    ) -> Option<Verdict> {
        let of = &world.clients[client];
        match of.phase {
            Phase::Acquiring { .. } | Phase::Holding { asking: Asking::Again { .. }, .. } => {
                let answers = world.acquired(client, read, last);
                let again = FencingToken::new(of.token.into()).ok();
                self.acquired(&answers, again).map(|verdict| Verdict::Acquired(answers, verdict))
            }
            Phase::WritingBack { .. }
            | Phase::Adopting { .. }
            | Phase::Holding { asking: Asking::Renewal { .. }, .. } => {
                made(tally::renew(&world.renewed(client, read, last))).map(Verdict::Renewed)
            }
            Phase::Releasing => {
                made(tally::release(&world.released(client, read, last))).map(Verdict::Released)
            }
            Phase::Idle | Phase::Lost | Phase::Holding { asking: Asking::Nothing, .. } => None,
        }
    }

    /// Acts on the quorum's decision.
    pub(crate) fn act(&self, world: &mut World, client: usize, verdict: Verdict) {
        match (world.clients[client].phase, verdict) {
            (
                Phase::Acquiring { age },
                Verdict::Acquired(answers, AcquireReply::Granted(granted)),
            ) => {
                self.granted(world, client, &answers, &granted, age);
            }
            (Phase::Acquiring { .. }, Verdict::Acquired(_, AcquireReply::Refused(_))) => {
                self.saw(Event::Refused);
                if !world.is_taken() {
                    self.saw(Event::SplitVote);
                }
                self.end(world, client);
            }
            (Phase::WritingBack { age, rest }, Verdict::Renewed(RenewOutcome::Held(_))) => {
                self.saw(Event::WrittenBack);
                self.hold(world, client, rest, age);
            }
            (
                Phase::Holding { asking: Asking::Renewal { age }, .. } | Phase::Adopting { age },
                Verdict::Renewed(RenewOutcome::Held(rest)),
            ) => self.renewed(world, client, rest, age),
            (
                Phase::Holding { asking: Asking::Again { age }, .. },
                Verdict::Acquired(answers, AcquireReply::Granted(granted)),
            ) => {
                if granted.fresh {
                    return self.granted(world, client, &answers, &granted, age);
                }
                self.saw(Event::ConfirmedAgain);
                self.confirmed(world, client, granted.remaining, age, Then::Nothing);
            }
            (Phase::Holding { .. }, Verdict::Acquired(answers, AcquireReply::Refused(_))) => {
                self.take_fresh_back(world, client, &answers);
            }
            (_, Verdict::Renewed(_)) => {
                self.saw(Event::Lost);
                self.end(world, client);
            }
            (_, Verdict::Released(_)) => {
                self.saw(Event::Released);
                self.leave(world, client);
            }
            (_, Verdict::Acquired(..)) => unreachable!("no such question was asked"),
        }
    }

    pub(crate) fn acquired(
        &self,
        answers: &[NodeAnswer<AcquireReply>],
        again: Option<FencingToken>,
    ) -> Option<AcquireReply> {
        let tokens = self.rules.fenced;
        if self.rules.breaks(Fault::HalfIsEnough) {
            // One node without a grant is not counted.
            let is_grant =
                |answer: &NodeAnswer<_>| matches!(answer, Some(Ok(AcquireReply::Granted(_))));
            let mut counted = answers.to_vec();
            let spared = counted.iter().position(|answer| !is_grant(answer)).unwrap_or(0);
            counted.remove(spared);
            return made(tally::acquire(&counted, again, tokens));
        }
        made(tally::acquire(answers, again, tokens))
    }

    /// A majority granted: the token is first written back, where needed.
    fn granted(
        &self,
        world: &mut World,
        client: usize,
        answers: &[NodeAnswer<AcquireReply>],
        granted: &Granted,
        age: u8,
    ) {
        let rest = finite(granted.remaining);
        let token = granted.token.filter(|_| self.rules.fenced);
        let token_of_lease = token.map_or(0, |token| u8::try_from(token.get()).expect("small"));
        let attempt = world.clients[client].attempt;
        world.clients[client].token = token_of_lease;
        let writes_back = token.is_some_and(|token| tally::needs_write_back(answers, token));
        if !writes_back || self.rules.breaks(Fault::NoWriteBack) {
            return self.hold(world, client, rest, age);
        }
        world.close(client, Then::Nothing);
        let request = Request::Renew { attempt, term: self.rules.term, raise: token_of_lease };
        for (node, answer) in world.nodes.iter_mut().zip(answers) {
            if matches!(answer, Some(Ok(AcquireReply::Granted(_)))) {
                node.asked[client] = Asked::Sent(request);
            }
        }
        world.clients[client].phase = Phase::WritingBack { age, rest };
    }

    /// The client has the grant, unless its term has passed.
    fn hold(&self, world: &mut World, client: usize, rest: u8, age: u8) {
        let left = self.rules.believed(rest, age);
        if left == 0 {
            return self.end(world, client);
        }
        world.close(client, Then::Nothing);
        self.saw(Event::Granted);
        if world.crashed(&self.rules) {
            self.saw(Event::GrantedAfterCrash);
        }
        for other in world.clients.iter_mut() {
            if other.phase == Phase::Lost {
                self.saw(Event::TakenOver);
            }
            other.superseded |= self.rules.adopts && other.phase != Phase::Idle;
        }
        let of = &mut world.clients[client];
        of.superseded = false;
        of.phase = Phase::Holding { left, asking: Asking::Nothing };
        let token = of.token;
        if self.rules.fenced {
            if token <= world.highest {
                self.broke(world, Promise::TokensGrow);
            }
            world.highest = world.highest.max(token);
        }
    }

    /// A majority still held the lease: it is put back where it is absent.
    fn renewed(&self, world: &mut World, client: usize, rest: Remaining, age: u8) {
        let attempt = world.clients[client].attempt;
        self.saw(Event::Renewed);
        if matches!(world.clients[client].phase, Phase::Adopting { .. }) {
            self.saw(Event::Adopted);
        }
        for node in &mut world.nodes {
            if tally::is_absent(&node.asked[client].renewed()) && node.may_add(attempt) {
                node.send(Request::Acquire { attempt, again: true }, Then::Nothing);
            }
        }
        self.confirmed(world, client, rest, age, Then::ReAdd);
    }

    fn confirmed(&self, world: &mut World, client: usize, rest: Remaining, age: u8, then: Then) {
        let left = self.rules.believed(finite(rest), age);
        if left == 0 {
            return self.end(world, client);
        }
        world.close(client, then);
        let of = &mut world.clients[client];
        let left = match of.phase {
            Phase::Holding { left: before, .. } => before.max(left),
            _ => left,
        };
        of.phase = Phase::Holding { left, asking: Asking::Nothing };
        if of.superseded {
            self.broke(world, Promise::NoRevival);
        }
    }
}
