//! Ends a lease by force, as `evict` does over a quorum: round after round.

use leasehold_core::tally::majority;

use crate::leasing::Leasing;
use crate::node::{Answer, Asked, BREAKER, Late, Node, Request, Then};
use crate::promises::Event;
use crate::rules::Fault;
use crate::world::{Action, World};

impl Leasing {
    /// Whether an operator may begin to end the client's lease.
    pub(crate) fn may_break(&self, world: &World, client: usize) -> bool {
        let of = &world.clients[client];
        let is_settled = |node: &Node| {
            let names = |late: &Late| late.request.attempt() == of.attempt;
            !matches!(node.asked[client], Asked::Sent(_)) && !node.late.iter().any(names)
        };
        of.believes() && (self.rules.breaks_unsettled || world.nodes.iter().all(is_settled))
    }

    pub(crate) fn begin_break(&self, world: &mut World, client: usize) {
        let of = &mut world.clients[client];
        of.broken = true;
        world.breaks -= 1;
        world.breaking = of.attempt;
        let attempt = of.attempt;
        world.ask(BREAKER, |_| Some(Request::Evict { attempt }));
    }

    /// The end of a round, if there may be one.
    pub(crate) fn judgement(&self, world: &World) -> Option<Action> {
        let nodes = world.nodes.len();
        let has_answered = |asked: Asked| matches!(asked, Asked::Answered(_));
        let answered = world.nodes.iter().filter(|node| has_answered(node.asked[BREAKER])).count();
        let may_miss = self.rules.breaks_unanswered && answered >= majority(nodes);
        (answered == nodes || may_miss).then_some(Action::JudgeBreak { last: answered < nodes })
    }

    /// Starts another round, unless fewer than a majority had the lease.
    pub(crate) fn judge_break(&self, world: &mut World) {
        let found = Asked::Answered(Answer::Evicted { found: true });
        let count = world.nodes.iter().filter(|node| node.asked[BREAKER] == found).count();
        let attempt = world.breaking;
        world.close(BREAKER, Then::Nothing);
        if count >= majority(world.nodes.len()) && !self.rules.breaks(Fault::BreaksOnce) {
            return world.ask(BREAKER, |_| Some(Request::Evict { attempt }));
        }
        self.saw(Event::Broken);
        world.breaking = 0;
        world.report_broken(attempt);
    }
}
