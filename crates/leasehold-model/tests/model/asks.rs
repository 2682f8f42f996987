//! What a client asks of the nodes, and how it gives up a request.

use leasehold_core::AcquireReply;
use leasehold_core::tally::{self, Answer as NodeAnswer};

use crate::client::{Asking, Client, Phase};
use crate::leasing::Leasing;
use crate::node::{Answer, Asked, Node, Request, Then};
use crate::promises::Event;
use crate::rules::Fault;
use crate::world::{Nodes, Step, World};

impl Leasing {
    /// Carries out a client's step, except deciding.
    pub(crate) fn step(&self, world: &mut World, client: usize, step: Step) {
        let attempt = world.clients[client].attempt;
        match step {
            Step::Try => self.start(world, client),
            Step::Renew { term } => {
                self.ask_again(world, client, Request::Renew { attempt, term, raise: 0 });
                world.clients[client].ask(Asking::Renewal { age: 0 });
            }
            Step::AcquireAgain => {
                self.ask_again(world, client, Request::Acquire { attempt, again: true });
                world.clients[client].ask(Asking::Again { age: 0 });
            }
            Step::Adopt => {
                let term = self.rules.term;
                self.ask_again(world, client, Request::Renew { attempt, term, raise: 0 });
                world.clients[client].phase = Phase::Adopting { age: 0 };
            }
            Step::Release if self.rules.awaits_release => self.release(world, client),
            Step::Release => self.end(world, client),
            Step::GiveUp => self.give_up(world, client),
            Step::Decide { .. } => unreachable!("it needs the decision of the quorum"),
        }
    }

    fn start(&self, world: &mut World, client: usize) {
        let number = self.rules.tries - world.tries + 1;
        let of = &mut world.clients[client];
        let reuses = self.rules.breaks(Fault::OneIdForAllTries) && of.attempt > 0;
        of.attempt = if reuses { of.attempt } else { number };
        of.phase = Phase::Acquiring { age: 0 };
        world.tries -= 1;
        let attempt = of.attempt;
        world.ask(client, |_| Some(Request::Acquire { attempt, again: false }));
    }

    /// Asks about a lease that is held already.
    fn ask_again(&self, world: &mut World, client: usize, request: Request) {
        world.renewals -= 1;
        let counts_all = self.rules.breaks(Fault::CountsUnsettled);
        world.ask(client, |node| {
            (counts_all || node.is_settled(request.attempt())).then_some(request)
        });
    }

    /// Ends the lease on every node, behind what may still add it there.
    fn release(&self, world: &mut World, client: usize) {
        let attempt = world.clients[client].attempt;
        world.close(client, Then::Nothing);
        for node in &mut world.nodes {
            node.take_back_late(attempt, &self.rules);
        }
        world.ask(client, |_| Some(Request::Release { attempt }));
        world.clients[client].phase = Phase::Releasing;
    }

    pub(crate) fn give_up(&self, world: &mut World, client: usize) {
        let Client { phase, attempt, .. } = world.clients[client];
        match phase {
            Phase::Holding { left, asking: Asking::Renewal { .. } } => {
                self.saw(Event::RenewalFailed);
                for node in &mut world.nodes {
                    let held = matches!(node.asked[client], Asked::Answered(Answer::Held { .. }));
                    if held && self.rules.breaks(Fault::PutsBack) {
                        node.send(Request::PutBack { attempt, rest: left }, Then::Nothing);
                    }
                }
                world.close(client, Then::Nothing);
                world.clients[client].ask(Asking::Nothing);
            }
            Phase::Holding { asking: Asking::Again { .. }, .. } => {
                let answers = world.acquired(client, Nodes::MAX, true);
                match self.acquired(&answers, None) {
                    Some(AcquireReply::Granted(_)) => {
                        world.close(client, Then::Nothing);
                        world.clients[client].ask(Asking::Nothing);
                    }
                    _ => self.take_fresh_back(world, client, &answers),
                }
            }
            Phase::Adopting { .. } => {
                world.close(client, Then::Nothing);
                world.clients[client].phase = Phase::Lost;
            }
            Phase::Releasing => self.leave(world, client),
            Phase::Acquiring { .. }
            | Phase::WritingBack { .. }
            | Phase::Idle
            | Phase::Lost
            | Phase::Holding { .. } => self.end(world, client),
        }
    }

    /// A re-acquire of a held lease failed: what it added is rolled back.
    pub(crate) fn take_fresh_back(
        &self,
        world: &mut World,
        client: usize,
        answers: &[NodeAnswer<AcquireReply>],
    ) {
        let attempt = world.clients[client].attempt;
        for (node, answer) in world.nodes.iter_mut().zip(answers) {
            if answer.as_ref().is_some_and(|answer| tally::rolls_back(answer, true)) {
                node.release(attempt, &self.rules);
            }
        }
        world.close(client, Then::ReleaseIfFresh);
        world.clients[client].ask(Asking::Nothing);
    }

    /// The attempt has ended: whatever it has, or may yet get, is released on every node that did not certainly
    /// refuse.
    pub(crate) fn end(&self, world: &mut World, client: usize) {
        let Client { attempt, phase, .. } = world.clients[client];
        let is_acquire = matches!(phase, Phase::Acquiring { .. });
        for node in &mut world.nodes {
            let answer = node.asked[client].acquired();
            let goes = !is_acquire || answer.is_none_or(|answer| tally::rolls_back(&answer, false));
            node.close(client, Then::Nothing);
            if goes {
                node.release(attempt, &self.rules);
            }
            if is_acquire && node.holds(attempt) {
                self.saw(Event::RolledBack);
            }
        }
        self.leave(world, client);
    }

    /// The client is done with its attempt.
    pub(crate) fn leave(&self, world: &mut World, client: usize) {
        let attempt = world.clients[client].attempt;
        world.close(client, Then::Nothing);
        // A client with one id for all tries must remember it.
        let remembered = if self.rules.breaks(Fault::OneIdForAllTries) { attempt } else { 0 };
        world.clients[client] = Client { attempt: remembered, ..Client::default() };
    }
}

impl World {
    /// Sends each node its request.
    pub(crate) fn ask(&mut self, client: usize, request: impl Fn(&Node) -> Option<Request>) {
        for node in &mut self.nodes {
            node.asked[client] = request(node).map_or(Asked::Nothing, Asked::Sent);
        }
    }
}
