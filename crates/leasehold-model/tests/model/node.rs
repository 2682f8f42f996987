//! A node: the content of its `Table`, and the requests on their way to it.

use leasehold_core::table::{Holder, State};
use leasehold_core::{
    AcquireReply, EvictRequest, EvictTarget, FencingToken, Mode, Note, ReleaseEntry,
    ReleaseOutcome, ReleaseRequest, RenewOutcome, RenewRequest, Table,
};

use crate::answers::finite;
use crate::rules::{Fault, NOW, Names, Rules, ticks, whole_ticks};

/// The most clients of any model.
pub(crate) const MAX_CLIENTS: usize = 3;

/// The operator who ends leases by force comes after all clients.
pub(crate) const BREAKER: usize = MAX_CLIENTS;

/// One node and the network between it and the clients.
///
/// Nodes are kept sorted: states that differ only in which node is which are the same.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Node {
    /// The table's records, in the order of their attempts.
    pub(crate) leases: Vec<Lease>,
    /// The key's counter; 0 if tokens do not matter.
    pub(crate) counter: u8,
    /// The remaining quarantine, in ticks.
    pub(crate) quarantine: u8,
    /// It forgot everything and was granted nothing since.
    pub(crate) forgot: bool,
    /// Its clock has gained its tick.
    pub(crate) gained: bool,
    /// The request that each client awaits an answer to.
    pub(crate) asked: [Asked; MAX_CLIENTS + 1],
    /// The request of each client that awaits an answer.
    pub(crate) late: Vec<Late>,
}

/// Requests whose answer nobody awaits, sorted. A request that is never delivered was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Lease {
    pub(crate) attempt: u8,
    /// The remaining term, in ticks; 0 if it has ended.
    pub(crate) rest: u8,
    token: u8,
    /// It was ended by force, and only informs its holder.
    is_evicted: bool,
}

/// The state of a client's request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Asked {
    #[default]
    Nothing,
    Sent(Request),
    /// It acted. An answer that is never read was lost.
    Answered(Answer),
}

/// A request that names an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Request {
    /// With `again`, the lease may be held already.
    Acquire {
        attempt: u8,
        again: bool,
    },
    Renew {
        attempt: u8,
        term: u8,
        raise: u8,
    },
    Release {
        attempt: u8,
    },
    PutBack {
        attempt: u8,
        rest: u8,
    },
    Evict {
        attempt: u8,
    },
}

/// A request whose answer nobody awaits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Late {
    pub(crate) request: Request,
    pub(crate) then: Then,
}

/// What follows once a late request was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Then {
    Nothing,
    /// The lease is released.
    Release,
    /// What the request added is released: the lease itself is still held.
    ReleaseIfFresh,
    /// If the lease is absent, it is added again.
    ReAdd,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Answer {
    Granted {
        rest: u8,
        fresh: bool,
        token: u8,
    },
    Refused,
    Quarantined,
    Held {
        rest: u8,
    },
    Lost,
    Released(Ended),
    /// Whether the lease was there.
    Evicted {
        found: bool,
    },
}

/// How a release found the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Ended {
    Released,
    Expired,
    NotHeld,
}

impl Lease {
    /// Whether it excludes others.
    pub(crate) fn is_live(&self) -> bool {
        self.rest > 0 && !self.is_evicted
    }
}

impl Request {
    pub(crate) fn attempt(self) -> u8 {
        match self {
            Self::Acquire { attempt, .. }
            | Self::Renew { attempt, .. }
            | Self::Release { attempt }
            | Self::PutBack { attempt, .. }
            | Self::Evict { attempt } => attempt,
        }
    }

    /// Whether it may put the attempt's lease on a node.
    fn adds(self, attempt: u8) -> bool {
        matches!(self, Self::Acquire { attempt: of, .. } if of == attempt)
    }
}

