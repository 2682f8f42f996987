use std::fmt;
use std::time::Duration;

use leasehold_core::term::Drift;
use leasehold_core::{AnyStore, BoxFuture, Error, Result};
use leasehold_driver::StoreUrl;

/// The stores that [`Locker::connect`](crate::Locker::connect) knows in this build.
// An entry here is all that a store needs to be connected to, named in the error for an unknown scheme, and shown in the help
// of the command. Tests compare the documents with it.
pub static STORES: &[StoreKind] = &[
    #[cfg(feature = "postgres")]
    StoreKind {
        feature: "postgres",
        url: "postgres://USER@HOST/DATABASE",
        schemes: leasehold_postgres::PostgresConfig::SCHEMES,
        about: "a PostgreSQL database",
        parse: postgres,
        needs_prepare: true,
        schema_sql: Some(|url| leasehold_postgres::PostgresConfig::parse(url)?.schema_sql()),
    },
    #[cfg(feature = "redis")]
    StoreKind {
        feature: "redis",
        url: "redis://HOST",
        schemes: leasehold_redis::RedisConfig::SCHEMES,
        about: "a Redis or Valkey server, a set with Sentinel, or a Cluster",
        parse: redis,
        needs_prepare: false,
        schema_sql: None,
    },
    #[cfg(feature = "mysql")]
    StoreKind {
        feature: "mysql",
        url: "mysql://USER@HOST/DATABASE",
        schemes: leasehold_mysql::MysqlConfig::SCHEMES,
        about: "a MySQL or MariaDB database",
        parse: mysql,
        needs_prepare: true,
        schema_sql: Some(|url| leasehold_mysql::MysqlConfig::parse(url)?.schema_sql()),
    },
    #[cfg(feature = "mongodb")]
    StoreKind {
        feature: "mongodb",
        url: "mongodb://HOST/DATABASE",
        schemes: leasehold_mongodb::MongodbConfig::SCHEMES,
        about: "a MongoDB replica set or server",
        parse: mongodb,
        needs_prepare: true,
        schema_sql: None,
    },
    #[cfg(feature = "spanner")]
    StoreKind {
        feature: "spanner",
        url: "spanner://PROJECT/INSTANCE/DATABASE",
        schemes: leasehold_spanner::SpannerConfig::SCHEMES,
        about: "a Cloud Spanner database",
        parse: spanner,
        needs_prepare: true,
        schema_sql: Some(|url| match has_format(url) {
            true => leasehold_spanner::SpindleConfig::parse(url)?.schema_sql(),
            false => leasehold_spanner::SpannerConfig::parse(url)?.schema_sql(),
        }),
    },
    #[cfg(feature = "sqlite")]
    StoreKind {
        feature: "sqlite",
        url: "sqlite:PATH",
        schemes: &["sqlite"],
        about: "a SQLite file, for the processes of one host",
        parse: sqlite,
        needs_prepare: false,
        schema_sql: None,
    },
    #[cfg(feature = "quorum")]
    StoreKind {
        feature: "quorum",
        url: "quorum:?node=URL&node=URL&node=URL",
        schemes: &["quorum"],
        about: "several of these, of which a majority decides",
        parse: quorum,
        needs_prepare: false,
        schema_sql: None,
    },
    #[cfg(feature = "local")]
    StoreKind {
        feature: "local",
        url: "local:",
        schemes: &["local"],
        about: "the one store of this process",
        parse: local,
        needs_prepare: false,
        schema_sql: None,
    },
];

/// A kind of store that a URL can name.
#[derive(Clone, Copy)]
pub struct StoreKind {
    feature: &'static str,
    url: &'static str,
    schemes: &'static [&'static str],
    about: &'static str,
    parse: fn(&str, Option<Duration>) -> Result<Parsed>,
    needs_prepare: bool,
    pub(super) schema_sql: Option<fn(&str) -> Result<String>>,
}

