//! The transition system that is searched.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use stateright::{Model, Property};

use crate::client::{Client, Phase};
use crate::node::{Answer, Asked, Request, Then};
use crate::promises::{BACKED, EXCLUSION, Event, LEFT, OVER, Promise, REVIVAL, TOKENS};
use crate::rules::{Names, Rules};
use crate::world::{Action, Nodes, Step, World};

/// The transition system that is searched.
#[derive(Debug, Clone)]
pub(crate) struct Leasing {
    pub(crate) rules: Rules,
    pub(crate) names: Arc<Names>,
    /// What happens before the search begins.
    before: Vec<Action>,
    /// The only promise to check; `None` for all.
    only: Option<&'static str>,
    /// Not in the state, which it would multiply.
    seen: Arc<AtomicU32>,
}

impl Leasing {
    pub(crate) fn new(rules: Rules, before: Vec<Action>, only: Option<&'static str>) -> Self {
        let names = Arc::new(Names::new(&rules));
        Self { rules, names, before, only, seen: Arc::default() }
    }

    /// The last step broke a promise.
    pub(crate) fn broke(&self, world: &mut World, promise: Promise) {
        if self.only.is_none_or(|only| only == promise.name()) {
            world.broken = Some(promise);
        }
    }

    pub(crate) fn saw(&self, event: Event) {
        let bit = 1 << (event as u32);
        if self.seen.load(Ordering::Relaxed) & bit == 0 {
            self.seen.fetch_or(bit, Ordering::Relaxed);
        }
    }

    pub(crate) fn has_seen(&self, event: Event) -> bool {
        self.seen.load(Ordering::Relaxed) & (1 << (event as u32)) != 0
    }

    fn deliver_late(&self, world: &mut World, node: usize, at: usize) {
        let of = &mut world.nodes[node];
        let had_forgotten = of.forgot;
        let late = of.late.remove(at);
        let attempt = late.request.attempt();
        let answer = of.execute(late.request, &self.rules, &self.names);
        match late.then {
            Then::Nothing => {}
            Then::Release => of.release(attempt, &self.rules),
            Then::ReleaseIfFresh if matches!(answer, Answer::Granted { fresh: true, .. }) => {
                of.release(attempt, &self.rules);
            }
            Then::ReAdd if answer == Answer::Lost && of.may_add(attempt) => {
                of.send(Request::Acquire { attempt, again: true }, Then::Nothing);
            }
            Then::ReleaseIfFresh | Then::ReAdd => {}
        }
        let is_re_add = late.request == (Request::Acquire { attempt, again: true });
        if is_re_add && matches!(answer, Answer::Granted { fresh: true, .. }) {
            self.saw(Event::ReAdded);
            if had_forgotten {
                self.saw(Event::Healed);
            }
        }
    }
}

impl Model for Leasing {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let begin = |world, action: &Action| {
            self.next_state(&world, action.clone()).expect("it may happen")
        };
        vec![self.before.iter().fold(World::new(&self.rules), begin)]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        if world.broken.is_some() {
            return;
        }
        for (at, node) in world.nodes.iter().enumerate() {
            if at > 0 && *node == world.nodes[at - 1] {
                continue;
            }
            for (client, asked) in node.asked.iter().enumerate() {
                if matches!(asked, Asked::Sent(_)) {
                    actions.push(Action::Deliver { node: at, client });
                }
            }
            for late in 0..node.late.len() {
                if late == 0 || node.late[late] != node.late[late - 1] {
                    actions.push(Action::DeliverLate { node: at, at: late });
                }
            }
            if world.crashes > 0 {
                actions.push(Action::Forget { node: at });
            }
            if self.rules.drift && !node.gained {
                actions.push(Action::Gain { node: at });
            }
        }
        for (client, of) in world.clients.iter().enumerate() {
            // Idle clients are interchangeable.
            if client > 0 && of.phase == Phase::Idle && *of == world.clients[client - 1] {
                continue;
            }
            let answered: Nodes = (0u8..)
                .zip(&world.nodes)
                .filter(|(_, node)| matches!(node.asked[client], Asked::Answered(_)))
                .map(|(at, _)| 1 << at)
                .sum();
            of.steps(world, &self.rules, answered, |step| {
                actions.push(Action::Client { client, step });
            });
            if world.breaks > 0 && world.breaking == 0 && self.may_break(world, client) {
                actions.push(Action::Break { client });
            }
        }
        if world.breaking > 0 {
            actions.extend(self.judgement(world));
        }
        actions.push(Action::Tick);
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        if let Action::Client { client, step: Step::Decide { read, last } } = action {
            let verdict = self.verdict(world, client, read, last)?;
            let mut next = world.clone();
            if !world.backs(&verdict, client, read) {
                self.broke(&mut next, Promise::MajoritySaidSo);
            }
            self.act(&mut next, client, verdict);
            next.tidy();
            return Some(next);
        }
        let mut next = world.clone();
        match action {
            Action::Tick => next.tick(self),
            Action::Gain { node } => {
                next.nodes[node].tick();
                next.nodes[node].gained = true;
            }
            Action::Forget { node } => {
                next.crashes -= 1;
                next.nodes[node].forget(&self.rules);
            }
            Action::Deliver { node, client } => {
                let of = &mut next.nodes[node];
                let Asked::Sent(request) = of.asked[client] else { return None };
                of.asked[client] = Asked::Answered(of.execute(request, &self.rules, &self.names));
            }
            Action::DeliverLate { node, at } => self.deliver_late(&mut next, node, at),
            Action::Break { client } => self.begin_break(&mut next, client),
            Action::JudgeBreak { .. } => self.judge_break(&mut next),
            Action::Client { client, step } => self.step(&mut next, client, step),
        }
        next.tidy();
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let all = vec![
            Property::always(EXCLUSION, |_, world: &World| {
                let believes = |client: &&Client| client.believes() && !client.broken;
                world.clients.iter().filter(believes).count() <= 1
            }),
            Property::always(TOKENS, |_, world: &World| world.broken != Some(Promise::TokensGrow)),
            Property::always(REVIVAL, |_, world: &World| world.broken != Some(Promise::NoRevival)),
            Property::always(LEFT, |_, world: &World| !world.leaves_something()),
            Property::always(BACKED, |_, world: &World| {
                world.broken != Some(Promise::MajoritySaidSo)
            }),
            Property::always(OVER, |model: &Self, world: &World| {
                let is_promised = model.only.is_some() || !model.rules.breaks_blindly();
                !is_promised || !world.outlives_break()
            }),
        ];
        all.into_iter().filter(|it| self.only.is_none_or(|only| only == it.name)).collect()
    }
}
