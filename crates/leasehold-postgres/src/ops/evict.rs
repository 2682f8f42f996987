use std::sync::{Arc, PoisonError};

use futures_util::FutureExt as _;
use leasehold_core::{
    Effect, EvictReply, EvictRequest, EvictScope, EvictTarget, Expired, Filter, Reason, Result,
};
use leasehold_driver::Stored;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::list::stored;
use crate::call::{Call, Statement, bytes, names};
use crate::calls::renew::integer;
use crate::error;
use crate::inner::{Inner, locked};
use crate::position::Position;
use crate::sql::Sql;

/// How many rows one step of a purge reads.
const LOOK_AT: i64 = 5_000;

/// How many rows one step of a purge removes, which limits how long it locks them.
const STEP: usize = 100;

impl Inner {
    pub(crate) async fn evict(self: &Arc<Self>, request: &EvictRequest) -> Result<EvictReply> {
        match request.what() {
            EvictScope::Exactly { targets, reason } => {
                let most = request.limit().min(targets.len());
                let removed = self.evict_exactly(&targets[..most], reason.as_ref()).await?;
                Ok(EvictReply::new(removed, 0, most < targets.len()))
            }
            EvictScope::Expired(filter) => self.purge(filter, request.limit()).await,
        }
    }

    async fn evict_exactly(
        self: &Arc<Self>,
        targets: &[EvictTarget],
        reason: Option<&Reason>,
    ) -> Result<Vec<EvictTarget>> {
        // Every lease here has an id.
        let named = || targets.iter().filter_map(|target| Some((target, target.id.as_ref()?)));
        let evict = Evict {
            keys: names(named().map(|(target, _)| &target.key)),
            ids: named().map(|(_, id)| bytes(id)).collect(),
            tokens: named().map(|(target, _)| target.token.map(integer)).collect(),
            reason: reason.map(|reason| reason.as_str().to_owned()),
        };
        let rows = self.apart(evict).await?.ok_or_else(|| locked(&self.links.server))?;
        let named: Vec<_> = named().map(|(target, _)| target).collect();
        positions(&self.links.server, &rows)?
            .into_iter()
            .map(|nth| at(&named, nth).map(|target| (*target).clone()))
            .collect::<Option<_>>()
            .ok_or_else(|| error::odd(&self.links.server, "a position"))
    }

    /// Removes what is over, step by step, from where the last purge ended. When its time is over it returns what it has
    /// done, and the next purge continues there.
    async fn purge(self: &Arc<Self>, filter: &Filter, most: usize) -> Result<EvictReply> {
        let wanted = filter.clone().with_expired(Expired::Only);
        let keys = filter.keys().map(names);
        let start = match keys {
            Some(_) => Position::default(),
            None => self.purged_to.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        };
        let mut reply = EvictReply::new(Vec::new(), 0, true);
        let (mut at, mut wrapped) = (start.clone(), start == Position::default());
        let end = tokio::time::sleep(self.links.timeout);
        tokio::pin!(end);
        while (&mut end).now_or_never().is_none() {
            let acted = !reply.removed.is_empty() || reply.forgotten > 0;
            let scanned = self.scan(&keys, &at).await;
            let (page, next) = match scanned {
                Ok(scanned) => scanned,
                Err(error) if acted => return Err(error.with_effect(Effect::Unknown)),
                Err(error) => return Err(error),
            };
            let room = most - reply.removed.len() - reply.forgotten;
            let (candidates, full_at) =
                Candidates::of(page, at.clone(), (&wanted, filter), room.min(STEP));
            if !candidates.is_empty() {
                let purged = self.remove(candidates, &mut reply).await;
                purged.map_err(|e| if acted { e.with_effect(Effect::Unknown) } else { e })?;
            }
            match full_at.or(next) {
                Some(position) => at = position,
                None if wrapped => {
                    at = Position::default();
                    reply.more = false;
                    break;
                }
                // From the beginning, as far as it has started.
                None => (at, wrapped) = (Position::default(), true),
            }
            if reply.removed.len() + reply.forgotten >= most {
                break;
            }
        }
        if keys.is_none() {
            *self.purged_to.lock().unwrap_or_else(PoisonError::into_inner) = at;
        }
        Ok(reply)
    }

    /// The rows that may be purged among the next ones, and where the next step begins.
    async fn scan(
        self: &Arc<Self>,
        keys: &Option<Vec<String>>,
        at: &Position,
    ) -> Result<(Vec<Old>, Option<Position>)> {
        let scan = Scan { keys: keys.clone(), at: at.clone(), forget_after: self.forget_after };
        let rows = self.read(scan).await?;
        let mut next = None;
        let mut found = Vec::new();
        for row in &rows {
            let Some((now, stored)) = stored(row) else { continue };
            if row.try_get(2).unwrap_or(false) {
                next = Some(Position::of(&stored));
            }
            let (over, forgettable) = (row.get(3), row.get(4));
            if over || forgettable {
                found.push(Old { now, stored, over, forgettable });
            }
        }
        Ok((found, next))
    }