impl StoreKind {
    /// The crate feature that adds it.
    pub fn feature(&self) -> &'static str {
        self.feature
    }

    /// How its URL is written, such as `redis://HOST`.
    pub fn url(&self) -> &'static str {
        self.url
    }

    /// The schemes of its URLs, the usual one first.
    pub fn schemes(&self) -> &'static [&'static str] {
        self.schemes
    }

    /// What it is, in a few words.
    pub fn about(&self) -> &'static str {
        self.about
    }

    /// Whether a database is prepared once, before the first connect: by `leasehold init`, by
    /// [`prepare`](crate::Locker::prepare), or, in SQL, by the statements of [`schema_sql`](crate::Locker::schema_sql).
    pub fn needs_prepare(&self) -> bool {
        self.needs_prepare
    }

    /// The kind of the store that `url` names.
    pub(super) fn of(url: &str) -> Result<&'static Self> {
        let parsed = StoreUrl::parse(url)?;
        let scheme = parsed.scheme();
        STORES.iter().find(|kind| kind.schemes.contains(&scheme)).ok_or_else(|| {
            let known: Vec<_> = STORES.iter().map(|kind| kind.schemes[0]).collect();
            Error::invalid_input(format!(
                "the store scheme {scheme:?} is not known here; this build knows {}; each needs its cargo feature of leasehold",
                known.join(", ")
            ))
        })
    }
}

/// Its URL, and its other schemes.
impl fmt::Display for StoreKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.url)?;
        for (at, scheme) in self.schemes.iter().skip(1).enumerate() {
            write!(f, "{}{scheme}:", if at == 0 { " (or " } else { ", " })?;
        }
        f.write_str(if self.schemes.len() > 1 { ")" } else { "" })
    }
}

impl fmt::Debug for StoreKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StoreKind").field(&self.url).finish()
    }
}

/// A URL that was parsed.
pub(super) struct Parsed {
    pub(super) open: Open,
    /// What the holder must subtract from its terms, if the URL sets it.
    pub(super) drift: Option<Drift>,
}

/// Opens a store each time it is called.
type Open = Box<dyn Fn() -> BoxFuture<'static, Result<AnyStore>> + Send + Sync>;

/// Parses the URL of a store. One that may forget its data grants nothing for `quarantine` after its start, unless its URL
/// sets another time.
pub(super) fn parse(url: &str, quarantine: Option<Duration>) -> Result<Parsed> {
    let kind = StoreKind::of(url)?;
    #[cfg(not(feature = "nene"))]
    if is_nene(url) {
        return Err(Error::invalid_input(
            "the option format=nene, for the table of the PHP library Nene DistributedLock in SQLite, PostgreSQL, MySQL or \
             MariaDB, needs the cargo feature nene of leasehold, which this build lacks; enable it, or leave the option out",
        ));
    }
    (kind.parse)(url, quarantine).map_err(|error| error.with_context(kind.feature, "connect"))
}

/// Whether a URL names the table of the PHP library.
pub(super) fn is_nene(url: &str) -> bool {
    has_format(url) && !StoreUrl::parse(url).is_ok_and(|url| url.scheme() == "spanner")
}

/// Whether a URL names another format than the store's own.
fn has_format(url: &str) -> bool {
    StoreUrl::parse(url).is_ok_and(|mut url| url.take("format").is_some())
}

