//! Ends leases by force, and removes what is over.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use google_cloud_gax::error::rpc::Code;
use google_cloud_spanner::result::Row;
use leasehold_core::{
    Clock as _, Effect, Error, EvictReply, EvictRequest, EvictTarget, Filter, Key, Now, Result,
    Table, Unreadable, worst,
};
use leasehold_driver::{Deadline, outliving};

use super::rules::{Lock, LockRow, delete};
use super::statements::KEEP_CLAIMS;
use super::{Inner, LOOK_AT, PURGE_EVERY, behind_page, lock};
use crate::client::{Decision, Found, Times};
use crate::columns::{column, instant, now};
use crate::error;
use crate::sweep::{Sweep, add, left, sweep};
use crate::table::TableName;

/// Frees any lock whose holder is gone, and removes old claim rows.
struct Purge<'p> {
    of: &'p Inner,
    filter: &'p Filter,
    most: usize,
}

impl Sweep for Purge<'_> {
    type Position = String;

    async fn step(
        &self,
        from: &String,
        reply: &mut EvictReply,
        until: Deadline,
    ) -> Result<Option<String>> {
        let Self { of, filter, most } = *self;
        let page = of.statements.purge(from, filter.key_prefix(), LOOK_AT);
        let rows = of.client.read(page, until).await?;
        let (mut locks, mut claims) = (Vec::new(), Vec::new());
        for row in &rows {
            let name: String = column(row, "asked")?;
            match LockRow::of(row) {
                Ok(Some(lock)) if lock.is_claim_before(oldest(now(row)?)) => claims.push(name),
                _ if filter.matches_name(&name) && of.is_over(row).unwrap_or(true) => {
                    locks.push(name);
                }
                _ => {}
            }
        }
        if !claims.is_empty() {
            of.remove_claims(claims, until).await?;
        }
        if !locks.is_empty() {
            add(reply, of.free(locks, filter, left(reply, most), until).await?);
        }
        behind_page(&rows, LOOK_AT)
    }
}

impl Inner {
    pub(super) async fn evict(&self, targets: &[EvictTarget], limit: usize) -> Result<EvictReply> {
        let named = &targets[..limit.min(targets.len())];
        let evictions = named.iter().map(|target| self.evict_one(target));
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

    /// Ends a lease; false if it is not there.
    async fn evict_one(&self, target: &EvictTarget) -> Result<bool> {
        let times = Times::until(self.client.deadline());
        loop {
            let request = EvictRequest::exactly(vec![target.clone()], None);
            let passed = lock(&self.met).passed(&target.key, self.patience(), self.clock.now());
            let claimed = Arc::new(Mutex::default());
            let claims = Arc::clone(&claimed);
            let evict = move |of_key: &Lock, table: &TableName, now: Now| {
                let evict = |rules: &mut Table| Ok(!rules.evict(&request, now).removed.is_empty());
                let mut decided = of_key.decide(table, now, None, evict)?;
                if decided.reply
                    && let Some(changes) = of_key.depose(table, now, passed.as_deref())?
                {
                    *lock(&claims) = Some(of_key.claim());
                    decided.changes = changes;
                }
                Ok(decided)
            };
            let done = self.change(&self.client.requests, times, &target.key, evict).await;
            let is_claimed = |error: &Error| error::has_code(error, Code::AlreadyExists);
            if !done.as_ref().is_err_and(is_claimed) {
                return done;
            }
            // Another client is about to take the lock over.
            let Some(claim) = lock(&claimed).take() else { return done };
            let left = self.respect(&target.key, &claim);
            if !left.is_zero() {
                let message = format!(
                    "a client of spindle is taking over the lock {:?}; if it does not lead within {left:?}, evict again",
                    target.key.as_str()
                );
                return Err(Error::unavailable(Effect::NotApplied, message));
            }
        }
    }

    /// Frees the locks whose holders are gone, and removes old claim rows.
    pub(super) async fn purge(&self, filter: &Filter, most: usize) -> Result<EvictReply> {
        let until = self.client.deadline();
        if let Some(keys) = filter.keys() {
            let names = keys.iter().map(|key| key.as_str().to_owned()).collect();
            return self.free(names, filter, most, until).await;
        }
        let purge = Purge { of: self, filter, most };
        sweep(&purge, filter.key_prefix().to_owned(), &self.purged_to, most, until).await
    }

    /// Whether anybody may take the lock of a row.
    fn is_over(&self, row: &Row) -> Result<bool> {
        let now = instant(now(row)?);
        let holder = LockRow::of(row)?.map(|row| row.holder(self.config.duration)).transpose()?;
        Ok(holder.flatten().and_then(|holder| holder.expires).is_some_and(|end| end <= now.boot))
    }

    /// Frees at most so many of these locks, whose holders are gone.
    async fn free(
        &self,
        names: Vec<String>,
        filter: &Filter,
        most: usize,
        until: Deadline,
    ) -> Result<EvictReply> {
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
                    Ok(_) if reply.removed.len() == most => reply.more = true,
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
        Ok(client.transact(&client.requests, Times::until(until), look, decide).await?.reply)
    }

    /// Removes those of these claim rows that are ours and old enough.
    async fn remove_claims(&self, names: Vec<String>, until: Deadline) -> Result<()> {
        let statements = Arc::clone(&self.statements);
        let decide = move |found: &Found| {
            let mut changes = Vec::new();
            for row in &found.rows {
                if let Some(row) = LockRow::of(row)?
                    && row.is_claim_before(oldest(found.now))
                {
                    changes.push(delete(&statements.table, &row.name));
                }
            }
            Ok(Decision { reply: (), changes })
        };
        let client = &self.client;
        let look = self.statements.look(names);
        client.transact(&client.requests, Times::until(until), look, decide).await.map(drop)
    }

    /// Removes old claim rows of a lock, once in a while, beside its requests.
    pub(super) fn purge_sometimes(self: &Arc<Self>, key: &Key) {
        if self.granted.fetch_add(1, Ordering::Relaxed).is_multiple_of(PURGE_EVERY) {
            let (inner, prefix) = (Arc::clone(self), format!("{}_", key.as_str()));
            drop(outliving(async move {
                let until = inner.client.deadline();
                let claims = inner.statements.claims(&prefix, LOOK_AT);
                let rows = inner.client.read(claims, until).await?;
                let names: Result<Vec<_>> = rows.iter().map(|row| column(row, "asked")).collect();
                match names?.as_slice() {
                    [] => Ok(()),
                    names => inner.remove_claims(names.to_vec(), until).await,
                }
            }));
        }
    }
}

/// Our claim rows from before this time may go.
fn oldest(now: i64) -> Duration {
    instant(now).boot.saturating_sub(KEEP_CLAIMS)
}
