//! An independent implementation of the rules, with a place for each bug.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use leasehold_core::term::micros_up;
use leasehold_core::{
    AcquireReply, AcquireRequest, Claim, Error, FencingToken, Granted, GroupName, Key, LeaseId,
    LostReason, Mode, Note, Reason, RefusalReason, Refused, ReleaseEntry, ReleaseOutcome,
    Remaining, RenewEntry, RenewOutcome, Result,
};

use super::bug::Bug;

/// Both clocks in microseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct At {
    pub(crate) boot: u64,
    pub(crate) wall: u64,
}

#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) key: Key,
    pub(crate) id: Option<LeaseId>,
    pub(crate) shared: bool,
    pub(crate) token: u64,
    pub(crate) group: Option<GroupName>,
    pub(crate) note: Note,
    /// On the boot clock; `u64::MAX` is never.
    pub(crate) until: u64,
    pub(crate) granted: u64,
    pub(crate) renewed: Option<u64>,
    pub(crate) kept: bool,
    pub(crate) evicted: Option<Option<Reason>>,
}

#[derive(Debug)]
pub(crate) struct Rows {
    pub(crate) rows: Vec<Row>,
    pub(crate) counters: BTreeMap<Key, u64>,
    pub(crate) forget_after: Duration,
    /// One counter counts for all keys, and is never forgotten.
    pub(crate) marked: bool,
    /// How long a row excludes others after its holder's term, in microseconds.
    pub(crate) margin: u64,
    pub(crate) max_holders: Option<NonZeroU32>,
    pub(crate) bug: Option<Bug>,
}

pub(crate) fn rest(until: u64, at: At) -> Remaining {
    match until {
        u64::MAX => Remaining::Never,
        until => Remaining::For(Duration::from_micros(until.saturating_sub(at.boot))),
    }
}

impl Rows {
    pub(crate) fn has(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    pub(crate) fn over(&self, row: &Row, at: At) -> bool {
        row.until < at.boot || row.until == at.boot && !self.has(Bug::LiveAtExactlyItsTerm)
    }

    pub(crate) fn live(&self, row: &Row, at: At) -> bool {
        row.evicted.is_none() && !self.over(row, at)
    }

    pub(crate) fn held(&self, row: &Row, at: At) -> bool {
        self.live(row, at) && !row.kept
    }

    /// Whether it excludes others.
    pub(crate) fn excludes(&self, row: &Row, at: At) -> bool {
        let within = at.boot < row.until.saturating_add(self.margin);
        row.evicted.is_none() && (within || !self.over(row, at))
    }

    pub(crate) fn spent(&self, row: &Row, at: At) -> bool {
        if row.evicted.is_some() { self.over(row, at) } else { !self.excludes(row, at) }
    }

    /// What a careless store considers the same key.
    fn same(&self, a: &Key, b: &Key) -> bool {
        match self.bug {
            Some(Bug::KeysIgnoreCase) => a.as_str().to_lowercase() == b.as_str().to_lowercase(),
            Some(Bug::KeysAreTrimmed) => a.as_str().trim_end() == b.as_str().trim_end(),
            _ => a == b,
        }
    }

    fn find(&self, key: &Key, id: &LeaseId) -> Option<usize> {
        self.rows.iter().position(|row| self.same(&row.key, key) && row.id.as_ref() == Some(id))
    }

    fn until(&self, term: Duration, at: At) -> u64 {
        let term = if self.has(Bug::TermIsRoundedDown) {
            leasehold_core::term::micros_down(term)
        } else {
            micros_up(term)
        };
        at.boot + term
    }

    pub(crate) fn acquire(&mut self, request: &AcquireRequest, at: At) -> Result<AcquireReply> {
        let term = request.term().duration().ok_or_else(|| Error::invalid_input("no end"))?;
        self.forget(at);
        let (id, until) = (request.id(), self.until(term, at));
        let mut own = Vec::new();
        for claim in request.claims() {
            let row = self.find(&claim.key, id).filter(|row| self.held(&self.rows[*row], at));
            if let Some(row) = row {
                let other = self.rows[row].shared != claim.mode.is_shared();
                if other && !self.has(Bug::OtherModeIsConfirmed) {
                    return Err(Error::invalid_input("held in another mode"));
                }
                own.push(row);
            }
        }
        let token = own.first().map(|row| self.rows[*row].token);
        let mut whole = own.len() == request.claims().len()
            && own.iter().all(|row| Some(self.rows[*row].token) == token)
            && !self.has(Bug::RetryGetsAFreshToken);
        if self.has(Bug::BrokenLeaseIsConfirmed) && !own.is_empty() {
            whole = true;
        }
        if whole {
            let mut least = u64::MAX;
            for row in own {
                let shortens = self.has(Bug::RetryShortens);
                let overwrites = self.has(Bug::GroupIsOverwritten);
                let row = &mut self.rows[row];
                row.until = if shortens { until } else { row.until.max(until) };
                row.renewed = Some(at.wall);
                if overwrites {
                    row.group = request.group().cloned();
                    row.note = request.note().clone();
                }
                least = least.min(row.until);
            }
            let token = token.map(FencingToken::new).transpose()?;
            return Ok(AcquireReply::Granted(Granted::new(token, rest(least, at), false)));
        }
        self.drop_held(id, request.claims().iter().map(|claim| &claim.key), at);
        if let Some(refused) = self.refusal(request, at) {
            for claim in request.claims() {
                if self.has(Bug::RefusalDrawsAToken) {
                    let key = self.counted(&claim.key);
                    *self.counters.entry(key).or_insert(at.wall) += 1;
                }
                if self.has(Bug::RefusalTakesTheFreeKeys)
                    && self.awaited(request, claim, at).is_none()
                {
                    self.take(request, claim, 1, until, at);
                }
            }
            return Ok(AcquireReply::Refused(refused));
        }
        let token = self.draw(request, at);
        for claim in request.claims() {
            self.take(request, claim, token, until, at);
        }
        let token = Some(FencingToken::new(token)?);
        Ok(AcquireReply::Granted(Granted::new(token, rest(until, at), true)))
    }

    fn drop_held<'a>(&mut self, id: &LeaseId, keys: impl Iterator<Item = &'a Key>, at: At) {
        for key in keys {
            if let Some(row) = self.find(key, id).filter(|row| self.held(&self.rows[*row], at)) {
                self.rows.remove(row);
            }
        }
    }

