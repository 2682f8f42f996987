use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_core::{
    AcquireRequest, Capabilities, Clock, ErrorKind, EvictRequest, Filter, ListRequest, Now, Record,
    ReleaseRequest, RenewRequest, Store, Table,
};

use crate::oracle::judge::{Judge, Marks, Replies};
use crate::oracle::tokens::Tokens;
use crate::real_time::RealTime;
use crate::{Backing, Failure, Reports, Restarted, Result, Time, WallStep};

/// How soon those states forget counters that do so within a run.
pub(super) const FORGET_AFTER: Duration = Duration::from_secs(600);

/// One operation, with everything needed to repeat it on another state.
#[derive(Debug, Clone)]
pub(super) enum Op {
    Acquire(AcquireRequest),
    Renew(RenewRequest),
    Release(ReleaseRequest),
    /// All pages of this size.
    List(Filter, usize),
    /// Repeated until nothing is left, this much at a time.
    Purge(Filter, usize),
    Break(EvictRequest),
    Advance(Duration),
    Wall(WallStep),
    Restart,
    Observe,
}

/// A store and the table that states what it must answer.
pub(super) struct World<B: Backing> {
    backing: B,
    store: B::Store,
    pub(super) can: Capabilities,
    pub(super) reports: Reports,
    pub(super) table: Table,
    marks: Marks,
    pub(super) tokens: Tokens,
    /// Whether it is known when the store forgets counters.
    pub(super) forgetting: bool,
    pub(super) time: Time,
    real: RealTime,
    /// The unit of time.
    pub(super) tick: Duration,
    pub(super) steps_wall: bool,
    pub(super) restarts: bool,
    pub(super) replies: BTreeMap<&'static str, usize>,
}

/// The rules of an empty store.
fn rules(can: &Capabilities) -> Table {
    Table::default().with_margin(can.margin).with_max_holders(can.max_holders)
}

fn tokens(forgetting: bool) -> Tokens {
    Tokens::new(forgetting.then_some(FORGET_AFTER))
}

impl<B: Backing> World<B> {
    pub(super) async fn new(backing: B, reports: Reports, forgetting: bool) -> Result<Self> {
        let store = backing.client().await?;
        store.prepare().await?;
        let time = backing.time();
        let can = store.capabilities();
        let tick = match &time {
            Time::Manual(_) => Duration::from_secs(1),
            Time::Real { tick } => *tick,
        };
        Ok(Self {
            backing,
            store,
            can,
            reports,
            table: rules(&can),
            marks: Marks::new(),
            tokens: tokens(forgetting),
            forgetting,
            steps_wall: reports.own_clock && matches!(time, Time::Manual(_)),
            time,
            real: RealTime::start(),
            tick: tick.max(can.min_term),
            restarts: true,
            replies: BTreeMap::new(),
        })
    }

    /// Both clocks as the store reads them.
    pub(super) fn now(&self) -> Now {
        match &self.time {
            Time::Manual(clock) => Now { boot: clock.now(), wall_micros: clock.wall_micros() },
            Time::Real { .. } => self.real.now(),
        }
    }

