use std::time::Duration;

use leasehold_core::{AnyStore, BoxFuture, Error, Result, Store};
use leasehold_driver::StoreUrl;

use crate::locker::{Locker, LockerBuilder};

impl Locker {
    /// Opens the store that `url` names, prepares it if it is embedded, and checks it.
    ///
    /// | URL | Store | Feature |
    /// |---|---|---|
    /// | `local:` | the one store of this process | `local` |
    /// | `sqlite:PATH` | a SQLite file | `sqlite` |
    /// | `redis://HOST`, `rediss:`, `redis+unix:`, `redis+sentinel:`, `redis+cluster:` | Redis | `redis` |
    /// | `mysql://USER@HOST/DATABASE`, `mariadb://…` | MySQL or MariaDB, once it is prepared | `mysql` |
    /// | `postgres://USER@HOST/DATABASE` | PostgreSQL, once it is prepared | `postgres` |
    /// | `quorum:?node=URL&node=URL…` | a majority of any of these | `quorum` |
    ///
    /// MySQL and PostgreSQL are prepared once for each database, by `leasehold init`, by the statements of
    /// [`schema_sql`](Locker::schema_sql), or in a program by [`connect_unchecked`](Locker::connect_unchecked), which needs no schema, and
    /// [`prepare`](Locker::prepare). Until then this fails as `Incompatible`.
    ///
    /// With the option `format=nene`, `sqlite:`, `mysql:` and `postgres:` are the table of the PHP library Nene
    /// DistributedLock in that database; it needs the feature `nene`.
    ///
    /// # Errors
    /// `InvalidInput` for an unknown scheme or option; else the error of opening or of [`check`](Locker::check).
    ///
    /// # Cancel safety
    /// May be dropped; nothing stays open.
    pub async fn connect(url: &str) -> Result<Self> {
        open(url).await?.build().checked(true).await
    }

    /// As [`connect`](Locker::connect), but does not check a store that refuses each unfit server when it first uses it:
    /// MySQL, PostgreSQL and a Redis Cluster. So a database is opened before it is [prepared](Locker::prepare), and a
    /// program that takes one lock and ends asks one master. [`level`](Locker::level) is L0 until a lock
    /// [requires](crate::LockRequest::require) one, or [`check`](Locker::check) is called.
    ///
    /// # Errors
    /// As [`connect`](Locker::connect).
    ///
    /// # Cancel safety
    /// May be dropped; nothing stays open.
    pub async fn connect_unchecked(url: &str) -> Result<Self> {
        let locks = open(url).await?.build();
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
    /// `InvalidInput` for an unknown scheme or option; `Unsupported` for a store that is not PostgreSQL, MySQL or MariaDB.
    pub fn schema_sql(url: &str) -> Result<String> {
        match StoreUrl::parse(url)?.scheme() {
            #[cfg(feature = "mysql")]
            scheme if leasehold_mysql::MysqlConfig::SCHEMES.contains(&scheme) && !is_nene(url) => {
                leasehold_mysql::MysqlConfig::parse(url)?.schema_sql()
            }
            #[cfg(feature = "postgres")]
            scheme
                if leasehold_postgres::PostgresConfig::SCHEMES.contains(&scheme)
                    && !is_nene(url) =>
            {
                leasehold_postgres::PostgresConfig::parse(url)?.schema_sql()
            }
            scheme => Err(Error::unsupported(format!(
                "the statements of a {scheme} store cannot be shown; prepare creates what it needs. Give the URL of a store \
                 in PostgreSQL, MySQL or MariaDB, without format=nene"
            ))),
        }
    }
}

/// Opens the store that `url` names.
async fn open(url: &str) -> Result<LockerBuilder> {
    #[cfg(feature = "quorum")]
    if StoreUrl::parse(url)?.scheme() == "quorum" {
        let quorum = leasehold_quorum::QuorumUrl::parse(url)?;
        let drift = quorum.drift();
        let max_ttl = quorum.max_ttl();
        let builder = Locker::builder(quorum.open(|url| read(url, Some(max_ttl))).await?);
        return Ok(match drift {
            Some(drift) => builder.drift(drift),
            None => builder,
        });
    }
    let open = read(url, None)?;
    Ok(Locker::builder(open().await?))
}

/// Opens a store each time it is called.
type Open = Box<dyn Fn() -> BoxFuture<'static, Result<AnyStore>> + Send + Sync>;

/// Parses the URL of a store that is not made of others. A store that may forget its data grants nothing for
/// `quarantine` after its start, unless its URL sets another time.
#[cfg_attr(
    not(feature = "redis"),
    expect(unused_variables, reason = "the other stores forget nothing")
)]
fn read(url: &str, quarantine: Option<Duration>) -> Result<Open> {
    let parsed = StoreUrl::parse(url)?;
    match parsed.scheme() {
        #[cfg(all(
            not(feature = "nene"),
            any(feature = "mysql", feature = "postgres", feature = "sqlite")
        ))]
        _ if is_nene(url) => Err(Error::invalid_input(
            "the option format=nene, for the table of the PHP library Nene DistributedLock in SQLite, PostgreSQL, MySQL or \
             MariaDB, needs the cargo feature nene of leasehold, which this build lacks; enable it, or leave the option out",
        )),
        #[cfg(feature = "local")]
        "local" => local(parsed),
        #[cfg(feature = "mysql")]
        scheme if leasehold_mysql::MysqlConfig::SCHEMES.contains(&scheme) => {
            mysql(url).map_err(|error| error.with_context("mysql", "connect"))
        }
        #[cfg(feature = "postgres")]
        scheme if leasehold_postgres::PostgresConfig::SCHEMES.contains(&scheme) => {
            postgres(url).map_err(|error| error.with_context("postgres", "connect"))
        }
        #[cfg(feature = "redis")]
        scheme if leasehold_redis::RedisConfig::SCHEMES.contains(&scheme) => {
            redis(url, quarantine).map_err(|error| error.with_context("redis", "connect"))
        }
        #[cfg(feature = "sqlite")]
        "sqlite" => sqlite(url).map_err(|error| error.with_context("sqlite", "connect")),
        scheme => Err(unknown(scheme)),
    }
}

