//! `Status`: its filter, and what it makes of a document.

use std::cmp::Reverse;

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, DateTime, Document, doc};

use super::{MongoLockError, date, micros};

/// What is empty or 0 is ignored.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    pub created_before: Option<DateTime>,
    pub created_after: Option<DateTime>,
    /// In seconds.
    pub ttl_lt: u32,
    pub ttl_gte: u32,
    pub resource: String,
    pub lock_id: String,
    pub owner: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockType {
    Exclusive,
    Shared,
}

#[derive(Debug, Clone)]
pub struct LockStatus {
    pub resource: String,
    pub lock_id: String,
    pub lock_type: LockType,
    pub owner: String,
    pub host: String,
    pub comment: String,
    /// The year 1 in Go, if the lock has none.
    pub created_at: Option<DateTime>,
    pub renewed_at: Option<DateTime>,
    /// In whole seconds: −1 without an end, 0 if it is over or less than a second is left.
    pub ttl: i64,
    id: ObjectId,
}

/// `LockStatusesByCreatedAtDesc`: in the order of their ObjectIDs.
pub fn newest_first(locks: &mut [LockStatus]) {
    locks.sort_by_key(|lock| Reverse(lock.id.bytes()));
}

/// The rest of a term, both in microseconds since 1970-01-01 UTC.
pub(super) fn ttl(expires_at: Option<i64>, now: i64) -> i64 {
    expires_at.map_or(-1, |at| (at - now).max(0) / 1_000_000)
}

impl Filter {
    pub fn lock_id(lock_id: &str) -> Self {
        Self { lock_id: lock_id.to_owned(), ..Self::default() }
    }

    pub fn ttl_lt(ttl_lt: u32) -> Self {
        Self { ttl_lt, ..Self::default() }
    }

    /// The aggregation at this time, in microseconds since 1970-01-01 UTC.
    pub(super) fn pipeline(&self, now: i64) -> [Document; 2] {
        let mut query = Query::default();
        if let Some(before) = self.created_before {
            query.compare("createdAt", "$lt", before);
        }
        if let Some(after) = self.created_after {
            query.compare("createdAt", "$gt", after);
        }
        if self.ttl_lt > 0 {
            query.compare("expiresAt", "$lt", date(now + micros(self.ttl_lt - 1)));
            query.conditions.push(doc! { "$gt": ["$$lock.expiresAt", Bson::Null] });
        }
        if self.ttl_gte > 0 {
            query.compare("expiresAt", "$gte", date(now + micros(self.ttl_gte)));
        }
        if !self.lock_id.is_empty() {
            query.equal("lockId", &self.lock_id);
        }
        if !self.owner.is_empty() {
            query.equal("owner", &self.owner);
        }
        query.pipeline(&self.resource)
    }
}

/// What is asked of an exclusive lock, of any shared lock of a document, and of each shared lock that is shown.
#[derive(Default)]
struct Query {
    exclusive: Document,
    shared: Document,
    conditions: Vec<Document>,
}

impl Query {
    /// A second comparison of one field replaces the first, except among the conditions.
    fn compare(&mut self, field: &str, operator: &str, date: DateTime) {
        self.ask(field, doc! { operator: date }.into());
        self.conditions.push(doc! { operator: [format!("$$lock.{field}"), date] });
    }

    fn equal(&mut self, field: &str, text: &str) {
        self.ask(field, text.into());
        self.conditions.push(doc! { "$eq": [format!("$$lock.{field}"), text] });
    }

    fn ask(&mut self, field: &str, what: Bson) {
        self.exclusive.insert(format!("exclusive.{field}"), what.clone());
        self.shared.insert(format!("shared.locks.{field}"), what);
    }

    fn pipeline(self, resource: &str) -> [Document; 2] {
        let mut wanted = doc! { "$or": [self.exclusive, self.shared] };
        if !resource.is_empty() {
            wanted.insert("resource", resource);
        }
        let shown = doc! { "$filter": {
            "input": "$shared.locks",
            "as": "lock",
            "cond": { "$and": self.conditions },
        } };
        let fields = doc! { "shared.locks": shown, "resource": true, "exclusive": true };
        [doc! { "$match": wanted }, doc! { "$project": fields }]
    }
}

/// The locks of a document: its exclusive lock if it is acquired, whatever the filter asked of it, and the shared ones that
/// were shown.
pub(super) fn of(document: &Document, now: i64) -> Result<Vec<LockStatus>, MongoLockError> {
    let resource = text(document, "resource")?;
    let mut statuses = Vec::new();
    if let Some(lock) = sub_document(document, "exclusive")? {
        let status = one(&resource, LockType::Exclusive, lock, now)?;
        if acquired(lock)? {
            statuses.push(status);
        }
    }
    let shared = sub_document(document, "shared")?;
    let locks = match shared.and_then(|shared| shared.get("locks")) {
        None | Some(Bson::Null) => return Ok(statuses),
        Some(Bson::Array(locks)) => locks,
        Some(other) => return Err(undecodable("shared.locks", other)),
    };
    for lock in locks {
        let Bson::Document(lock) = lock else {
            return Err(undecodable("shared.locks", lock));
        };
        statuses.push(one(&resource, LockType::Shared, lock, now)?);
    }
    Ok(statuses)
}

fn one(
    resource: &str,
    lock_type: LockType,
    lock: &Document,
    now: i64,
) -> Result<LockStatus, MongoLockError> {
    acquired(lock)?;
    let expires_at = time(lock, "expiresAt")?;
    Ok(LockStatus {
        resource: resource.to_owned(),
        lock_id: text(lock, "lockId")?,
        lock_type,
        owner: text(lock, "owner")?,
        host: text(lock, "host")?,
        comment: text(lock, "comment")?,
        created_at: time(lock, "createdAt")?,
        renewed_at: time(lock, "renewedAt")?,
        ttl: ttl(expires_at.map(|at| at.timestamp_millis() * 1_000), now),
        id: match lock.get("_id") {
            Some(Bson::ObjectId(id)) => *id,
            None | Some(Bson::Null) => ObjectId::from_bytes([0; 12]),
            Some(other) => return Err(undecodable("_id", other)),
        },
    })
}

fn acquired(lock: &Document) -> Result<bool, MongoLockError> {
    match lock.get("acquired") {
        Some(Bson::Boolean(acquired)) => Ok(*acquired),
        None | Some(Bson::Null) => Ok(false),
        Some(other) => Err(undecodable("acquired", other)),
    }
}

fn sub_document<'a>(
    document: &'a Document,
    field: &str,
) -> Result<Option<&'a Document>, MongoLockError> {
    match document.get(field) {
        Some(Bson::Document(document)) => Ok(Some(document)),
        None | Some(Bson::Null) => Ok(None),
        Some(other) => Err(undecodable(field, other)),
    }
}

fn text(document: &Document, field: &str) -> Result<String, MongoLockError> {
    match document.get(field) {
        Some(Bson::String(text)) => Ok(text.clone()),
        None | Some(Bson::Null) => Ok(String::new()),
        Some(other) => Err(undecodable(field, other)),
    }
}

fn time(document: &Document, field: &str) -> Result<Option<DateTime>, MongoLockError> {
    match document.get(field) {
        Some(Bson::DateTime(date)) => Ok(Some(*date)),
        None | Some(Bson::Null) => Ok(None),
        Some(other) => Err(undecodable(field, other)),
    }
}

fn undecodable(field: &str, value: &Bson) -> MongoLockError {
    MongoLockError::Undecodable(format!("{field}: {value}"))
}