    /// The replies that must have occurred in the end for the run to prove anything.
    pub(super) fn expected(&self) -> Vec<&'static str> {
        let (can, reports) = (&self.can, &self.reports);
        let lacks = !(can.shared && can.shared_limit && can.many_keys && can.never && can.keep);
        let is_manual = matches!(self.time, Time::Manual(_));
        [
            ("granted", true),
            ("granted again", true),
            ("granted many keys", can.many_keys),
            ("refused", true),
            ("refused for ever", can.never),
            ("refused by a limit", can.shared_limit),
            ("refused by the store's limit", can.max_holders.is_some_and(|max| max.get() < 3)),
            ("invalid", true),
            ("acquire invalid", can.shared),
            ("held", true),
            ("held for ever", can.never),
            ("lost", true),
            ("lost: expired", can.reports_expired),
            ("lost: evicted", reports.evicted),
            ("renewal invalid", can.shared),
            ("raised", can.raise),
            ("released", true),
            ("kept", can.keep),
            ("expired", can.reports_expired),
            ("not held", true),
            ("listed", true),
            ("listed in pages", true),
            ("listed expired", can.reports_expired),
            ("purged", can.reports_expired),
            ("forgot a counter", self.forgetting && can.tokens && is_manual),
            ("evicted", true),
            ("evicted nothing", true),
            ("unsupported", lacks),
            ("observed", true),
            ("wall clock stepped", is_manual && reports.own_clock),
        ]
        .into_iter()
        .filter_map(|(reply, expected)| expected.then_some(reply))
        .collect()
    }

    /// Sends the operation to the store, and compares its answer with the table's.
    pub(super) async fn step(&mut self, op: &Op) -> Result<()> {
        self.settle().await;
        match op {
            Op::Acquire(request) => {
                let from = self.now();
                let reply = self.store.acquire(request).await;
                let admitted = self.can.admit(request);
                self.judge(from, admitted, reply, |judge, reply| judge.acquire(request, reply))
            }
            Op::Renew(request) => {
                let from = self.now();
                let reply = self.store.renew(request).await;
                let admitted = self.can.admit(request);
                self.judge(from, admitted, reply, |judge, reply| judge.renew(request, reply))
            }
            Op::Release(request) => {
                let from = self.now();
                let reply = self.store.release(request).await;
                let admitted = self.can.admit(request);
                self.judge(from, admitted, reply, |judge, reply| judge.release(request, reply))
            }
            Op::Break(request) => {
                let from = self.now();
                let reply = self.store.evict(request).await;
                let admitted = self.can.admit(request);
                self.judge(from, admitted, reply, |judge, reply| judge.evict(request, reply))
            }
            Op::List(filter, page) => self.list(filter, *page).await,
            Op::Purge(filter, limit) => self.purge(filter, *limit).await,
            Op::Observe => {
                let from = self.now();
                let seen = self.backing.observe().await?;
                self.judge(from, Ok(()), Ok(seen), |judge, seen| judge.observation(seen))
            }
            Op::Advance(by) => {
                self.backing.advance(*by).await;
                Ok(())
            }
            Op::Wall(step) => {
                self.steps_wall = self.backing.step_wall(*step).await?;
                if self.steps_wall {
                    *self.replies.entry("wall clock stepped").or_default() += 1;
                }
                Ok(())
            }
            Op::Restart => self.restart().await,
        }
    }

    async fn list(&mut self, filter: &Filter, page: usize) -> Result<()> {
        let request = ListRequest::new(filter.clone()).with_limit(page);
        let admitted = self.can.admit(&request);
        loop {
            self.settle().await;
            let from = self.now();
            let (pages, reply) = self.pages(request.clone()).await?;
            // Of pages before and after the end of a term neither instant is right.
            if pages < 2 || !self.a_term_ends(from, self.now()) {
                return self.judge(from, admitted, reply, |judge, records| {
                    judge.list(filter, pages, records)
                });
            }
        }
    }

    /// All pages of a list.
    async fn pages(
        &self,
        mut request: ListRequest,
    ) -> Result<(usize, leasehold_core::Result<Vec<Record>>)> {
        let (mut records, mut pages) = (Vec::new(), 0);
        loop {
            match self.store.list(&request).await {
                Ok(answer) if answer.records.len() > request.limit() || pages > 10_000 => {
                    let what = format!("page {pages} has {} records", answer.records.len());
                    return Err(Failure::new(what));
                }
                Ok(answer) => {
                    pages += 1;
                    records.extend(answer.records);
                    match answer.next {
                        Some(next) => request = request.with_cursor(next),
                        None => return Ok((pages, Ok(records))),
                    }
                }
                Err(error) => return Ok((pages, Err(error))),
            }
        }
    }

    async fn purge(&mut self, filter: &Filter, limit: usize) -> Result<()> {
        let from = self.now();
        let request = EvictRequest::expired(filter.clone()).with_limit(limit);
        let admitted = self.can.admit(&request);
        let (mut removed, mut forgotten) = (Vec::new(), 0);
        let reply = loop {
            match self.store.evict(&request).await {
                Ok(some) => {
                    let count = some.removed.len() + some.counters_forgotten;
                    if count > limit || (some.more && count < limit) {
                        return Err(Failure::new(format!("a limit of {limit}: {some:?}")));
                    }
                    removed.extend(some.removed);
                    forgotten += some.counters_forgotten;
                    if !some.more {
                        break Ok((removed, forgotten));
                    }
                }
                Err(error) => break Err(error),
            }
        };
        self.judge(from, admitted, reply, |judge, reply| judge.purge(filter, reply))
    }

    async fn restart(&mut self) -> Result<()> {
        match self.backing.restart().await? {
            Restarted::Persisted => {}
            Restarted::Forgot => {
                self.marks.clear();
                (self.table, self.tokens) = (rules(&self.can), tokens(self.forgetting));
            }
            Restarted::CannotHere(_) | Restarted::NotTried => {
                self.restarts = false;
                return Ok(());
            }
        }
        *self.replies.entry("restarted").or_default() += 1;
        self.store = self.backing.client().await?;
        Ok(())
    }

    /// Judges a reply as if it was given at `from`, or else now; on a manual clock they are one instant.
    fn judge<T: std::fmt::Debug>(
        &mut self,
        from: Now,
        admitted: leasehold_core::Result<()>,
        reply: leasehold_core::Result<T>,
        rule: impl Fn(&mut Judge<'_>, &leasehold_core::Result<T>) -> Result<(), String>,
    ) -> Result<()> {
        let reply = match (admitted, reply) {
            (Err(expected), Err(found)) if expected.kind() == found.kind() => {
                let reply = match expected.kind() {
                    ErrorKind::Unsupported => "unsupported",
                    _ => "invalid",
                };
                *self.replies.entry(reply).or_default() += 1;
                return Ok(());
            }
            (Err(expected), reply) => {
                return Err(Failure::new(format!("expected {expected:?}, found {reply:?}")));
            }
            (Ok(()), reply) => reply,
        };
        let to = self.now();
        let slack = match self.time {
            Time::Manual(_) => Duration::ZERO,
            // The time that the answer took counts as tolerance.
            Time::Real { .. } => self.tick + (to.boot - from.boot),
        };
        let mut first = None;
        for at in [from, to] {
            let mut judge = Judge {
                table: self.table.clone(),
                marks: self.marks.clone(),
                tokens: self.tokens.clone(),
                now: at,
                can: &self.can,
                reports: &self.reports,
                slack,
                replies: Replies::default(),
            };
            match rule(&mut judge, &reply) {
                Ok(()) => {
                    let Judge { table, marks, tokens, replies, .. } = judge;
                    (self.table, self.marks, self.tokens) = (table, marks, tokens);
                    for reply in replies.0 {
                        *self.replies.entry(reply).or_default() += 1;
                    }
                    return Ok(());
                }
                Err(found) => {
                    first.get_or_insert(found);
                }
            }
        }
        Err(Failure::new(first.unwrap_or_default()))
    }

    /// In real time, waits away from the end of a term, near which both answers would be right.
    async fn settle(&mut self) {
        if matches!(self.time, Time::Manual(_)) {
            return;
        }
        loop {
            let now = self.now();
            let Some(near) = self.end_of_a_term(now, now) else { return };
            self.backing.advance(near + self.tick / 2 - now.boot).await;
        }
    }

    /// In real time, whether the end of a term is so near to an instant between these that both answers would be right.
    fn a_term_ends(&self, from: Now, to: Now) -> bool {
        matches!(self.time, Time::Real { .. }) && self.end_of_a_term(from, to).is_some()
    }

    fn end_of_a_term(&self, from: Now, to: Now) -> Option<Duration> {
        let margin = self.tick / 2;
        let holders = self.table.entries().flat_map(|(_, holders)| holders);
        let mut ends = holders.filter_map(|holder| holder.expires);
        ends.find(|end| *end + margin > from.boot && *end < to.boot + margin)
    }
}
