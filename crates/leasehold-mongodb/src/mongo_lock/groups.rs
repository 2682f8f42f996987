//! The locks of one id, found and changed one by one.

use std::cmp::Reverse;
use std::collections::HashSet;

use leasehold_core::{
    Claims, Error, Filter, Key, LeaseId, LostReason, Mode, RenewEntry, RenewOutcome, RenewRequest,
    Result, Ttl,
};
use mongodb::bson::{Bson, Document, doc};

use super::{LockChanges, LockStatus, StatusFilter};
use crate::commands::INDEX;
use crate::error::{of_write_concern, unexpected};
use crate::inner::Inner;
use crate::ops::Leases;
use crate::record::free;

impl Leases {
    pub(super) async fn renew_all(&self, lock_id: &LeaseId, ttl: Ttl) -> LockChanges {
        let mut changes = LockChanges { locks: Vec::new(), error: None };
        if let Err(error) = self.try_renew_all(lock_id, ttl, &mut changes).await {
            changes.error = Some(error);
        }
        changes
    }

    async fn try_renew_all(
        &self,
        lock_id: &LeaseId,
        ttl: Ttl,
        changes: &mut LockChanges,
    ) -> Result<()> {
        let filter = StatusFilter::default().lock_id(lock_id);
        let (ending, endless): (Vec<_>, Vec<_>) = self
            .inner
            .status(&filter)
            .await?
            .into_iter()
            .partition(|lock| lock.expires_at.is_some());
        let mut kept: HashSet<_> = endless.iter().map(|lock| lock.id).collect();
        let mut failed = (ending.is_empty() && endless.is_empty()).then_some(LostReason::Gone);
        let outcomes = match &*ending {
            [] => Vec::new(),
            ending => self.extend(ending, lock_id, ttl).await?,
        };
        for (lock, outcome) in ending.iter().zip(outcomes) {
            match outcome {
                RenewOutcome::Held(_) => drop(kept.insert(lock.id)),
                RenewOutcome::Lost(reason) => failed = Some(reason.unwrap_or(LostReason::Gone)),
                RenewOutcome::Failed(error) => changes.error = Some(error),
            }
        }
        if let Some(reason) = failed {
            changes.error.get_or_insert_with(|| Error::lease_lost(reason, None));
        }
        let now = self.inner.status(&filter).await?;
        changes.locks = now.into_iter().filter(|lock| kept.contains(&lock.id)).collect();
        Ok(())
    }

    async fn extend(
        &self,
        locks: &[LockStatus],
        lock_id: &LeaseId,
        ttl: Ttl,
    ) -> Result<Vec<RenewOutcome>> {
        let entries = locks.iter().map(|lock| entry(lock, lock_id, ttl));
        let request = RenewRequest::new(entries.collect::<Result<_>>()?);
        self.inner.capabilities().admit(&request)?;
        Ok(self.renew(&request).await?.leases)
    }
}

impl Inner {
    /// Each page has the time limit of an operation.
    pub(super) async fn status(&self, filter: &StatusFilter) -> Result<Vec<LockStatus>> {
        let wanted = [doc! { "$match": filter.query() }];
        let (mut locks, mut from) = (Vec::new(), None);
        loop {
            let until = self.commands.deadline();
            let (found, more) =
                self.documents(&Filter::default(), from.as_deref(), &wanted, until).await?;
            for document in &found {
                let all = LockStatus::all_of(document)?;
                locks.extend(all.into_iter().filter(|lock| filter.matches(lock)));
            }
            match found.last().filter(|_| more) {
                Some(last) => from = last.get_str("resource").ok().map(|name| format!("{name}\0")),
                None => break,
            }
        }
        locks.sort_by_key(|lock| Reverse(lock.id.map(|id| id.bytes())));
        Ok(locks)
    }

    pub(super) async fn unlock(&self, filter: &StatusFilter) -> LockChanges {
        match self.status(filter).await {
            Ok(found) => self.remove(found).await,
            Err(error) => LockChanges { locks: Vec::new(), error: Some(error) },
        }
    }

    pub(super) async fn purge_groups(&self) -> LockChanges {
        let mut changes = LockChanges { locks: Vec::new(), error: None };
        if let Err(error) = self.try_purge_groups(&mut changes).await {
            changes.error = Some(error);
        }
        changes
    }

    async fn try_purge_groups(&self, changes: &mut LockChanges) -> Result<()> {
        let over = self.status(&StatusFilter::default().ttl_below(1)).await?;
        let mut seen = HashSet::new();
        for lock in over.into_iter().filter(|lock| lock.is_over(self.skew)) {
            if !seen.insert(lock.lock_id.clone()) {
                continue;
            }
            let group = self.status(&StatusFilter::default().lock_id_text(lock.lock_id)).await?;
            if group.iter().any(|lock| lock.is_over(self.skew)) {
                let removed = self.remove(group).await;
                changes.locks.extend(removed.locks);
                removed.error.map_or(Ok(()), Err)?;
            }
        }
        Ok(())
    }

    /// Removes locks in their order, until one cannot be removed.
    async fn remove(&self, found: Vec<LockStatus>) -> LockChanges {
        let mut locks = Vec::new();
        for lock in found {
            match self.remove_one(&lock).await {
                Ok(true) => locks.push(lock),
                Ok(false) => {}
                Err(error) => return LockChanges { locks, error: Some(error) },
            }
        }
        LockChanges { locks, error: None }
    }

    /// Removes this lock, and no later one of its id (C8). False if it is not there any more.
    async fn remove_one(&self, lock: &LockStatus) -> Result<bool> {
        let until = self.commands.deadline();
        let (query, update) = removal(lock);
        let command = doc! {
            "findAndModify": self.commands.collection(),
            "query": query,
            "update": update,
            "fields": { "_id": 1 },
            "hint": INDEX,
        };
        let reply = self.commands.write(command, until).await;
        let reply = reply.map_err(|failure| self.commands.error(failure, until))?;
        of_write_concern(self.commands.server(), &reply)?;
        match reply.get("value") {
            Some(Bson::Document(_)) => Ok(true),
            Some(Bson::Null) => Ok(false),
            _ => Err(unexpected(self.commands.server(), "no value")),
        }
    }
}

fn removal(lock: &LockStatus) -> (Document, Document) {
    let (resource, lock_id) = (&lock.resource, &lock.lock_id);
    let own = doc! { "lockId": lock_id, "_id": lock.id };
    if lock.mode == Mode::Exclusive {
        let query = doc! {
            "resource": resource,
            "exclusive.lockId": lock_id,
            "exclusive._id": lock.id,
        };
        return (query, doc! { "$set": { "exclusive": free() } });
    }
    let query = doc! { "resource": resource, "shared.locks": { "$elemMatch": &own } };
    (query, doc! { "$inc": { "shared.count": -1 }, "$pull": { "shared.locks": own } })
}

/// The request that extends a lock. A resource that is no key is another client's, and stays as it is.
fn entry(lock: &LockStatus, lock_id: &LeaseId, ttl: Ttl) -> Result<RenewEntry> {
    let claims = Claims::one(Key::new(lock.resource.as_str())?, lock.mode);
    let entry = RenewEntry::extend(lock_id.clone(), claims, ttl);
    Ok(match lock.token {
        Some(token) => entry.with_token(token),
        None => entry,
    })
}
