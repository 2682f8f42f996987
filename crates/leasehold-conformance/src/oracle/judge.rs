mod ended;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use leasehold_core::table::Holder;
use leasehold_core::{
    AcquireReply, AcquireRequest, Capabilities, Effect, Error, EvictReply, EvictRequest,
    EvictScope, EvictTarget, Filter, Granted, Key, LeaseId, ListRequest, Mode, Now, Reason, Record,
    RecordTerm, RefusalReason, Refused, ReleaseEntry, ReleaseOutcome, ReleaseReply, ReleaseRequest,
    Remaining, RenewOutcome, RenewReply, RenewRequest, Table,
};

use crate::oracle::tokens::{self, Tokens};
use crate::{Observation, Reports};

/// Counts the kinds of replies, to check that all occurred.
#[derive(Debug, Default)]
pub(super) struct Replies(pub(super) Vec<&'static str>);

/// What was ended by force and not granted again. A store may choose for how long it reports this to the holder, but
/// reports it for the rest of the term at least.
pub(super) type Marks = BTreeMap<(Key, LeaseId), Option<Reason>>;

/// Asks the table the same question, and compares.
pub(super) struct Judge<'a> {
    pub(super) table: Table,
    pub(super) marks: Marks,
    pub(super) tokens: Tokens,
    pub(super) now: Now,
    pub(super) can: &'a Capabilities,
    pub(super) reports: &'a Reports,
    /// By how much durations may differ; zero on a manual clock.
    pub(super) slack: Duration,
    pub(super) replies: Replies,
}

type Comparison = Result<(), String>;

/// A record, by its key and its lease.
type Name = (Key, Option<LeaseId>);

/// Differs unless both are equal.
fn same<T: PartialEq + Debug>(what: &str, found: T, expected: T) -> Comparison {
    if found == expected {
        return Ok(());
    }
    Err(format!("{what}: expected {expected:?}, found {found:?}"))
}

/// Differs; states how.
fn differs<T>(found: &impl Debug, expected: &impl Debug) -> Result<T, String> {
    Err(format!("expected {expected:?}, found {found:?}"))
}

fn answered<T>(reply: &leasehold_core::Result<T>) -> Result<&T, String> {
    reply.as_ref().map_err(|error| format!("expected an answer, found {error:?}"))
}

