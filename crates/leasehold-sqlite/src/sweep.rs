//! Removes expired records and old counters from the whole database, in steps that block nobody for long.

use leasehold_core::{EvictReply, EvictTarget, Expired, Filter, Result, Unreadable, table};
use rusqlite::params;

use crate::database::Database;
use crate::limit::Limit;
use crate::rows::{Counter, Next, Rows, Stored};

/// How many rows one step reads, which limits how long it holds the write lock.
const STEP: usize = 250;

/// One `evict Expired`. Each step is a transaction of its own, so that other operations, of this process and of
/// others, get their turn in between.
#[derive(Debug)]
pub(crate) struct Sweep {
    filter: Filter,
    limit: usize,
    at: At,
    removed: Vec<EvictTarget>,
    forgotten: usize,
    unreadable: Vec<Unreadable>,
}

/// The next step.
#[derive(Debug, Clone)]
enum At {
    /// Ended records, in the order of their end.
    Records(After),
    /// Counters, in the order of their value, after this value and key.
    Counters(u64, String),
    /// Nothing.
    End,
}

/// A position in the index of ends.
#[derive(Debug, Clone)]
struct After {
    epoch: i64,
    expires: i64,
    key: String,
    id: Vec<u8>,
}

impl Sweep {
    pub(crate) fn new(filter: &Filter, limit: usize) -> Self {
        let first = After { epoch: i64::MIN, expires: 0, key: String::new(), id: Vec::new() };
        Self {
            filter: filter.clone().with_expired(Expired::Only),
            limit,
            at: At::Records(first),
            removed: Vec::new(),
            forgotten: 0,
            unreadable: Vec::new(),
        }
    }

    /// Takes one step.
    pub(crate) fn step(mut self, database: &Database, limit: Limit) -> Result<Self> {
        database.write(limit, |rows| match self.at.clone() {
            At::Records(after) => self.remove_records(rows, &after),
            At::Counters(value, key) => self.forget_counters(rows, (value, &key)),
            At::End => Ok(()),
        })?;
        Ok(self)
    }

    /// Everything was read, or the limit is reached.
    pub(crate) fn is_done(&self) -> bool {
        self.is_full() || matches!(self.at, At::End)
    }

    /// Something was removed or forgotten so far.
    pub(crate) fn has_acted(&self) -> bool {
        self.done() > 0
    }

    /// What was done so far.
    pub(crate) fn reply(mut self) -> EvictReply {
        let more = self.is_full() || !self.is_done();
        self.removed.sort_unstable_by(|a, b| (&a.key, a.token).cmp(&(&b.key, b.token)));
        let mut reply = EvictReply::new(self.removed, self.forgotten, more);
        reply.unreadable = self.unreadable;
        reply
    }

    fn done(&self) -> usize {
        self.removed.len() + self.forgotten
    }

    /// Names what stays, once: a damaged key may have several rows.
    fn left(&mut self, unreadable: Vec<Unreadable>) {
        for one in unreadable {
            let is_known = self.unreadable.iter().any(|known| known.name == one.name);
            if !is_known && self.filter.matches_name(&one.name) {
                self.unreadable.push(one);
            }
        }
    }

    fn is_full(&self) -> bool {
        self.done() == self.limit
    }

    /// Removes exactly the rows that have ended while the write lock is held (C8). Rows that only inform an
    /// evicted holder are removed too, and not counted. Damaged rows stay.
    fn remove_records(&mut self, rows: &Rows<'_>, after: &After) -> Result<()> {
        let left = self.limit - self.done();
        let (mut looked_at, mut gone, mut removed) = (0, Vec::new(), Vec::new());
        let mut unreadable = Vec::new();
        let mut at = match rows.forget_after {
            Some(_) => At::Counters(0, String::new()),
            None => At::End,
        };
        rows.each_record(
            &rows.sql.expired,
            params![after.epoch, after.expires, after.key, after.id],
            |stored| {
                let Stored { key, id, end, holder } = match stored {
                    Ok(stored) => stored,
                    Err(damaged) => {
                        unreadable.push(damaged);
                        return Ok(Next::More);
                    }
                };
                if holder.expires.is_none_or(|end| end > rows.now.boot) {
                    return Ok(Next::Enough);
                }
                looked_at += 1;
                let enough = looked_at == STEP;
                let position = end.filter(|_| enough).map(|(epoch, expires)| After {
                    epoch,
                    expires,
                    key: key.as_str().to_owned(),
                    id: id.to_bytes().into_owned(),
                });
                if let Some(position) = position {
                    at = At::Records(position);
                }
                match holder.record(&key, rows.now) {
                    None => gone.push((key, id)),
                    Some(record) if self.filter.matches(&record) => {
                        removed.push(EvictTarget::of(&record));
                        gone.push((key, id));
                    }
                    Some(_) => {}
                }
                Ok(if enough || removed.len() == left { Next::Enough } else { Next::More })
            },
        )?;
        self.left(unreadable);
        for (key, id) in &gone {
            rows.delete_holder(key, id)?;
        }
        self.removed.extend(removed);
        self.at = at;
        Ok(())
    }

    /// Forgets counters of keys without a record whose value is old enough (C7).
    fn forget_counters(&mut self, rows: &Rows<'_>, after: (u64, &str)) -> Result<()> {
        let left = self.limit - self.done();
        let (mut looked_at, mut forgotten) = (0, Vec::new());
        let mut at = At::End;
        let mut unreadable = Vec::new();
        rows.each_counter(after, |counter| {
            let Counter { key, value, taken } = match counter {
                Ok(counter) => counter,
                Err(damaged) => {
                    unreadable.push(damaged);
                    return Next::More;
                }
            };
            if !table::may_forget(value, rows.now.wall_micros, rows.forget_after) {
                return Next::Enough;
            }
            looked_at += 1;
            let enough = looked_at == STEP;
            if enough {
                at = At::Counters(value, key.as_str().to_owned());
            }
            if !taken && self.filter.matches_counter(&key) {
                forgotten.push(key);
            }
            if enough || forgotten.len() == left { Next::Enough } else { Next::More }
        })?;
        self.left(unreadable);
        for key in &forgotten {
            rows.delete_counter(key)?;
        }
        self.forgotten += forgotten.len();
        self.at = at;
        Ok(())
    }
}