    async fn remove(
        self: &Arc<Self>,
        candidates: Candidates,
        reply: &mut EvictReply,
    ) -> Result<()> {
        let Candidates { targets, purge } = candidates;
        let rows = self.apart(purge).await?.ok_or_else(|| locked(&self.links.server))?;
        for nth in positions(&self.links.server, &rows)? {
            if nth < 0 {
                reply.forgotten += 1;
            } else if let Some(Some(target)) = at(&targets, nth) {
                reply.removed.push(target.clone());
            }
        }
        Ok(())
    }
}

/// A row with something to purge.
struct Old {
    now: i64,
    stored: Stored,
    over: bool,
    forgettable: bool,
}

/// What one step of a purge is to remove.
#[derive(Default)]
struct Candidates {
    /// `None` for a mark that only informs a holder.
    targets: Vec<Option<EvictTarget>>,
    purge: Purge,
}

impl Candidates {
    fn len(&self) -> usize {
        self.targets.iter().flatten().count() + self.purge.counted.len()
    }

    fn is_empty(&self) -> bool {
        self.targets.is_empty() && self.purge.counted.is_empty()
    }

    /// At most `most` of these rows, which come after `at`, and the position before the first one that is left. The counter of a key comes after
    /// all its records.
    fn of(
        page: Vec<Old>,
        mut at: Position,
        (wanted, filter): (&Filter, &Filter),
        most: usize,
    ) -> (Self, Option<Position>) {
        let mut all = Self::default();
        for key in page.chunk_by(|a, b| a.stored.key == b.stored.key) {
            for row in key {
                if all.len() == most {
                    return (all, Some(at));
                }
                all.add(wanted, row);
            }
            let counted = key.iter().find(|row| {
                row.forgettable && row.stored.key().is_ok_and(|key| filter.matches_counter(&key))
            });
            if let Some(Old { stored, .. }) = counted {
                if all.len() == most {
                    return (all, Some(at));
                }
                all.purge.counters.push(stored.counter);
                all.purge.counted.push(stored.key.clone());
            }
            at = key.last().map(|row| Position::of(&row.stored)).unwrap_or(at);
        }
        (all, None)
    }

    fn add(&mut self, wanted: &Filter, row: &Old) {
        let Old { now, stored, over, .. } = row;
        let (true, Ok(Some(id))) = (over, stored.id()) else { return };
        let target = match stored.record(*now) {
            Ok(Some(record)) if wanted.matches(&record) => Some(EvictTarget::of(&record)),
            Ok(None) => None,
            Ok(Some(_)) | Err(_) => return,
        };
        self.targets.push(target);
        self.purge.keys.push(stored.key.clone());
        self.purge.ids.push(bytes(&id));
        self.purge.tokens.push(stored.token);
    }
}

fn positions(server: &str, rows: &[Row]) -> Result<Vec<i32>> {
    rows.iter().map(|row| row.try_get(0).map_err(|e| error::odd(server, e))).collect()
}

fn at<T>(all: &[T], nth: i32) -> Option<&T> {
    all.get(usize::try_from(nth).ok()?.checked_sub(1)?)
}

struct Evict {
    keys: Vec<String>,
    ids: Vec<Vec<u8>>,
    tokens: Vec<Option<i64>>,
    reason: Option<String>,
}

impl Statement for Evict {
    fn call<'a>(&'a self, sql: &'a Sql, patience: &'a Option<String>) -> Call<'a> {
        Call::new(
            &sql.evict,
            [
                (patience as _, Type::TEXT),
                (&self.keys as _, Type::TEXT_ARRAY),
                (&self.ids as _, Type::BYTEA_ARRAY),
                (&self.tokens as _, Type::INT8_ARRAY),
                (&self.reason as _, Type::TEXT),
            ],
        )
    }
}

#[derive(Default)]
struct Purge {
    keys: Vec<String>,
    ids: Vec<Vec<u8>>,
    tokens: Vec<Option<i64>>,
    counted: Vec<String>,
    counters: Vec<i64>,
}

impl Statement for Purge {
    fn call<'a>(&'a self, sql: &'a Sql, patience: &'a Option<String>) -> Call<'a> {
        Call::new(
            &sql.purge,
            [
                (patience as _, Type::TEXT),
                (&self.keys as _, Type::TEXT_ARRAY),
                (&self.ids as _, Type::BYTEA_ARRAY),
                (&self.tokens as _, Type::INT8_ARRAY),
                (&self.counted as _, Type::TEXT_ARRAY),
                (&self.counters as _, Type::INT8_ARRAY),
            ],
        )
    }
}

struct Scan {
    keys: Option<Vec<String>>,
    at: Position,
    forget_after: Option<i64>,
}

impl Statement for Scan {
    fn call<'a>(&'a self, sql: &'a Sql, _: &'a Option<String>) -> Call<'a> {
        Call::new(
            &sql.scan,
            [
                (&self.at.key as _, Type::TEXT),
                (&self.at.slot as _, Type::INT4),
                (&self.keys as _, Type::TEXT_ARRAY),
                (&LOOK_AT as _, Type::INT8),
                (&self.forget_after as _, Type::INT8),
            ],
        )
    }
}