/// Opens what a configuration describes.
#[cfg(any(
    feature = "mongodb",
    feature = "mysql",
    feature = "postgres",
    feature = "quorum",
    feature = "redis",
    feature = "spanner",
    feature = "sqlite"
))]
fn opener<C, F, S>(config: C, open: impl Fn(C) -> F + Send + Sync + 'static) -> Parsed
where
    C: Clone + Send + Sync + 'static,
    F: Future<Output = Result<S>> + Send + 'static,
    S: leasehold_core::Store,
{
    let open: Open = Box::new(move || {
        let opening = open(config.clone());
        Box::pin(async move { opening.await.map(AnyStore::new) })
    });
    Parsed { open, drift: None }
}

#[cfg(feature = "local")]
fn local(url: &str, _: Option<Duration>) -> Result<Parsed> {
    let url = StoreUrl::parse(url)?;
    if url.has_server() || !url.path().is_empty() {
        return Err(Error::invalid_input(
            "the URL of the local store is \"local:\" with nothing after it",
        ));
    }
    url.finish(&[])?;
    let shared = || async { Ok(AnyStore::new(leasehold_local::LocalStore::shared())) };
    Ok(Parsed { open: Box::new(move || Box::pin(shared())), drift: None })
}

#[cfg(feature = "mongodb")]
fn mongodb(url: &str, _: Option<Duration>) -> Result<Parsed> {
    use leasehold_mongodb::MongodbConfig;
    Ok(opener(MongodbConfig::parse(url)?, MongodbConfig::connect))
}

#[cfg(feature = "mysql")]
fn mysql(url: &str, _: Option<Duration>) -> Result<Parsed> {
    use leasehold_mysql::MysqlConfig;
    #[cfg(feature = "nene")]
    if is_nene(url) {
        use leasehold_mysql::MysqlNeneConfig;
        return Ok(opener(MysqlNeneConfig::parse(url)?, MysqlNeneConfig::connect));
    }
    Ok(opener(MysqlConfig::parse(url)?, MysqlConfig::connect))
}

#[cfg(feature = "postgres")]
fn postgres(url: &str, _: Option<Duration>) -> Result<Parsed> {
    use leasehold_postgres::PostgresConfig;
    #[cfg(feature = "nene")]
    if is_nene(url) {
        use leasehold_postgres::PostgresNeneConfig;
        return Ok(opener(PostgresNeneConfig::parse(url)?, PostgresNeneConfig::connect));
    }
    Ok(opener(PostgresConfig::parse(url)?, PostgresConfig::connect))
}

#[cfg(feature = "redis")]
fn redis(url: &str, quarantine: Option<Duration>) -> Result<Parsed> {
    use leasehold_redis::RedisConfig;
    let mut config = RedisConfig::parse(url)?;
    let is_set = StoreUrl::parse(url)?.take("quarantine").is_some();
    if let Some(quarantine) = quarantine.filter(|_| !is_set) {
        config = config.quarantine(quarantine);
    }
    Ok(opener(config, RedisConfig::connect))
}

#[cfg(feature = "spanner")]
fn spanner(url: &str, _: Option<Duration>) -> Result<Parsed> {
    use leasehold_spanner::{SpannerConfig, SpindleConfig};
    if has_format(url) {
        return Ok(opener(SpindleConfig::parse(url)?, SpindleConfig::connect));
    }
    Ok(opener(SpannerConfig::parse(url)?, SpannerConfig::connect))
}

#[cfg(feature = "sqlite")]
fn sqlite(url: &str, _: Option<Duration>) -> Result<Parsed> {
    use leasehold_sqlite::SqliteConfig;
    #[cfg(feature = "nene")]
    if is_nene(url) {
        use leasehold_sqlite::SqliteNeneConfig;
        return Ok(opener(SqliteNeneConfig::parse(url)?, SqliteNeneConfig::connect));
    }
    Ok(opener(SqliteConfig::parse(url)?, SqliteConfig::connect))
}

#[cfg(feature = "quorum")]
fn quorum(url: &str, _: Option<Duration>) -> Result<Parsed> {
    use leasehold_quorum::QuorumUrl;
    let quorum = QuorumUrl::parse(url)?;
    let (drift, max_ttl) = (quorum.drift(), quorum.max_ttl());
    let node = move |url: &str| parse(url, Some(max_ttl)).map(|parsed| parsed.open);
    Ok(Parsed { drift, ..opener(quorum, move |quorum: QuorumUrl| quorum.open(node)) })
}
