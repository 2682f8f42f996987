//! A scripted client of mongo-lock, the Go library (foomo/mongo-lock 0.1.2): its queries, and its defects.
//!
//! It judges by the client's clock, as the library does, and takes everything from the options of the collection that
//! it is given: read preference, read concern and write concern.

mod documents;
mod status;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::TryStreamExt as _;
use leasehold_core::Clock;
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{DateTime, Document, doc};
use mongodb::error::ErrorKind;
use mongodb::options::{IndexOptions, ReturnDocument};
use mongodb::{Collection, IndexModel};

pub use status::{Filter, LockStatus, LockType, newest_first};

/// A `Client` of the library on a collection. Clones are one process.
#[derive(Clone)]
pub struct MongoLock {
    collection: Collection<Document>,
    clock: Arc<dyn Clock>,
    /// By how many microseconds its clock is ahead.
    ahead: i64,
    process: Arc<Process>,
}

/// What ObjectIDs have of the process.
struct Process {
    id: [u8; 5],
    counter: AtomicU32,
}

impl Process {
    fn new() -> Self {
        let [_, _, _, id @ ..] = fastrand::u64(..).to_be_bytes();
        Self { id, counter: AtomicU32::new(fastrand::u32(..)) }
    }
}

#[derive(Debug, Clone, Default)]
pub struct LockDetails {
    pub owner: String,
    pub host: String,
    pub comment: String,
    /// In seconds; 0 never ends.
    pub ttl: u32,
}

impl LockDetails {
    pub fn ttl(ttl: u32) -> Self {
        Self { ttl, ..Self::default() }
    }
}

#[derive(Debug)]
pub enum MongoLockError {
    AlreadyLocked,
    LockNotFound,
    /// The driver's, as it is.
    Driver(mongodb::error::Error),
    /// A document that the library cannot decode.
    Undecodable(String),
}

impl From<mongodb::error::Error> for MongoLockError {
    fn from(error: mongodb::error::Error) -> Self {
        Self::Driver(error)
    }
}

impl MongoLockError {
    pub fn is_already_locked(&self) -> bool {
        matches!(self, Self::AlreadyLocked)
    }

    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::LockNotFound)
    }
}

/// What a call did before it ended, and the error that ended it: in Go a call returns both.
#[derive(Debug)]
#[must_use]
pub struct Done {
    pub locks: Vec<LockStatus>,
    pub error: Option<MongoLockError>,
}

impl Done {
    /// All of it, if nothing failed.
    pub fn all(self) -> Result<Vec<LockStatus>, MongoLockError> {
        self.error.map_or(Ok(self.locks), Err)
    }

    fn failed(error: MongoLockError) -> Self {
        Self { locks: Vec::new(), error: Some(error) }
    }
}

impl MongoLock {
    /// `NewClient`, in a process with this clock.
    pub fn new(collection: Collection<Document>, clock: Arc<dyn Clock>) -> Self {
        Self { collection, clock, ahead: 0, process: Arc::new(Process::new()) }
    }

    /// Another process, whose clock is so many milliseconds ahead.
    pub fn ahead(&self, millis: i64) -> Self {
        let mut other = Self::new(self.collection.clone(), Arc::clone(&self.clock));
        other.ahead = millis * 1_000;
        other
    }

    /// `CreateIndexes`.
    pub async fn create_indexes(&self) -> Result<(), MongoLockError> {
        let unique = IndexOptions::builder().unique(true).sparse(true).build();
        let required = IndexModel::builder().keys(doc! { "resource": 1 }).options(unique).build();
        self.collection.create_index(required).await?;
        for field in documents::INDEXED {
            let index = IndexModel::builder().keys(doc! { *field: 1 }).build();
            self.collection.create_index(index).await?;
        }
        Ok(())
    }

    /// `XLock`.
    pub async fn x_lock(
        &self,
        resource: &str,
        lock_id: &str,
        details: &LockDetails,
    ) -> Result<(), MongoLockError> {
        let query = documents::x_lock_query(resource, self.now());
        let update = documents::x_lock_update(resource, self.lock(lock_id, details));
        self.lock_by(query, update).await
    }

    /// `SLock`; a negative `max` is no limit.
    pub async fn s_lock(
        &self,
        resource: &str,
        lock_id: &str,
        details: &LockDetails,
        max: i32,
    ) -> Result<(), MongoLockError> {
        let query = documents::s_lock_query(resource, lock_id, max);
        let update = documents::s_lock_update(self.lock(lock_id, details));
        self.lock_by(query, update).await
    }

