//! Ends leases by force, and removes what is over.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::join_all;
use google_cloud_spanner::result::Row;
use leasehold_core::{
    Effect, Error, EvictReply, EvictRequest, EvictTarget, Filter, Key, Result, Table, Unreadable,
    worst,
};
use leasehold_driver::{Deadline, outliving};

use super::rules::{Lock, LockRow, delete};
use super::{Inner, LOOK_AT, PURGE_EVERY, behind};
use crate::client::{Decision, Found};
use crate::columns::{column, instant, now};

/// How long our claim rows stay: a client of spindle that read the token before us may add the same one until it goes on.
const KEEP_CLAIMS: Duration = Duration::from_secs(24 * 60 * 60);

/// How many batches of claim rows one request removes.
const BATCHES: usize = 10;

impl Inner {
    pub(super) async fn evict(&self, targets: &[EvictTarget], limit: usize) -> Result<EvictReply> {
        let named = &targets[..limit.min(targets.len())];
        let evictions = named.iter().map(|target| async move {
            let request = EvictRequest::exactly(vec![target.clone()], None);
            self.change(&self.client.requests, &target.key, move |lock, table, now| {
                let evict = |rules: &mut Table| Ok(!rules.evict(&request, now).removed.is_empty());
                let mut decided = lock.decide(table, now, None, evict)?;
                if decided.reply
                    && let Some(changes) = lock.depose(table, now)?
                {
                    decided.changes = changes;
                }
                Ok(decided)
            })
            .await
        });
        let (mut removed, mut failures) = (Vec::new(), Vec::new());
        for (target, evicted) in named.iter().zip(join_all(evictions).await) {
            match evicted {
                Ok(true) => removed.push(target.clone()),
                Ok(false) => {}
                Err(error) => failures.push(error),
            }
        }
        match worst(failures) {
            Some(error) if removed.is_empty() => Err(error),
            Some(error) => Err(error.with_effect(Effect::Unknown)),
            None => Ok(EvictReply::new(removed, 0, named.len() < targets.len())),
        }
    }

    /// Frees the locks whose holders are gone, and removes old claim rows. When its time is over it returns what it has done.
    pub(super) async fn purge(&self, filter: &Filter, limit: usize) -> Result<EvictReply> {
        let until = self.client.deadline();
        let mut reply = EvictReply::new(Vec::new(), 0, false);
        let acted = |e: Error, reply: &EvictReply| {
            if reply.removed.is_empty() { e } else { e.with_effect(Effect::Unknown) }
        };
        if let Some(keys) = filter.keys() {
            let names = keys.iter().map(|key| key.as_str().to_owned()).collect();
            self.free(names, filter, limit, until, &mut reply).await?;
            return Ok(reply);
        }
        let prefix = filter.key_prefix();
        let mut from = prefix.to_owned();
        loop {
            let page = self.statements.page(&from, prefix, LOOK_AT);
            let rows = self.client.read(page, until).await.map_err(|e| acted(e, &reply))?;
            let names = rows.iter().map(|row| column::<String>(row, "asked"));
            let names: Vec<_> = names.collect::<Result<_>>().map_err(|e| acted(e, &reply))?;
            let is_last = names.len() < LOOK_AT;
            from = names.last().map_or_else(String::new, |last| behind(last));
            let over = rows.iter().zip(names).filter(|(row, name)| {
                filter.matches_name(name) && self.is_over(row).unwrap_or(true)
            });
            let over: Vec<_> = over.map(|(_, name)| name).collect();
            if !over.is_empty() {
                let freed = self.free(over, filter, limit, until, &mut reply).await;
                freed.map_err(|e| acted(e, &reply))?;
            }
            if is_last || reply.more {
                break;
            }
        }
        let mut batches = 0;
        while batches < BATCHES {
            let purged = self.purge_claims(prefix, until).await;
            let has_acted = batches > 0 || !reply.removed.is_empty();
            let is_more = purged.map_err(|e| match has_acted {
                true => e.with_effect(Effect::Unknown),
                false => e,
            })?;
            if !is_more {
                break;
            }
            batches += 1;
        }
        reply.more |= batches == BATCHES;
        Ok(reply)
    }

