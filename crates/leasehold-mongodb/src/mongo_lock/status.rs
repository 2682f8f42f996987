use std::time::{Duration, SystemTime};

use leasehold_core::{FencingToken, Mode, Result};
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, DateTime, Document};

use crate::error::damaged;
use crate::record::{Skew, integer, millis, token_of};

/// A lock as it is stored: mongo-lock's `LockStatus`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockStatus {
    /// The key.
    pub resource: String,
    /// The lease id, or what another client wrote for it.
    pub lock_id: String,
    /// Exclusive, or shared without its limit.
    pub mode: Mode,
    /// The group of the lease.
    pub owner: Option<String>,
    /// The host of its holder.
    pub host: Option<String>,
    /// Why it is held.
    pub comment: Option<String>,
    /// When it was granted.
    pub created_at: Option<SystemTime>,
    /// When it was last renewed.
    pub renewed_at: Option<SystemTime>,
    /// When it ends for clients of mongo-lock, later than for its holder if it is a lease of ours; `None` for never.
    pub expires_at: Option<SystemTime>,
    /// The token of the grant; clients of mongo-lock give none.
    pub token: Option<FencingToken>,
    /// Its `_id`, which orders locks and tells a later lock of the same id from this one.
    pub(super) id: Option<ObjectId>,
    /// Since 1970 by the server's clock, when it was read.
    now: Duration,
}

impl LockStatus {
    /// What is left until [`expires_at`](Self::expires_at), in whole seconds, when it was read: 0 if it is over or less than
    /// a second is left, `None` for never (mongo-lock's −1).
    pub fn ttl(&self) -> Option<u64> {
        self.left().map(|left| left.as_secs())
    }

    fn left(&self) -> Option<Duration> {
        let end = self.expires_at?.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Some(end.saturating_sub(self.now))
    }

    /// Whether a purge may take it: another client's may still be held by a slow clock (C5).
    pub(super) fn is_over(&self, skew: Skew) -> bool {
        let longer = if self.token.is_none() { skew.0 } else { Duration::ZERO };
        let end = self.expires_at.and_then(|at| at.checked_add(longer));
        end.is_some_and(|end| end <= SystemTime::UNIX_EPOCH + self.now)
    }

    /// The locks of a document.
    pub(super) fn all_of(document: &Document) -> Result<Vec<Self>> {
        let resource = document.get_str("resource").map_err(|_| damaged("resource is no text"))?;
        let now = document.get_datetime("now").map_err(|_| damaged("the reply has no time"))?;
        let one = |mode, lock| Self::of(resource, mode, lock, millis(*now));
        let mut locks = Vec::new();
        if let Ok(exclusive) = document.get_document("exclusive")
            && exclusive.get_bool("acquired").unwrap_or(false)
        {
            locks.push(one(Mode::Exclusive, exclusive)?);
        }
        let shared = document.get_document("shared").and_then(|shared| shared.get_array("locks"));
        for lock in shared.into_iter().flatten() {
            let lock = lock.as_document().ok_or_else(|| damaged("a lock is no document"))?;
            locks.push(one(Mode::SHARED, lock)?);
        }
        Ok(locks)
    }

    fn of(resource: &str, mode: Mode, lock: &Document, now: Duration) -> Result<Self> {
        let text = |field| match lock.get(field) {
            None | Some(Bson::Null) => Ok(None),
            Some(Bson::String(text)) => Ok(Some(text.clone())),
            Some(_) => Err(damaged("a text of a lock is no text")),
        };
        let time = |field| match lock.get(field) {
            None | Some(Bson::Null) => Ok(None),
            Some(Bson::DateTime(date)) => Ok(Some(DateTime::to_system_time(*date))),
            Some(_) => Err(damaged("a time of a lock is no date")),
        };
        Ok(Self {
            resource: resource.to_owned(),
            lock_id: text("lockId")?.ok_or_else(|| damaged("a lock has no lockId"))?,
            mode,
            owner: text("owner")?,
            host: text("host")?,
            comment: text("comment")?,
            created_at: time("createdAt")?,
            renewed_at: time("renewedAt")?,
            expires_at: time("expiresAt")?,
            token: lock.get("token").and_then(integer).and_then(token_of),
            id: lock.get_object_id("_id").ok(),
            now,
        })
    }
}