    /// `Unlock`.
    pub async fn unlock(&self, lock_id: &str) -> Done {
        let mut found = match self.status(&Filter::lock_id(lock_id)).await {
            Ok(found) => found,
            Err(error) => return Done::failed(error),
        };
        newest_first(&mut found);
        let mut locks = Vec::new();
        for lock in found {
            // That it is not found is also what a failure looks like.
            if self.unlock_one(&lock).await {
                locks.push(lock);
            }
        }
        Done { locks, error: None }
    }

    /// `Renew`, to so many seconds from now.
    pub async fn renew(&self, lock_id: &str, ttl: u32) -> Done {
        let found = match self.status(&Filter::lock_id(lock_id)).await {
            Ok(found) if found.is_empty() => return Done::failed(MongoLockError::LockNotFound),
            Ok(found) => found,
            Err(error) => return Done::failed(error),
        };
        let renewed_at = self.micros();
        let expires_at = renewed_at + micros(ttl);
        let min = date(self.micros() + micros(1));
        let mut locks = Vec::new();
        for mut lock in found {
            let query = documents::renew_query(&lock, min);
            let update =
                documents::renew_update(lock.lock_type, date(expires_at), date(renewed_at));
            if !self.change(query, update).await {
                return Done { locks, error: Some(MongoLockError::LockNotFound) };
            }
            lock.ttl = status::ttl(Some(expires_at), self.micros());
            lock.renewed_at = Some(date(renewed_at));
            locks.push(lock);
        }
        Done { locks, error: None }
    }

    /// `Status`.
    pub async fn status(&self, filter: &Filter) -> Result<Vec<LockStatus>, MongoLockError> {
        let mut found = self.collection.aggregate(filter.pipeline(self.micros())).await?;
        let mut statuses = Vec::new();
        while let Some(document) = found.try_next().await? {
            statuses.extend(status::of(&document, self.micros())?);
        }
        Ok(statuses)
    }

    /// `GC`.
    pub async fn gc(&self) -> Result<(), MongoLockError> {
        self.collection.delete_many(documents::gc_query()).await?;
        Ok(())
    }

    /// `Purger.Purge`.
    pub async fn purge(&self) -> Done {
        let expired = match self.status(&Filter::ttl_lt(1)).await {
            Ok(expired) => expired,
            Err(error) => return Done::failed(error),
        };
        let mut locks = Vec::new();
        for lock in expired {
            let unlocked = self.unlock(&lock.lock_id).await;
            if unlocked.error.is_some() {
                // Without those before.
                return unlocked;
            }
            locks.extend(unlocked.locks);
        }
        Done { locks, error: self.gc().await.err() }
    }

    /// The second step of `Unlock`, which looks at no expiry. False if the lock is not there, and if the request fails.
    pub async fn unlock_one(&self, lock: &LockStatus) -> bool {
        let (query, update) = documents::unlock(lock);
        self.change(query, update).await
    }

    async fn lock_by(&self, query: Document, update: Document) -> Result<(), MongoLockError> {
        let updated = self.collection.find_one_and_update(query, update).upsert(true);
        match updated.return_document(ReturnDocument::After).await {
            Ok(_) => Ok(()),
            Err(error) if is_duplicate_key(&error) => Err(MongoLockError::AlreadyLocked),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether the reply had a document: any failure is as good as none.
    async fn change(&self, query: Document, update: Document) -> bool {
        let updated = self.collection.find_one_and_update(query, update);
        matches!(updated.return_document(ReturnDocument::After).await, Ok(Some(_)))
    }

    /// A lock of now.
    fn lock(&self, lock_id: &str, details: &LockDetails) -> Document {
        let now = self.micros();
        let expires_at = (details.ttl > 0).then(|| date(now + micros(details.ttl)));
        documents::lock(lock_id, details, date(now), expires_at, self.object_id(now))
    }

    fn object_id(&self, now: i64) -> ObjectId {
        let [_, counter @ ..] = self.process.counter.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        let seconds = u32::try_from(now / 1_000_000).unwrap();
        ObjectId::from_parts(seconds, self.process.id, counter)
    }

    /// Microseconds since 1970-01-01 UTC.
    fn micros(&self) -> i64 {
        i64::try_from(self.clock.wall_micros()).unwrap() + self.ahead
    }

    fn now(&self) -> DateTime {
        date(self.micros())
    }
}

fn micros(seconds: u32) -> i64 {
    i64::try_from(Duration::from_secs(seconds.into()).as_micros()).unwrap()
}

/// A date has whole milliseconds.
fn date(micros: i64) -> DateTime {
    DateTime::from_millis(micros.div_euclid(1_000))
}

fn is_duplicate_key(error: &mongodb::error::Error) -> bool {
    matches!(&*error.kind, ErrorKind::Command(error) if [11_000, 11_001, 12_582].contains(&error.code))
}