#[cfg(feature = "local")]
fn local(url: StoreUrl) -> Result<Open> {
    if url.has_server() || !url.path().is_empty() {
        return Err(Error::invalid_input(
            "the URL of the local store is \"local:\" with nothing after it",
        ));
    }
    url.finish(&[])?;
    Ok(Box::new(|| Box::pin(async { Ok(AnyStore::new(leasehold_local::LocalStore::shared())) })))
}

/// Opens what a configuration describes.
#[cfg(any(feature = "mysql", feature = "postgres", feature = "redis", feature = "sqlite"))]
fn opener<C, F, S>(config: C, open: impl Fn(C) -> F + Send + Sync + 'static) -> Open
where
    C: Clone + Send + Sync + 'static,
    F: Future<Output = Result<S>> + Send + 'static,
    S: Store,
{
    Box::new(move || {
        let opening = open(config.clone());
        Box::pin(async move { opening.await.map(AnyStore::new) })
    })
}

/// Whether a URL names the table of the PHP library.
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
fn is_nene(url: &str) -> bool {
    StoreUrl::parse(url).is_ok_and(|mut url| url.take("format").is_some())
}

#[cfg(feature = "mysql")]
fn mysql(url: &str) -> Result<Open> {
    use leasehold_mysql::MysqlConfig;
    #[cfg(feature = "nene")]
    if is_nene(url) {
        use leasehold_mysql::MysqlNeneConfig;
        return Ok(opener(MysqlNeneConfig::parse(url)?, MysqlNeneConfig::connect));
    }
    Ok(opener(MysqlConfig::parse(url)?, MysqlConfig::connect))
}

#[cfg(feature = "postgres")]
fn postgres(url: &str) -> Result<Open> {
    use leasehold_postgres::PostgresConfig;
    #[cfg(feature = "nene")]
    if is_nene(url) {
        use leasehold_postgres::PostgresNeneConfig;
        return Ok(opener(PostgresNeneConfig::parse(url)?, PostgresNeneConfig::connect));
    }
    Ok(opener(PostgresConfig::parse(url)?, PostgresConfig::connect))
}

#[cfg(feature = "redis")]
fn redis(url: &str, quarantine: Option<Duration>) -> Result<Open> {
    use leasehold_redis::RedisConfig;
    let mut config = RedisConfig::parse(url)?;
    let is_set = StoreUrl::parse(url)?.take("quarantine").is_some();
    if let Some(quarantine) = quarantine.filter(|_| !is_set) {
        config = config.quarantine(quarantine);
    }
    Ok(opener(config, RedisConfig::connect))
}

#[cfg(feature = "sqlite")]
fn sqlite(url: &str) -> Result<Open> {
    use leasehold_sqlite::SqliteConfig;
    #[cfg(feature = "nene")]
    if is_nene(url) {
        use leasehold_sqlite::SqliteNeneConfig;
        return Ok(opener(SqliteNeneConfig::parse(url)?, SqliteNeneConfig::connect));
    }
    Ok(opener(SqliteConfig::parse(url)?, SqliteConfig::connect))
}

fn unknown(scheme: &str) -> Error {
    let known: &[&str] = &[
        #[cfg(feature = "local")]
        "local:",
        #[cfg(feature = "mysql")]
        "mysql://USER@HOST/DATABASE (mariadb:)",
        #[cfg(feature = "postgres")]
        "postgres://USER@HOST/DATABASE",
        #[cfg(feature = "redis")]
        "redis://HOST (rediss:, redis+unix:, redis+sentinel:, redis+cluster:)",
        #[cfg(feature = "sqlite")]
        "sqlite:PATH",
        #[cfg(feature = "quorum")]
        "quorum:?node=URL&node=URL&node=URL",
    ];
    Error::invalid_input(format!(
        "the store scheme {scheme:?} is not known here; this build knows: {}",
        known.join(", ")
    ))
}
