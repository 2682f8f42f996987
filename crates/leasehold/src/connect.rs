mod stores;

use leasehold_core::{Error, Result, Store as _};

pub use self::stores::{STORES, StoreKind};
use self::stores::{is_nene, parse};
use crate::locker::Locker;

impl Locker {
    /// Opens the store that `url` names, prepares it if it is embedded, and checks it.
    ///
    /// | URL | Store | Feature |
    /// |---|---|---|
    /// | `postgres://USER@HOST/DATABASE` | a PostgreSQL database | `postgres` |
    /// | `redis://HOST` | a Redis or Valkey server, a set with Sentinel, or a Cluster | `redis` |
    /// | `mysql://USER@HOST/DATABASE` | a MySQL or MariaDB database | `mysql` |
    /// | `mongodb://HOST/DATABASE` | a MongoDB replica set or server | `mongodb` |
    /// | `spanner://PROJECT/INSTANCE/DATABASE` | a Cloud Spanner database | `spanner` |
    /// | `sqlite:PATH` | a SQLite file, for the processes of one host | `sqlite` |
    /// | `quorum:?node=URL&node=URL&node=URL` | several of these, of which a majority decides | `quorum` |
    /// | `local:` | the one store of this process | `local` |
    ///
    /// The options of each URL stand at `parse` of the store's configuration, such as `PostgresConfig::parse`, and in the
    /// manual of its crate; those of a quorum in [its manual](https://docs.rs/leasehold-quorum).
    ///
    /// [`STORES`](crate::store::STORES) is this table, with every scheme, for your own `--help`.
    ///
    /// MySQL, PostgreSQL, MongoDB and Spanner are prepared once for each database, by `leasehold init`, in SQL by the statements of
    /// [`schema_sql`](Locker::schema_sql), or in a program by [`connect_unchecked`](Locker::connect_unchecked), which needs no schema, and
    /// [`prepare`](Locker::prepare). Until then this fails as `Incompatible`.
    ///
    /// With the option `format=nene`, `sqlite:`, `mysql:` and `postgres:` are the table of the PHP library Nene
    /// DistributedLock in that database; it needs the feature `nene`. With `format=spindle`, `spanner:` is the table of the Go
    /// library spindle.
    ///
    /// # Errors
    /// `InvalidInput` for an unknown scheme or option; else the error of opening or of [`check`](Locker::check).
    ///
    /// # Cancel safety
    /// May be dropped; nothing stays open.
    pub async fn connect(url: &str) -> Result<Self> {
        open(url).await?.checked(true).await
    }

    /// As [`connect`](Locker::connect), but does not check a store that refuses each unfit server when it first uses it:
    /// MySQL, PostgreSQL, MongoDB, Spanner and a Redis Cluster. So a database is opened before it is [prepared](Locker::prepare), and a
    /// program that takes one lock and ends queries one master. [`level`](Locker::level) is L0 until a lock
    /// [requires](crate::LockRequest::require) one, or [`check`](Locker::check) is called.
    ///
    /// # Errors
    /// As [`connect`](Locker::connect).
    ///
    /// # Cancel safety
    /// May be dropped; nothing stays open.
    pub async fn connect_unchecked(url: &str) -> Result<Self> {
        let locks = open(url).await?;
        let is_needed = !locks.capabilities().checks_on_use;
        locks.checked(is_needed).await
    }

    /// This one, checked if that `is_needed`, or nothing of it.
    async fn checked(self, is_needed: bool) -> Result<Self> {
        let checked = if is_needed { self.check().await.map(drop) } else { Ok(()) };
        if checked.is_err() {
            self.0.keeper.store.close().await;
        }
        checked.map(|()| self)
    }

    /// The statements that [`prepare`](Locker::prepare) runs in the database that `url` names, for a migration of your own.
    /// It does not connect.
    ///
    /// # Errors
    /// `InvalidInput` for an unknown scheme or option; `Unsupported` for a store that is not PostgreSQL, MySQL, MariaDB
    /// or Spanner.
    pub fn schema_sql(url: &str) -> Result<String> {
        let kind = StoreKind::of(url)?;
        match kind.schema_sql {
            Some(schema_sql) if !is_nene(url) => schema_sql(url),
            _ => Err(Error::unsupported(format!(
                "the statements of a {} store cannot be shown; prepare creates what it needs. Give the URL of a store in \
                 PostgreSQL, MySQL, MariaDB or Spanner, without format=nene",
                kind.feature()
            ))),
        }
    }
}

/// Opens the store that `url` names.
async fn open(url: &str) -> Result<Locker> {
    let parsed = parse(url, None)?;
    let builder = Locker::builder((parsed.open)().await?);
    Ok(match parsed.drift {
        Some(drift) => builder.drift(drift),
        None => builder,
    }
    .build())
}
