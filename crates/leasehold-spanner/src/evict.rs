//! Ends leases by force, and removes what is over.

use std::sync::Arc;
use std::time::Duration;

use google_cloud_spanner::result::Row;
use leasehold_core::table::may_forget;
use leasehold_core::{
    EvictReply, EvictRequest, EvictScope, Filter, Key, Now, Result, Table, Unreadable,
};
use leasehold_driver::Deadline;

use crate::client::{Decision, Found, Times};
use crate::columns::{instant, now};
use crate::position::Position;
use crate::rows::{Rows, Stored, forget, name, stored};
use crate::store::Inner;
use crate::sweep::{Sweep, add, add_unreadable, left, sweep};
use crate::table::TableName;

/// How many rows a step of a purge reads.
const LOOK_AT: usize = 1_000;

/// Removes what is over of any key.
struct Purge<'p> {
    of: &'p Inner,
    filter: &'p Filter,
    most: usize,
}

impl Sweep for Purge<'_> {
    type Position = Position;

    async fn step(
        &self,
        from: &Position,
        reply: &mut EvictReply,
        until: Deadline,
    ) -> Result<Option<Position>> {
        let Self { of, filter, most } = *self;
        let rows = of.scan(from.clone(), LOOK_AT, until).await?;
        let mut keys: Vec<Key> = Vec::new();
        for row in &rows {
            let name = name(row)?;
            if !filter.matches_name(&name) || !of.is_over(row)? {
                continue;
            }
            match Key::new(&name) {
                Ok(key) if keys.last() == Some(&key) => {}
                Ok(key) => keys.push(key),
                Err(error) => add_unreadable(reply, Unreadable::new(name, error.into())),
            }
        }
        if !keys.is_empty() {
            add(reply, of.purge_of(keys, filter, left(reply, most), until).await?);
        }
        let last = rows.last().filter(|_| rows.len() == LOOK_AT);
        last.map(|last| Position::of(last).map(Position::next)).transpose()
    }
}

impl Inner {
    pub(crate) async fn evict(&self, request: &EvictRequest) -> Result<EvictReply> {
        let until = self.client.deadline();
        match request.scope() {
            EvictScope::Exactly { targets, .. } => {
                let (keys, request) =
                    (targets.iter().map(|target| target.key.clone()), request.clone());
                self.change(keys, until, move |rows, table, keys| {
                    let mut changes = Vec::new();
                    let evict = |rules: &mut Table, now: Now| Ok(rules.evict(&request, now));
                    let reply = rows.decide(table, keys, &mut changes, evict)?;
                    Ok(Decision { reply, changes })
                })
                .await
            }
            EvictScope::Expired(filter) => match filter.keys() {
                Some(keys) => self.purge_of(keys.to_vec(), filter, request.limit(), until).await,
                None => {
                    let purge = Purge { of: self, filter, most: request.limit() };
                    let first = Position::first(filter.key_prefix());
                    sweep(&purge, first, &self.purged_to, purge.most, until).await
                }
            },
        }
    }

    /// Removes what is over of these keys, and forgets their counters.
    async fn purge_of(
        &self,
        keys: Vec<Key>,
        filter: &Filter,
        most: usize,
        until: Deadline,
    ) -> Result<EvictReply> {
        let (filter, forget_after) = (filter.clone(), self.config.forget_after);
        self.change(keys, until, move |rows, table, keys| {
            let (mut changes, mut reply) = (Vec::new(), EvictReply::new(Vec::new(), 0, false));
            for key in keys {
                if left(&reply, most) == 0 {
                    reply.more = true;
                    break;
                }
                let request = EvictRequest::expired(filter.clone()).with_limit(left(&reply, most));
                let mut is_free = false;
                let evict = |rules: &mut Table, now: Now| {
                    let evicted = rules.evict(&request, now);
                    is_free = rules.holders(key).is_empty();
                    Ok(evicted)
                };
                match rows.decide(table, [key], &mut changes, evict) {
                    Ok(evicted) => reply.removed.extend(evicted.removed),
                    Err(error) => {
                        reply.unreadable.push(Unreadable::new(key.as_str(), error));
                        continue;
                    }
                }
                let may_go = is_free && is_forgotten(rows, key, &filter, forget_after);
                if may_go && left(&reply, most) > 0 {
                    changes.push(forget(table, key));
                    reply.counters_forgotten += 1;
                }
            }
            reply.more |= left(&reply, most) == 0;
            Ok(Decision { reply, changes })
        })
        .await
    }

    /// Changes the rows of some keys in a transaction.
    async fn change(
        &self,
        keys: impl IntoIterator<Item = Key>,
        until: Deadline,
        decide: impl Fn(&Rows, &TableName, &[Key]) -> Result<Decision<EvictReply>>
        + Send
        + Sync
        + 'static,
    ) -> Result<EvictReply> {
        let mut keys: Vec<_> = keys.into_iter().collect();
        keys.sort_unstable();
        keys.dedup();
        let (client, sql) = (&self.client, Arc::clone(&self.sql));
        let lock = sql.lock(keys.iter());
        let decide = move |found: &Found| decide(&Rows::of(found)?, &sql.table, &keys);
        Ok(client.transact(&client.requests, Times::until(until), lock, decide).await?.reply)
    }

    /// Whether there is something to remove in a row, or to report.
    fn is_over(&self, row: &Row) -> Result<bool> {
        let (now, forget_after) = (instant(now(row)?), self.config.forget_after);
        Ok(match stored(row) {
            Ok(Stored::Lease(holder)) => holder.expires.is_some_and(|end| end <= now.boot),
            Ok(Stored::Counter(counter)) => may_forget(counter, now.wall_micros, forget_after),
            Ok(Stored::Nothing) => false,
            Err(_) => true,
        })
    }
}

fn is_forgotten(rows: &Rows, key: &Key, filter: &Filter, forget_after: Option<Duration>) -> bool {
    let counter = rows.counter(key);
    counter > 0
        && filter.matches_counter(key)
        && may_forget(counter, rows.now().wall_micros, forget_after)
}
