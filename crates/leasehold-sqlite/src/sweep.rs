//! Removes expired records from the whole database, in steps that block nobody for long.

use leasehold_core::{EvictReply, EvictTarget, Expired, Filter, Result, Unreadable};
use rusqlite::params;

use crate::database::Database;
use crate::limit::Limit;
use crate::rows::{Next, Rows, Stored};

/// How many rows one step reads, which limits how long it holds the write lock.
const STEP: usize = 250;

/// One `evict Expired`. Each step is a transaction of its own, so that other operations, of this process and of
/// others, get their turn in between.
#[derive(Debug)]
pub(crate) struct Sweep {
    filter: Filter,
    limit: usize,
    /// Where the next step begins, in the order of ends; `None` after the last.
    at: Option<After>,
    removed: Vec<EvictTarget>,
    unreadable: Vec<Unreadable>,
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
            at: Some(first),
            removed: Vec::new(),
            unreadable: Vec::new(),
        }
    }

    /// Takes one step.
    pub(crate) fn step(mut self, database: &Database, limit: Limit) -> Result<Self> {
        database.write(limit, |rows| match self.at.take() {
            Some(after) => self.remove_records(rows, &after),
            None => Ok(()),
        })?;
        Ok(self)
    }

    /// Everything was read, or the limit is reached.
    pub(crate) fn is_done(&self) -> bool {
        self.is_full() || self.at.is_none()
    }

    /// Something was removed so far.
    pub(crate) fn has_acted(&self) -> bool {
        !self.removed.is_empty()
    }

    /// What was done so far.
    pub(crate) fn reply(mut self) -> EvictReply {
        let more = self.is_full() || !self.is_done();
        self.removed.sort_unstable_by(|a, b| (&a.key, a.token).cmp(&(&b.key, b.token)));
        let mut reply = EvictReply::new(self.removed, 0, more);
        reply.unreadable = self.unreadable;
        reply
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
        self.removed.len() == self.limit
    }

    /// Removes exactly the rows that have ended while the write lock is held (C8). Rows that only inform an
    /// evicted holder are removed too, and not counted. Damaged rows stay.
    fn remove_records(&mut self, rows: &Rows<'_>, after: &After) -> Result<()> {
        let left = self.limit - self.removed.len();
        let (mut looked_at, mut gone, mut removed) = (0, Vec::new(), Vec::new());
        let (mut unreadable, mut at) = (Vec::new(), None);
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
                at = end.filter(|_| enough).map(|(epoch, expires)| After {
                    epoch,
                    expires,
                    key: key.as_str().to_owned(),
                    id: id.to_bytes().into_owned(),
                });
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
        if at.is_none() {
            rows.tidy()?;
        }
        self.removed.extend(removed);
        self.at = at;
        Ok(())
    }
}
