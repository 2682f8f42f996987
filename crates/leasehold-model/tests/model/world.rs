//! All nodes and clients, and what may happen next.

use crate::client::Client;
use crate::leasing::Leasing;
use crate::node::{Asked, BREAKER, MAX_CLIENTS, Node, Then};
use crate::promises::{Event, Promise};
use crate::rules::{Fault, Rules};

/// What names a lease, see [`Client`].
const ATTEMPTS: [u8; 7] = [1, 2, 3, 4, 5, 6, 7];

/// One state of the whole system. Time is relative: a tick brings everything one tick nearer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct World {
    /// Sorted, see [`Node`].
    pub(crate) nodes: Vec<Node>,
    /// Sorted as well.
    pub(crate) clients: Vec<Client>,
    /// How many tries are left.
    pub(crate) tries: u8,
    /// How many renewals are left.
    pub(crate) renewals: u8,
    /// How often nodes may still forget.
    pub(crate) crashes: u8,
    /// How many leases may still be ended by force.
    pub(crate) breaks: u8,
    /// The attempt that is being ended by force; 0 for none.
    pub(crate) breaking: u8,
    /// The attempts that were ended by force, as bits.
    over: u8,
    /// The largest token that was granted.
    pub(crate) highest: u8,
    /// The promise that the last step broke.
    pub(crate) broken: Option<Promise>,
}

/// What happens next. Nodes are identified by their position in the state before.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Action {
    /// Time passes, for all alike.
    Tick,
    /// The clock of a node gains a tick.
    Gain { node: usize },
    /// A node forgets everything and is back at once.
    Forget { node: usize },
    /// A request reaches a node and is carried out.
    Deliver { node: usize, client: usize },
    /// The same, for a request whose answer nobody awaits.
    DeliverLate { node: usize, at: usize },
    /// An operator begins to end the client's lease by force.
    Break { client: usize },
    /// The operator has read the nodes' answers; with `last`, some have not answered.
    JudgeBreak { last: bool },
    /// A client takes a step.
    Client { client: usize, step: Step },
}

/// A client's step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Step {
    /// Asks every node for the key, under the id of its next try.
    Try,
    Renew {
        term: u8,
    },
    AcquireAgain,
    /// Reads the answers of these nodes and acts on the quorum's decision. With `last`, nothing more is awaited:
    /// the other nodes count as failed.
    Decide {
        read: Nodes,
        last: bool,
    },
    /// Reads nothing more.
    GiveUp,
    Release,
    /// Another process finds the lease of a holder that has died.
    Adopt,
}

/// A set of nodes, as bits.
pub(crate) type Nodes = u8;

impl World {
    pub(crate) fn new(rules: &Rules) -> Self {
        let mut nodes = vec![Node::default(); rules.nodes];
        if rules.clock_ahead {
            nodes[rules.nodes - 1].counter = 2;
        }
        Self {
            nodes,
            clients: vec![Client::default(); rules.clients],
            tries: rules.tries,
            renewals: rules.renewals,
            crashes: rules.crashes,
            breaks: rules.breaks_by_force,
            breaking: 0,
            over: 0,
            highest: 0,
            broken: None,
        }
    }

    pub(crate) fn tick(&mut self, model: &Leasing) {
        self.nodes.iter_mut().for_each(Node::tick);
        for client in 0..self.clients.len() {
            if self.clients[client].tick(&model.rules) {
                model.saw(Event::Expired);
                self.close(client, Then::Nothing);
                let attempt = self.clients[client].attempt;
                let outlives =
                    !model.rules.adopts || model.rules.breaks(Fault::AcquireOutlivesLease);
                self.nodes.iter_mut().for_each(|node| node.lease_is_over(attempt, outlives));
            }
        }
    }

    /// Nobody awaits the answers to the client's request any more; `then` happens when they come.
    pub(crate) fn close(&mut self, client: usize, then: Then) {
        self.nodes.iter_mut().for_each(|node| node.close(client, then));
    }

    pub(crate) fn crashed(&self, rules: &Rules) -> bool {
        self.crashes < rules.crashes
    }

    /// Drops what can have no further effect, and sorts the rest.
    pub(crate) fn tidy(&mut self) {
        let World { nodes, clients, breaking, over, .. } = self;
        let is_current = |attempt| clients.iter().any(|client| client.names(attempt));
        nodes.iter_mut().for_each(|node| node.tidy(is_current));
        let is_gone = |attempt: u8, nodes: &[Node]| {
            let is_on = |node: &Node| node.holds(attempt) || node.awaits(attempt);
            !is_current(attempt) && !nodes.iter().any(is_on)
        };
        if *breaking > 0 && is_gone(*breaking, nodes) {
            *breaking = 0;
            nodes.iter_mut().for_each(|node| node.asked[BREAKER] = Asked::Nothing);
        }
        let gone = ATTEMPTS.into_iter().filter(|attempt| is_gone(*attempt, nodes));
        *over &= !gone.map(|attempt| 1 << attempt).sum::<u8>();
        let mut order: [usize; MAX_CLIENTS] = std::array::from_fn(|at| at);
        let order = &mut order[..clients.len()];
        order.sort_by_key(|at| &clients[*at]);
        if !order.is_sorted() {
            *clients = order.iter().map(|at| clients[*at].clone()).collect();
            for node in nodes.iter_mut() {
                let before = node.asked;
                for (to, from) in order.iter().enumerate() {
                    node.asked[to] = before[*from];
                }
            }
        }
        nodes.sort_unstable();
    }

    /// The operator was told that the attempt's lease has ended.
    pub(crate) fn report_broken(&mut self, attempt: u8) {
        self.over |= 1 << attempt;
    }

    fn on_majority(&self, attempt: u8) -> bool {
        2 * self.nodes.iter().filter(|node| node.holds(attempt)).count() > self.nodes.len()
    }

    /// Whether any lease is on a majority.
    pub(crate) fn is_taken(&self) -> bool {
        ATTEMPTS.into_iter().any(|attempt| self.on_majority(attempt))
    }

    /// The operator was told that a lease has ended, and its holder's next renewal would succeed.
    pub(crate) fn outlives_break(&self) -> bool {
        let is_current = |attempt| self.clients.iter().any(|client| client.names(attempt));
        let is_over = |attempt: &u8| self.over & (1 << attempt) != 0;
        let lives = |attempt| is_current(attempt) && self.on_majority(attempt);
        ATTEMPTS.into_iter().filter(is_over).any(lives)
    }

    /// An ended lease remains on a node although no request that could remove it is in flight (F6).
    pub(crate) fn leaves_something(&self) -> bool {
        let is_current = |attempt| self.clients.iter().any(|client| client.names(attempt));
        self.nodes.iter().any(|node| {
            node.leases.iter().any(|lease| {
                let attempt = lease.attempt;
                lease.is_live()
                    && !is_current(attempt)
                    && !node.late.iter().any(|late| late.request.attempt() == attempt)
            })
        })
    }
}