    /// The next token of these keys.
    pub(crate) fn draw(&self, request: &AcquireRequest, at: At) -> u64 {
        let mut keys = request.claims().keys();
        let counter = |key: &Key| self.counters.get(&self.counted(key)).copied().unwrap_or(0);
        let highest = match self.bug {
            Some(Bug::TokenIsAboveTheFirstKeyOnly) => keys.next().map(counter),
            Some(Bug::TokenIsTheClock) => None,
            _ => keys.map(counter).max(),
        };
        at.wall.max(highest.unwrap_or(0) + 1)
    }

    fn take(&mut self, request: &AcquireRequest, claim: &Claim, token: u64, until: u64, at: At) {
        let stored = std::mem::take(&mut self.rows);
        let id = Some(request.id());
        let keeps = |row: &Row| {
            !self.same(&row.key, &claim.key) || !self.spent(row, at) && row.id.as_ref() != id
        };
        self.rows = stored.into_iter().filter(keeps).collect();
        self.counters.insert(self.counted(&claim.key), token);
        self.rows.push(Row {
            key: claim.key.clone(),
            id: id.cloned(),
            shared: claim.mode.is_shared(),
            token,
            group: request.group().cloned(),
            note: request.note().clone(),
            until,
            granted: at.wall,
            renewed: None,
            kept: false,
            evicted: None,
        });
    }

    pub(crate) fn refusal(&self, request: &AcquireRequest, at: At) -> Option<Refused> {
        let waits = request.claims().iter().filter_map(|claim| {
            let row = self.awaited(request, claim, at)?;
            Some((claim, row))
        });
        let mut waits: Vec<_> = waits.collect();
        let mut latest = waits.iter().map(|(_, row)| row.until).max()?;
        if self.has(Bug::RetryAfterIsTheFirstKeys) {
            latest = waits[0].1.until;
        }
        if self.has(Bug::LastRefusingKeyIsNamed) {
            waits.reverse();
        }
        let (claim, mut row) = waits[0];
        if self.has(Bug::WrongHolderIsNamed) {
            row = self.rows.iter().find(|row| row.key == claim.key)?;
        }
        let mut after = rest(latest.saturating_add(self.margin), at).duration();
        if self.has(Bug::RetryAfterIgnoresNever) {
            after = after.or(Some(Duration::ZERO));
        }
        let holder = self.record(row, at).map(Box::new);
        Some(Refused::new(claim.key.clone(), RefusalReason::Held(holder), after))
    }