impl Judge<'_> {
    pub(super) fn acquire(
        &mut self,
        request: &AcquireRequest,
        reply: &leasehold_core::Result<AcquireReply>,
    ) -> Comparison {
        let expected = self.table.acquire(request, self.now);
        match (reply, expected) {
            (Ok(AcquireReply::Granted(found)), Ok(AcquireReply::Granted(expected))) => {
                self.replies.0.push(if expected.fresh { "granted" } else { "granted again" });
                let granted = |key: &Key, id: &LeaseId| {
                    expected.fresh
                        && id == request.id()
                        && request.claims().keys().any(|k| k == key)
                };
                self.marks.retain(|(key, id), _| !granted(key, id));
                if request.claims().len() > 1 && expected.fresh {
                    self.replies.0.push("granted many keys");
                }
                self.granted(request, found, &expected)
            }
            (Ok(AcquireReply::Refused(found)), Ok(AcquireReply::Refused(expected))) => {
                self.replies.0.push("refused");
                if expected.retry_after.is_none() {
                    self.replies.0.push("refused for ever");
                }
                let holder = match &expected.why {
                    RefusalReason::Held(Some(holder)) => holder,
                    other => return Err(format!("the table refused because of {other:?}")),
                };
                let asked = request.claims().iter().find(|claim| claim.key == expected.key);
                if holder.mode.is_shared() && asked.is_some_and(|claim| claim.mode.is_shared()) {
                    let is_own = holder.id.as_ref() == Some(request.id());
                    self.replies.0.push(match asked.map(|claim| claim.mode) {
                        Some(Mode::SHARED) if !is_own => "refused by the store's limit",
                        _ => "refused by a limit",
                    });
                }
                self.refused(found, &expected, holder)
            }
            (Err(found), Err(expected)) => {
                self.replies.0.push("acquire invalid");
                error(found, &expected)
            }
            (found, expected) => differs(found, &expected),
        }
    }

    fn granted(
        &mut self,
        request: &AcquireRequest,
        found: &Granted,
        expected: &Granted,
    ) -> Comparison {
        same("fresh", found.fresh, expected.fresh)?;
        match found.token {
            // C7: the store chooses the number, by a rule.
            Some(token) if expected.fresh && self.can.tokens => {
                let least = match self.slack.is_zero() {
                    true => tokens::least(self.now, self.reports.unit),
                    // The server's wall clock is not ours.
                    false => 0,
                };
                self.tokens.granted(request.claims(), token, least)?;
                tokens::choose(&mut self.table, request.id(), request.claims(), token);
            }
            token => same("the token", token, expected.token.filter(|_| self.can.tokens))?,
        }
        self.remaining(found.remaining, expected.remaining)
    }

    fn refused(&self, found: &Refused, expected: &Refused, holder: &Record) -> Comparison {
        same("the key", &found.key, &expected.key)?;
        match (found.retry_after, expected.retry_after) {
            (Some(found), Some(expected)) => self.duration("retry_after", found, expected)?,
            (found, expected) => same("retry_after", found, expected)?,
        }
        match &found.why {
            RefusalReason::Held(None) if !self.reports.holder => Ok(()),
            // If several end at the same time, any of them may be named.
            RefusalReason::Held(Some(named)) => {
                let holders = || self.table.holders(&expected.key).iter();
                let shown = |id: &Option<LeaseId>| {
                    let is_it = |stored: &&Holder| {
                        stored.id == *id && self.table.excludes(stored, self.now)
                    };
                    let stored = holders().find(is_it).cloned();
                    stored.and_then(|stored| self.shown(stored).record(&expected.key, self.now))
                };
                let awaited = shown(&holder.id).map(|holder| holder.remaining());
                self.remaining(named.remaining(), awaited.unwrap_or(holder.remaining()))?;
                let stored = shown(&named.id);
                match stored {
                    Some(stored) => self.record(named, &stored),
                    None => Err(format!("nobody holds it as {named:?}")),
                }
            }
            other => differs(other, &expected.why),
        }
    }

    pub(super) fn renew(
        &mut self,
        request: &RenewRequest,
        reply: &leasehold_core::Result<RenewReply>,
    ) -> Comparison {
        let found = &answered(reply)?.leases;
        let expected = self.table.renew(request, self.now).leases;
        same("the number of answers", found.len(), expected.len())?;
        for ((found, expected), lease) in found.iter().zip(&expected).zip(request.leases()) {
            match (found, expected) {
                (RenewOutcome::Held(found), RenewOutcome::Held(expected)) => {
                    self.replies.0.push(match expected {
                        Remaining::For(_) => "held",
                        Remaining::Never => "held for ever",
                    });
                    if let Some(raise) = lease.raise() {
                        self.replies.0.push("raised");
                        self.tokens.raised(lease.claims(), raise);
                    }
                    self.remaining(*found, *expected)?;
                }
                (RenewOutcome::Lost(found), RenewOutcome::Lost(expected)) => {
                    self.lost(lease, found.as_ref(), expected.as_ref())?;
                }
                (RenewOutcome::Failed(found), RenewOutcome::Failed(expected)) => {
                    self.replies.0.push("renewal invalid");
                    error(found, expected)?;
                }
                (found, expected) => return differs(found, expected),
            }
        }
        Ok(())
    }

    pub(super) fn release(
        &mut self,
        request: &ReleaseRequest,
        reply: &leasehold_core::Result<ReleaseReply>,
    ) -> Comparison {
        let found = &answered(reply)?.leases;
        let may_tell = |lease: &ReleaseEntry| self.remembers(lease.id(), lease.keys().iter());
        let may_tell: Vec<_> = request.leases().iter().map(may_tell).collect();
        let expected = self.table.release(request, self.now).leases;
        same("the number of answers", found.len(), expected.len())?;
        for ((found, expected), may_tell) in found.iter().zip(&expected).zip(may_tell) {
            let must_tell = self.can.reports_expired && may_tell;
            self.replies.0.push(match expected {
                ReleaseOutcome::Released => "released",
                ReleaseOutcome::Kept(_) => "kept",
                ReleaseOutcome::Expired => "expired",
                ReleaseOutcome::NotHeld => "not held",
                ReleaseOutcome::Failed(_) => "release failed",
            });
            match (found, expected) {
                (ReleaseOutcome::Kept(found), ReleaseOutcome::Kept(expected)) => {
                    self.duration("kept", *found, *expected)?;
                }
                (ReleaseOutcome::Released, ReleaseOutcome::Released)
                | (ReleaseOutcome::NotHeld, ReleaseOutcome::NotHeld) => {}
                (ReleaseOutcome::Expired, ReleaseOutcome::Expired) if self.can.reports_expired => {}
                (ReleaseOutcome::NotHeld, ReleaseOutcome::Expired) if !must_tell => {}
                (found, expected) => return differs(found, expected),
            }
        }
        Ok(())
    }

    pub(super) fn evict(
        &mut self,
        request: &EvictRequest,
        reply: &leasehold_core::Result<EvictReply>,
    ) -> Comparison {
        let found = answered(reply)?;
        let gone = self.may_be_gone();
        let expected = self.table.evict(request, self.now);
        if let EvictScope::Exactly { reason, .. } = request.scope() {
            for target in &expected.removed {
                if let Some(id) = &target.id {
                    self.marks.insert((target.key.clone(), id.clone()), reason.clone());
                }
            }
        }
        self.replies.0.push(if expected.removed.is_empty() {
            "evicted nothing"
        } else {
            "evicted"
        });
        same("more", found.more, expected.more)?;
        same("counters forgotten", found.counters_forgotten, 0)?;
        self.targets(&found.removed, &expected.removed, &gone)
    }

    pub(super) fn purge(
        &mut self,
        filter: &Filter,
        reply: &leasehold_core::Result<(Vec<EvictTarget>, usize)>,
    ) -> Comparison {
        let (removed, forgotten) = answered(reply)?;
        let all = EvictRequest::expired(filter.clone()).with_limit(usize::MAX);
        let gone = self.may_be_gone();
        let expected = self.table.evict(&all, self.now);
        if !expected.removed.is_empty() {
            self.replies.0.push("purged");
        }
        if self.can.tokens {
            let expected = self.tokens.forget(filter, &self.table, self.now);
            if expected > 0 {
                self.replies.0.push("forgot a counter");
            }
            same("counters forgotten", *forgotten, expected)?;
        }
        self.targets(removed, &expected.removed, &gone)
    }

    pub(super) fn list(
        &mut self,
        filter: &Filter,
        pages: usize,
        reply: &leasehold_core::Result<Vec<Record>>,
    ) -> Comparison {
        let found = answered(reply)?;
        self.replies.0.push(if pages > 1 { "listed in pages" } else { "listed" });
        let all = ListRequest::new(filter.clone()).with_limit(usize::MAX);
        let mut shown = Table::default();
        for (key, holders) in self.table.entries() {
            let holders = holders.iter().cloned().map(|holder| self.shown(holder)).collect();
            shown.insert(key.clone(), holders);
        }
        let page = shown.list(&all, self.now).map_err(|error| format!("{error:?}"))?;
        let by_name = |records: &[Record]| -> BTreeMap<Name, Record> {
            let named = records.iter().cloned();
            named.map(|record| ((record.key.clone(), record.id.clone()), record)).collect()
        };
        let (found, mut expected) = (by_name(found), by_name(&page.records));
        if expected.values().any(|record| !record.is_live()) {
            self.replies.0.push("listed expired");
        }
        let gone = self.may_be_gone();
        let may_miss = |name: &Name, record: &Record| {
            !record.is_live() && (!self.can.reports_expired || gone.contains(name))
        };
        expected.retain(|name, record| !may_miss(name, record) || found.contains_key(name));
        if !found.keys().eq(expected.keys()) {
            let names = |records: BTreeMap<_, Record>| records.into_keys().collect::<Vec<_>>();
            return same("the records", names(found), names(expected));
        }
        found.values().zip(expected.values()).try_for_each(|(found, expected)| {
            self.record(found, expected).map_err(|differs| format!("{found:?}: {differs}"))
        })
    }

    /// The holder as records show it.
    fn shown(&self, mut holder: Holder) -> Holder {
        holder.expires = holder.expires.map(|end| end + self.reports.shown_longer);
        holder
    }

    fn record(&self, found: &Record, expected: &Record) -> Comparison {
        same("the key", &found.key, &expected.key)?;
        same("the mode", found.mode.is_shared(), expected.mode.is_shared())?;
        same("the token", found.token, expected.token.filter(|_| self.can.tokens))?;
        same("kept", found.kept, expected.kept)?;
        if self.reports.group {
            same("the group", &found.group, &expected.group)?;
        }
        if self.reports.note {
            same("the note", &found.note, &expected.note)?;
        }
        if let (true, Some(expected)) = (self.reports.age, expected.age) {
            self.duration("the age", found.age.unwrap_or(Duration::MAX), expected)?;
        }
        match (found.renewed, expected.renewed) {
            (Some(found), Some(expected)) => self.duration("renewed", found, expected)?,
            (None, _) => {}
            (found, expected) => same("renewed", found, expected)?,
        }
        match (found.term, expected.term) {
            (RecordTerm::Live(found), RecordTerm::Live(expected)) => {
                self.remaining(found, expected)
            }
            (RecordTerm::Expired(Some(found)), RecordTerm::Expired(Some(expected))) => {
                self.duration("expired", found, expected)
            }
            (RecordTerm::Expired(None), RecordTerm::Expired(_)) => Ok(()),
            (found, expected) => same("the term", found, expected),
        }
    }

    pub(super) fn observation(
        &mut self,
        reply: &leasehold_core::Result<Observation>,
    ) -> Comparison {
        let seen = answered(reply)?;
        self.replies.0.push("observed");
        let rows = |seen: &Observation| {
            let live = seen.rows.iter().filter(|row| row.live).cloned();
            let mut rows: Vec<_> = live
                .map(|row| {
                    let token = row.token.filter(|_| self.can.tokens);
                    let group = row.group.filter(|_| self.reports.group);
                    let note = self.reports.note.then_some(row.note);
                    (row.key, row.id, row.mode.is_shared(), token, group, note)
                })
                .collect();
            rows.sort_by(|a, b| (&a.0, &a.1).cmp(&(&b.0, &b.1)));
            rows
        };
        let expected = Observation::of_table(&self.table, self.now);
        same("the live rows", rows(seen), rows(&expected))?;
        match self.can.tokens {
            true => self.tokens.observed(seen),
            false => Ok(()),
        }
    }

    fn remaining(&self, found: Remaining, expected: Remaining) -> Comparison {
        match (found, expected) {
            (Remaining::For(found), Remaining::For(expected)) => {
                self.duration("remaining", found, expected)
            }
            (found, expected) => same("remaining", found, expected),
        }
    }

    fn duration(&self, what: &str, found: Duration, expected: Duration) -> Comparison {
        if found.abs_diff(expected) <= self.slack {
            return Ok(());
        }
        Err(format!("{what}: expected {expected:?}, found {found:?}"))
    }
}

/// Both report the same, and that nothing was done.
fn error(found: &Error, expected: &Error) -> Comparison {
    same("the kind of error", found.kind(), expected.kind())?;
    same("the effect of the error", found.effect(), Effect::NotApplied)
}