impl Node {
    /// Carries out a request, as the store of a node would.
    pub(crate) fn execute(&mut self, request: Request, rules: &Rules, names: &Names) -> Answer {
        match request {
            Request::Acquire { attempt, again } => self.acquire(attempt, again, rules, names),
            Request::Renew { attempt, term, raise } => {
                if rules.breaks(Fault::RenewalShortens) {
                    self.set_rest(attempt, term);
                }
                let mut renewal = names.renewal(attempt, term);
                if let Ok(raise) = FencingToken::new(u64::from(raise)) {
                    renewal = renewal.with_token_raised_to(raise);
                }
                let request = RenewRequest::new(vec![renewal]);
                let renewed = self.apply(rules, names, |table| table.renew(&request, NOW));
                match renewed.leases[..] {
                    [RenewOutcome::Held(rest)] => Answer::Held { rest: finite(rest) },
                    [RenewOutcome::Lost(_)] if rules.breaks(Fault::CountsReAdditions) => {
                        match self.acquire(attempt, true, rules, names) {
                            Answer::Granted { rest, .. } => Answer::Held { rest },
                            _ => Answer::Lost,
                        }
                    }
                    [RenewOutcome::Lost(_)] => Answer::Lost,
                    _ => unreachable!("{renewed:?}"),
                }
            }
            Request::Release { attempt } => {
                let ending = ReleaseEntry::new(names.id(attempt).clone(), [names.key.clone()]);
                let request = ReleaseRequest::new(vec![ending]);
                let released = self.apply(rules, names, |table| table.release(&request, NOW));
                Answer::Released(match released.leases[..] {
                    [ReleaseOutcome::Released] => Ended::Released,
                    [ReleaseOutcome::Expired] => Ended::Expired,
                    [ReleaseOutcome::NotHeld] => Ended::NotHeld,
                    _ => unreachable!("{released:?}"),
                })
            }
            Request::PutBack { attempt, rest } => {
                self.set_rest(attempt, rest);
                Answer::Held { rest }
            }
            Request::Evict { attempt } => {
                let target = EvictTarget::new(names.key.clone(), Some(names.id(attempt).clone()));
                let request = EvictRequest::exactly(vec![target], None);
                let evicted = self.apply(rules, names, |table| table.evict(&request, NOW));
                Answer::Evicted { found: !evicted.removed.is_empty() }
            }
        }
    }

    fn acquire(&mut self, attempt: u8, again: bool, rules: &Rules, names: &Names) -> Answer {
        if self.quarantine > 0 {
            return Answer::Quarantined;
        }
        let mut request = names.acquire(attempt, rules.term);
        if again {
            request = request.again(None);
        }
        match self.apply(rules, names, |table| table.acquire(&request, NOW)) {
            Ok(AcquireReply::Granted(granted)) => {
                self.forgot = false;
                let token = granted.token.filter(|_| rules.fenced);
                Answer::Granted {
                    rest: finite(granted.remaining),
                    fresh: granted.fresh,
                    token: token.map_or(0, |token| small(token.get())),
                }
            }
            Ok(AcquireReply::Refused(_)) => Answer::Refused,
            Err(error) => unreachable!("{error}"),
        }
    }

    /// Lets the code's own table decide, and keeps its result.
    fn apply<T>(
        &mut self,
        rules: &Rules,
        names: &Names,
        decide: impl FnOnce(&mut Table) -> T,
    ) -> T {
        let holder = |lease: &Lease| Holder {
            id: Some(names.id(lease.attempt).clone()),
            mode: Mode::Exclusive,
            token: FencingToken::new(u64::from(lease.token.max(1))).expect("small"),
            group: None,
            note: Note::default(),
            expires: Some(NOW.boot + ticks(lease.rest)),
            granted_at: 0,
            renewed_at: None,
            state: if lease.is_evicted { State::Evicted(None) } else { State::Held },
        };
        let holders = self.leases.iter().map(holder).collect();
        let mut table = Table::default().with_mark(u64::from(self.counter));
        table.insert(names.key.clone(), holders);
        let answer = decide(&mut table);
        self.leases.clear();
        self.leases.extend(table.holders(&names.key).iter().map(|holder| Lease {
            attempt: names.attempt(holder.id.as_ref().expect("every holder has one")),
            rest: whole_ticks(holder.expires.expect("finite").saturating_sub(NOW.boot)),
            token: if rules.fenced { small(holder.token.get()) } else { 0 },
            is_evicted: matches!(holder.state, State::Evicted(_)),
        }));
        self.leases.sort_unstable();
        self.counter = if rules.fenced { small(table.mark()) } else { 0 };
        answer
    }