    /// The row whose end a claim must await.
    fn awaited(&self, request: &AcquireRequest, claim: &Claim, at: At) -> Option<&Row> {
        let counts = |row: &&Row| {
            let expired = row.evicted.is_none()
                && (row.shared && self.has(Bug::ExpiredReadersAreCounted)
                    || !row.shared && self.has(Bug::ExpiredWriterExcludesReaders));
            let own = row.id.as_ref() == Some(request.id()) && !row.kept && self.over(row, at);
            self.same(&row.key, &claim.key) && (self.excludes(row, at) && !own || expired)
        };
        let mut others: Vec<_> = self.rows.iter().filter(counts).collect();
        if self.has(Bug::GroupEntersAgain) && request.group().is_some() {
            others.retain(|row| row.group.as_ref() != request.group());
        }
        others.sort_by_key(|row| row.until);
        let writer = others.iter().find(|row| !row.shared).copied();
        match claim.mode {
            Mode::Exclusive if self.has(Bug::WriterJoinsReaders) => writer,
            Mode::Exclusive => others.last().copied(),
            Mode::Shared { max } => {
                let own = others.iter().find(|row| row.id.as_ref() == Some(request.id()));
                let writer = writer.filter(|_| !self.has(Bug::ReadersJoinAWriter));
                let max = max.filter(|_| !self.has(Bug::LimitIsIgnored));
                let own_limit =
                    self.max_holders.filter(|_| !self.has(Bug::LimitOfTheStoreIsIgnored));
                let max = [max, own_limit].into_iter().flatten().min().and_then(|max| {
                    let max = usize::try_from(max.get()).ok()?;
                    Some(max + usize::from(self.has(Bug::LimitIsOneTooMany)))
                });
                let full = max.and_then(|max| others.len().checked_sub(max)).map(|more| {
                    if self.has(Bug::RetryAfterIsTheSmallest) { others[0] } else { others[more] }
                });
                [own.copied(), writer, full].into_iter().flatten().max_by_key(|row| row.until)
            }
        }
    }

    pub(crate) fn renew(&mut self, renewal: &RenewEntry, at: At) -> RenewOutcome {
        if let Err(error) = self.admit_raise(renewal) {
            return RenewOutcome::Failed(error);
        }
        let mut rows = Vec::new();
        for claim in renewal.claims() {
            let mut row = self.find(&claim.key, renewal.id());
            if self.has(Bug::RenewalExtendsAnyHolder) {
                let holds = |row: &Row| row.key == claim.key && self.held(row, at);
                row = row.or_else(|| self.rows.iter().position(holds));
            }
            let revives = self.has(Bug::RenewalRevivesTheExpired);
            let lives =
                |row: &Row| self.held(row, at) || revives && !row.kept && row.evicted.is_none();
            match row.filter(|row| lives(&self.rows[*row])) {
                Some(row) if self.rows[row].shared != claim.mode.is_shared() => {
                    return RenewOutcome::Failed(Error::invalid_input("held in another mode"));
                }
                Some(row) => rows.push(row),
                None => {}
            }
        }
        let is_whole = rows.len() == renewal.claims().len();
        if !is_whole && (rows.is_empty() || !self.has(Bug::BrokenLeaseIsRenewed)) {
            let reason = self.why_lost(renewal, at);
            self.drop_held(renewal.id(), renewal.claims().keys(), at);
            return RenewOutcome::Lost(Some(reason));
        }
        let to = renewal.term().duration().map_or(u64::MAX, |to| self.until(to, at));
        let (shortens, ends) = (self.has(Bug::RenewalShortens), self.has(Bug::NeverIsShortened));
        let mut least = u64::MAX;
        for row in rows {
            let (lowers, leaves) =
                (self.has(Bug::RaiseLowers), self.has(Bug::RaiseLeavesTheCounter));
            let counted = self.counted(&self.rows[row].key);
            let row = &mut self.rows[row];
            row.until = match row.until {
                u64::MAX if ends => to,
                u64::MAX => u64::MAX,
                _ if shortens => to,
                until => until.max(to),
            };
            row.renewed = Some(at.wall);
            least = least.min(row.until);
            if let Some(raise) = renewal.raise() {
                let counter = self.counters.entry(counted).or_default();
                if !leaves {
                    *counter = raise.get().max(if lowers { 0 } else { *counter });
                }
                row.token = raise.get().max(if lowers { 0 } else { row.token });
            }
        }
        RenewOutcome::Held(rest(least, at))
    }

