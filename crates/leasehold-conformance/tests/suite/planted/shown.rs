//! Listing, evicting and purging.

use std::time::Duration;

use leasehold_core::term::micros_up;
use leasehold_core::{
    Cursor, EvictReply, EvictRequest, EvictScope, EvictTarget, Expired, FencingToken, Filter,
    ListReply, ListRequest, Mode, Reason, Record, RecordTerm, Result,
};

use super::bug::Bug;
use super::rows::{At, Row, Rows, rest};

const HOUR: u64 = 3_600_000_000;

impl Rows {
    pub(crate) fn record(&self, row: &Row, at: At) -> Option<Record> {
        if row.evicted.is_some() {
            return None;
        }
        let term = match self.over(row, at) {
            true => RecordTerm::Expired(Some(Duration::from_micros(at.boot - row.until))),
            false => RecordTerm::Live(rest(row.until, at)),
        };
        let mode = if row.shared { Mode::SHARED } else { Mode::Exclusive };
        let mut record = Record::new(row.key.clone(), mode, term);
        let since = |then: u64| Duration::from_micros(at.wall.saturating_sub(then));
        record.id.clone_from(&row.id);
        record.token = FencingToken::new(row.token).ok();
        record.group.clone_from(&row.group);
        record.note = row.note.clone();
        record.age = Some(since(row.granted));
        record.renewed = row.renewed.map(since);
        record.kept = row.kept;
        Some(record)
    }

    fn matches(&self, filter: &Filter, record: &Record) -> bool {
        let mut filter = filter.clone();
        match (self.bug, filter.expired()) {
            (Some(Bug::ListShowsTheExpired), Expired::Out) => {
                filter = filter.with_expired(Expired::In);
            }
            (Some(Bug::ListHidesTheExpired), Expired::In) => {
                filter = filter.with_expired(Expired::Out);
            }
            (Some(Bug::PrefixIsAPattern), _) if !filter.key_prefix().is_empty() => {
                let pattern = filter.key_prefix().replace('%', "*").replace('_', "?");
                let like =
                    Filter::default().with_expired(Expired::In).with_glob(&format!("{pattern}*"));
                return like.is_ok_and(|like| like.matches(record));
            }
            _ => {}
        }
        filter.matches(record)
    }

    pub(crate) fn list(&self, request: &ListRequest, at: At) -> Result<ListReply> {
        let after = request.cursor().map(Cursor::position).transpose()?;
        let bytes = |record: &Record| record.id.as_ref().map(|id| id.to_bytes().into_owned());
        let records = self.rows.iter().filter_map(|row| self.record(row, at));
        let mut records: Vec<_> = records
            .filter(|record| self.matches(request.filter(), record))
            .filter(|record| match &after {
                None => true,
                Some((key, _)) if self.has(Bug::PagesSkipHoldersOfAKey) => record.key > *key,
                Some((key, id)) => {
                    (&record.key, bytes(record).unwrap_or_default()) > (key, id.clone())
                }
            })
            .collect();
        records.sort_by_key(|record| (record.key.clone(), bytes(record)));
        let more = records.len() > request.limit();
        records.truncate(request.limit());
        let next = records.last().map(Cursor::after).filter(|_| more);
        Ok(ListReply::new(records, next))
    }

    pub(crate) fn evict(&mut self, request: &EvictRequest, at: At) -> EvictReply {
        match request.scope() {
            EvictScope::Expired(filter) => self.purge(filter, request.limit(), at),
            EvictScope::Exactly { targets, reason } => {
                let named = &targets[..targets.len().min(request.limit())];
                let mut removed = Vec::new();
                for target in named {
                    if self.evict_one(target, reason.as_ref(), at) {
                        removed.push(target.clone());
                    }
                }
                EvictReply::new(removed, 0, named.len() < targets.len())
            }
        }
    }

    fn evict_one(&mut self, target: &EvictTarget, reason: Option<&Reason>, at: At) -> bool {
        let meant = |row: &Row| {
            row.key == target.key
                && (row.id == target.id || self.has(Bug::EvictIgnoresTheId))
                && target.token.is_none_or(|token| {
                    token.get() == row.token || self.has(Bug::EvictIgnoresTheToken)
                })
                && row.evicted.is_none()
        };
        let Some(at_row) = self.rows.iter().position(meant) else { return false };
        if !self.held(&self.rows[at_row], at) || self.rows[at_row].id.is_none() {
            self.rows.remove(at_row);
            return true;
        }
        let row = &mut self.rows[at_row];
        row.evicted = Some(reason.cloned());
        row.until = row.until.min(at.boot + HOUR);
        true
    }

    fn purge(&mut self, filter: &Filter, limit: usize, at: At) -> EvictReply {
        let limit = if self.has(Bug::PurgeIgnoresItsLimit) { usize::MAX } else { limit };
        let wanted = filter.clone().with_expired(match self.bug {
            Some(Bug::PurgeTakesTheLive) => Expired::In,
            _ => Expired::Only,
        });
        let mut removed = Vec::new();
        let mut rows = std::mem::take(&mut self.rows);
        rows.retain(|row| match self.record(row, at) {
            None => !self.spent(row, at),
            Some(record)
                if (self.spent(row, at) || self.has(Bug::PurgeTakesTheLive))
                    && wanted.matches(&record)
                    && removed.len() < limit =>
            {
                removed.push(EvictTarget::of(&record));
                false
            }
            Some(_) => true,
        });
        self.rows = rows;
        if self.has(Bug::CounterGoesWithTheLastRow) {
            self.counters.retain(|key, _| self.rows.iter().any(|row| row.key == *key));
        }
        let mut forgotten = 0;
        let after = micros_up(self.forget_after);
        let forgets = |counter: u64| match self.bug {
            Some(Bug::CounterIsForgottenAtOnce) => true,
            Some(Bug::CounterAheadOfTheClockIsForgotten) => counter.abs_diff(at.wall) > after,
            _ => counter + after < at.wall,
        };
        self.counters.retain(|key, counter| {
            let forget = !self.marked
                && self.rows.iter().all(|row| row.key != *key)
                && filter.matches_counter(key)
                && forgets(*counter)
                && removed.len() + forgotten < limit;
            forgotten += usize::from(forget);
            !forget
        });
        let more = removed.len() + forgotten == limit;
        EvictReply::new(removed, forgotten, more)
    }
}