    /// No real store does this: for a node of a faulty model.
    fn set_rest(&mut self, attempt: u8, rest: u8) {
        let is_it = |lease: &&mut Lease| lease.attempt == attempt && lease.is_live();
        if let Some(lease) = self.leases.iter_mut().find(is_it) {
            lease.rest = rest;
        }
    }

    /// Whether the attempt excludes others here.
    pub(crate) fn holds(&self, attempt: u8) -> bool {
        self.leases.iter().any(|lease| lease.attempt == attempt && lease.is_live())
    }

    /// Whether an acquire that names the attempt is in flight.
    pub(crate) fn awaits(&self, attempt: u8) -> bool {
        self.late.iter().any(|late| late.request.adds(attempt))
    }

    /// Whether nothing in flight may roll back what an earlier request added here.
    pub(crate) fn is_settled(&self, attempt: u8) -> bool {
        let takes_back = |late: &Late| {
            matches!(late.request, Request::Release { .. })
                || matches!(late.then, Then::Release | Then::ReleaseIfFresh)
        };
        !self.late.iter().any(|late| late.request.attempt() == attempt && takes_back(late))
    }

    /// Whether a lease that is absent may be added here.
    pub(crate) fn may_add(&self, attempt: u8) -> bool {
        !self.awaits(attempt) && self.is_settled(attempt)
    }

    /// Nobody awaits the answer to the client's request any more; `then` happens when it comes.
    pub(crate) fn close(&mut self, client: usize, then: Then) {
        if let Asked::Sent(request) = std::mem::take(&mut self.asked[client]) {
            self.send(request, then);
        }
    }

    pub(crate) fn send(&mut self, request: Request, then: Then) {
        self.late.push(Late { request, then });
    }

    /// Ends the attempt here: a release follows what may still add it.
    pub(crate) fn release(&mut self, attempt: u8, rules: &Rules) {
        let overtakes = rules.breaks(Fault::ReleaseOvertakes);
        if overtakes || !self.awaits(attempt) {
            self.send(Request::Release { attempt }, Then::Nothing);
        }
        self.take_back_late(attempt, rules);
    }

    /// What may still add the attempt is released when it has arrived, and nothing adds it after that.
    pub(crate) fn take_back_late(&mut self, attempt: u8, rules: &Rules) {
        let overtakes = rules.breaks(Fault::ReleaseOvertakes);
        for late in self.late.iter_mut().filter(|late| late.request.attempt() == attempt) {
            late.then = match late.request {
                Request::Acquire { .. } if !overtakes => Then::Release,
                _ => Then::Nothing,
            };
        }
    }

    /// The term of the attempt's lease has ended by its holder's clock: nothing adds it again. A request in flight
    /// that adds it may still arrive, if it `outlives` the lease.
    pub(crate) fn lease_is_over(&mut self, attempt: u8, outlives: bool) {
        self.late.retain(|late| outlives || !late.request.adds(attempt));
        for late in self.late.iter_mut().filter(|late| late.request.attempt() == attempt) {
            if late.then == Then::ReAdd {
                late.then = Then::Nothing;
            }
        }
    }

    /// Drops what can have no further effect, and sorts the rest.
    pub(crate) fn tidy(&mut self, is_current: impl Fn(u8) -> bool) {
        self.leases.retain(|lease| lease.is_live() || is_current(lease.attempt));
        for at in (0..self.late.len()).rev() {
            let attempt = self.late[at].request.attempt();
            if !is_current(attempt) && !self.holds(attempt) && !self.awaits(attempt) {
                self.late.swap_remove(at);
            }
        }
        self.late.sort_unstable();
    }

    pub(crate) fn tick(&mut self) {
        for lease in &mut self.leases {
            lease.rest = lease.rest.saturating_sub(1);
        }
        self.quarantine = self.quarantine.saturating_sub(1);
    }

    pub(crate) fn forget(&mut self, rules: &Rules) {
        self.leases.clear();
        self.counter = 0;
        self.quarantine = rules.quarantine;
        self.forgot = true;
    }
}

fn small(number: u64) -> u8 {
    u8::try_from(number).expect("a small bound")
}