    fn why_lost(&self, renewal: &RenewEntry, at: At) -> LostReason {
        let rows = renewal.claims().keys().filter_map(|key| self.find(key, renewal.id()));
        let rows: Vec<_> = rows.map(|row| &self.rows[row]).collect();
        let evicted = rows.iter().find_map(|row| row.evicted.clone());
        match evicted.filter(|_| !self.has(Bug::EvictionIsNotTold)) {
            Some(why) => LostReason::Evicted(why),
            None if rows.iter().any(|r| !r.kept && r.evicted.is_none() && self.over(r, at)) => {
                LostReason::Expired
            }
            None => LostReason::Gone,
        }
    }

    pub(crate) fn release(&mut self, ending: &ReleaseEntry, at: At) -> ReleaseOutcome {
        let id = Some(ending.id());
        if self.has(Bug::ReleaseFreesAnyHolder) {
            let before = self.rows.len();
            self.rows.retain(|row| !ending.keys().contains(&row.key));
            let freed = self.rows.len() < before;
            return if freed { ReleaseOutcome::Released } else { ReleaseOutcome::NotHeld };
        }
        let found: Vec<_> = ending.keys().iter().map(|key| self.find(key, ending.id())).collect();
        let rows = || found.iter().map(|row| row.map(|row| &self.rows[row]));
        let all_held = rows().all(|row| row.is_some_and(|row| self.held(row, at)));
        let is_expired = |row: &Row| !row.kept && row.evicted.is_none() && self.over(row, at);
        let any_expired = rows().flatten().any(is_expired);
        let late = self.has(Bug::KeepIsGrantedToTheExpired)
            && rows().all(|row| row.is_some_and(is_expired));
        let kept_until =
            rows().map(|row| row.filter(|r| r.kept && self.live(r, at)).map(|r| r.until)).min();
        if let Some(keep) = ending.keep() {
            let until = self.until(keep, at);
            let anew = self.has(Bug::ResentKeepStartsAnew) && kept_until.flatten().is_some();
            if all_held || late || anew {
                let frees = self.has(Bug::KeepFreesTheKey);
                for row in found.iter().flatten() {
                    self.rows[*row].kept = true;
                    self.rows[*row].until = if frees { at.boot } else { until };
                }
                return ReleaseOutcome::Kept(Duration::from_micros(until - at.boot));
            }
            if let Some(until) = kept_until.flatten() {
                return ReleaseOutcome::Kept(Duration::from_micros(until - at.boot));
            }
        }
        let ends_keep = self.has(Bug::ReleaseEndsAKeep);
        if self.has(Bug::ReleasedKeyLeavesATrace) {
            let own = |row: &&mut Row| ending.keys().contains(&row.key) && row.id.as_ref() == id;
            self.rows.iter_mut().filter(own).for_each(|row| row.until = at.boot);
        } else if all_held || !self.has(Bug::BrokenLeaseIsReleasedInPart) {
            self.rows.retain(|row| {
                !(ending.keys().contains(&row.key) && row.id.as_ref() == id)
                    || row.kept && !ends_keep
                    || row.evicted.is_some()
            });
        }
        if self.has(Bug::ReleaseTakesWhatBeginsAlike) {
            let alike = |row: &Row| {
                ending.keys().iter().any(|key| row.key.as_str().starts_with(key.as_str()))
            };
            self.rows.retain(|row| !alike(row));
        }
        if self.has(Bug::CounterGoesWithTheRelease) && all_held {
            self.counters.retain(|key, _| !ending.keys().contains(key));
        }
        match (all_held, any_expired) {
            (true, _) => ReleaseOutcome::Released,
            (false, true) if self.has(Bug::ExpiredReleaseReportsReleased) => {
                ReleaseOutcome::Released
            }
            (false, true) => ReleaseOutcome::Expired,
            (false, false) => ReleaseOutcome::NotHeld,
        }
    }
}