    /// Whether anybody may take the lock of a row.
    fn is_over(&self, row: &Row) -> Result<bool> {
        let now = instant(now(row)?);
        let holder = LockRow::of(row)?.map(|row| row.holder(self.config.duration)).transpose()?;
        Ok(holder.flatten().and_then(|holder| holder.expires).is_some_and(|end| end <= now.boot))
    }

    /// Frees those of these locks whose holders are gone.
    async fn free(
        &self,
        names: Vec<String>,
        filter: &Filter,
        limit: usize,
        until: Deadline,
        reply: &mut EvictReply,
    ) -> Result<()> {
        let left = limit - reply.removed.len();
        if left == 0 {
            reply.more = true;
            return Ok(());
        }
        let request = EvictRequest::expired(filter.clone()).with_limit(1);
        let (statements, duration) = (Arc::clone(&self.statements), self.config.duration);
        let decide = move |found: &Found| {
            let (mut reply, mut changes) = (EvictReply::new(Vec::new(), 0, false), Vec::new());
            let now = instant(found.now);
            for row in &found.rows {
                let name: String = column(row, "asked")?;
                let decided = Key::new(&name).map_err(Into::into).and_then(|key| {
                    let lock = Lock::new(key, LockRow::of(row)?, duration);
                    let evict = |rules: &mut Table| Ok(rules.evict(&request, now).removed);
                    lock.decide(&statements.table, now, None, evict)
                });
                match decided {
                    Ok(decided) if decided.reply.is_empty() => {}
                    Ok(_) if reply.removed.len() == left => reply.more = true,
                    Ok(decided) => {
                        reply.removed.extend(decided.reply);
                        changes.extend(decided.changes);
                    }
                    Err(error) => reply.unreadable.push(Unreadable::new(name, error)),
                }
            }
            Ok(Decision { reply, changes })
        };
        let client = &self.client;
        let look = self.statements.look(names);
        let done = client.transact(&client.requests, (until, until), look, decide).await?.reply;
        reply.removed.extend(done.removed);
        reply.unreadable.extend(done.unreadable);
        reply.more = done.more;
        Ok(())
    }

    /// Removes a batch of our claim rows that are old enough. Returns whether there may be more.
    async fn purge_claims(&self, prefix: &str, until: Deadline) -> Result<bool> {
        if until.left().is_zero() {
            return Ok(true);
        }
        let kept = i64::try_from(KEEP_CLAIMS.as_micros()).unwrap_or(i64::MAX);
        let statement = self.statements.claims(prefix, LOOK_AT, kept);
        let rows = self.client.read(statement, until).await?;
        let names = rows.iter().map(|row| column::<String>(row, "asked"));
        let names: Vec<_> = names.collect::<Result<_>>()?;
        let may_be_more = names.len() == LOOK_AT;
        if names.is_empty() {
            return Ok(false);
        }
        let statements = Arc::clone(&self.statements);
        let decide = move |found: &Found| {
            let old = Duration::from_micros(u64::try_from(found.now).unwrap_or_default())
                .saturating_sub(KEEP_CLAIMS);
            let mut changes = Vec::new();
            for row in &found.rows {
                if let Some(row) = LockRow::of(row)?
                    && row.is_claim_before(old)
                {
                    changes.push(delete(&statements.table, &row.name));
                }
            }
            Ok(Decision { reply: (), changes })
        };
        let client = &self.client;
        let look = self.statements.look(names);
        client.transact(&client.requests, (until, until), look, decide).await?;
        Ok(may_be_more)
    }

    /// Removes old claim rows of a lock, once in a while, beside its requests.
    pub(super) fn purge_sometimes(self: &Arc<Self>, key: &Key) {
        if self.granted.fetch_add(1, Ordering::Relaxed).is_multiple_of(PURGE_EVERY) {
            let (inner, prefix) = (Arc::clone(self), format!("{}_", key.as_str()));
            drop(outliving(async move {
                let until = inner.client.deadline();
                inner.purge_claims(&prefix, until).await
            }));
        }
    }
}
