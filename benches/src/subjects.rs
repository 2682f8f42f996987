//! What is measured: one acquire and one release of a key, at three levels.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use leasehold::store::Store;
use leasehold::{Claims, Error, Key, LeaseId, LocalStore, Locker, Mode, Result, Ttl};
use leasehold_core::{AcquireReply, AcquireRequest, ReleaseEntry, ReleaseRequest};
use leasehold_sqlite::SqliteStore;
use rusqlite::{Connection, TransactionBehavior, params};

use crate::sides::Side;

/// The TTL of every lease.
pub(crate) const TTL: Duration = Duration::from_secs(30);

/// One acquire and one release through the front end.
pub(crate) async fn through_locker(locks: &Locker, key: &Key) -> Result<()> {
    locks.lock(key).ttl(TTL).await?.release().await?;
    Ok(())
}

/// The same two operations on the store itself.
pub(crate) async fn through_store(store: &impl Store, key: &Key) -> Result<()> {
    let id = LeaseId::mint()?;
    let claims = Claims::one(key.clone(), Mode::Exclusive);
    let acquired = store.acquire(&AcquireRequest::new(id.clone(), claims, Ttl::new(TTL)?)).await?;
    if let AcquireReply::Refused(refused) = acquired {
        return Err(Error::unexpected(format!("{key:?} was held: {refused:?}")));
    }
    store.release(&ReleaseRequest::new(vec![ReleaseEntry::new(id, [key.clone()])])).await?;
    Ok(())
}

/// Which keys the pairs of a task have.
#[derive(Clone, Copy)]
pub(crate) enum Keys {
    /// One of its own, which it takes again and again.
    Known,
    /// Another one each time, which nobody has used before: an order, a user, a file.
    Fresh,
}

impl Keys {
    pub(crate) fn of(self, task: usize) -> String {
        match self {
            Self::Known => format!("k{task}"),
            Self::Fresh => format!("{:016x}", fastrand::u64(..)),
        }
    }
}

/// A store, and a `Locker` on it.
pub(crate) fn sides(store: &Arc<impl Store>, keys: Keys) -> Vec<Side> {
    let locks = Locker::new(Arc::clone(store));
    let store = Arc::clone(store);
    vec![
        Side::new("the store", move |task, pairs| {
            let store = Arc::clone(&store);
            async move {
                for _ in 0..pairs {
                    through_store(&*store, &Key::new(&keys.of(task))?).await?;
                }
                Ok(())
            }
        }),
        Side::new("`Locker`", move |task, pairs| {
            let locks = locks.clone();
            async move {
                for _ in 0..pairs {
                    through_locker(&locks, &Key::new(&keys.of(task))?).await?;
                }
                Ok(())
            }
        }),
    ]
}

/// A local store and a `Locker` on another one.
pub(crate) fn local() -> (LocalStore, Locker) {
    (LocalStore::new(), Locker::new(LocalStore::new()))
}

/// A SQLite store and a `Locker` on another one, each with its own file in `folder`.
pub(crate) async fn sqlite(folder: &Path) -> Result<(SqliteStore, Locker)> {
    let store = SqliteStore::open(folder.join("store.db")).await?;
    Ok((store, Locker::new(SqliteStore::open(folder.join("locker.db")).await?)))
}

/// The least that SQLite must do for a durable lock: one row written and one deleted, each in an immediate
/// transaction with a full sync, on one connection without any task or channel.
pub(crate) struct RawSqlite(Connection);

impl RawSqlite {
    pub(crate) fn open(folder: &Path) -> Result<Self> {
        let open = || {
            let connection = Connection::open(folder.join("raw.db"))?;
            connection.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))?;
            connection.execute_batch(
                "PRAGMA synchronous = FULL;
                 CREATE TABLE locks (key TEXT PRIMARY KEY, id TEXT, expires INTEGER) STRICT;
                 CREATE TABLE tokens (key TEXT PRIMARY KEY, token INTEGER) STRICT;",
            )?;
            Ok(connection)
        };
        open().map(Self).map_err(raw)
    }

    pub(crate) fn pair(&mut self, key: &Key) -> Result<()> {
        let key = key.as_str();
        let id = LeaseId::mint()?.to_string();
        let mut pair = || {
            let take = self.0.transaction_with_behavior(TransactionBehavior::Immediate)?;
            take.prepare_cached("INSERT INTO locks VALUES (?1, ?2, ?3)")?
                .execute(params![key, id, 1])?;
            take.prepare_cached(
                "INSERT INTO tokens VALUES (?1, 1) ON CONFLICT DO UPDATE SET token = token + 1",
            )?
            .execute(params![key])?;
            take.commit()?;
            let free = self.0.transaction_with_behavior(TransactionBehavior::Immediate)?;
            free.prepare_cached("DELETE FROM locks WHERE key = ?1 AND id = ?2")?
                .execute(params![key, id])?;
            free.commit()
        };
        pair().map_err(raw)
    }
}

fn raw(error: rusqlite::Error) -> Error {
    Error::unexpected("the hand-written statements failed").with_source(error)
}

/// A failure to create a temporary folder.
pub(crate) fn io(error: std::io::Error) -> Error {
    Error::unexpected("a temporary folder could not be created").with_source(error)
}
