use leasehold_core::{Error, Result};
use leasehold_driver::StoreUrl;
use leasehold_sql::{Settings, UrlRules};

use crate::pool::Pool;
use crate::server::Server;
use crate::sql::{SchemaName, Sql};

/// The name of the store, as in its URL.
pub(crate) const NAME: &str = "postgres";

/// Which server to use, and how.
///
/// ```
/// use leasehold_postgres::PostgresConfig;
///
/// let config = PostgresConfig::parse("postgres://app@10.0.0.7/app?schema=locks&timeout=2s")?.connections(8);
/// assert!(PostgresConfig::parse("postgres://h/app?ttl=1").is_err());
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct PostgresConfig {
    source: Source,
    /// Unless it is the default.
    schema: Option<String>,
    pub(crate) settings: Settings,
    pub(crate) wakeups: Wakers,
}

/// The driver's own options.
const DRIVERS: &[&str] = &[
    "application_name",
    "channel_binding",
    "connect_timeout",
    "dbname",
    "host",
    "hostaddr",
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_retries",
    "load_balance_hosts",
    "options",
    "password",
    "port",
    "sslnegotiation",
    "target_session_attrs",
    "tcp_user_timeout",
    "user",
];

const URL: UrlRules = UrlRules {
    store: "PostgreSQL",
    schemes: PostgresConfig::SCHEMES,
    // Of libpq and of sqlx.
    dropped: &[
        "client_encoding",
        "fallback_application_name",
        "sslsni",
        "statement-cache-capacity",
    ],
    // Of libpq and of sqlx.
    refused: &[
        "gssdelegation",
        "gssencmode",
        "gsslib",
        "krbsrvname",
        "max_protocol_version",
        "min_protocol_version",
        "passfile",
        "replication",
        "require_auth",
        "requirepeer",
        "service",
        "ssl-cert",
        "ssl-key",
        "ssl_max_protocol_version",
        "ssl_min_protocol_version",
        "sslcert",
        "sslcertmode",
        "sslcompression",
        "sslcrl",
        "sslcrldir",
        "sslkey",
        "sslpassword",
    ],
    instead: "PostgresConfig::pool",
};

#[derive(Clone, Debug)]
enum Source {
    Server(Box<Server>),
    Pool { pool: deadpool_postgres::Pool, prepares: bool },
}

/// Where the connection for wake-ups is made to.
#[derive(Clone, Debug)]
pub(crate) enum Wakers {
    /// To the server of the store, unless that is a pooler.
    Same,
    Server(Box<Server>),
    Never,
}

impl PostgresConfig {
    leasehold_sql::setters!();

    /// The default name of the schema.
    pub const DEFAULT_SCHEMA: &str = "leasehold";
    /// The schemes of its URLs.
    pub const SCHEMES: &[&str] = &["postgres", "postgresql"];

    pub(crate) const OPTIONS: &[&str] =
        &["schema", "timeout", "connections", "wakeups", "sslmode", "sslrootcert"];
    /// Parses a URL: `postgres://[USER[:PASSWORD]@]HOST[:PORT][,HOST[:PORT]…]/DATABASE`. The options:
    ///
    /// - `schema`: the schema of the store's objects; `timeout`: the limit of an operation, such as `5s`;
    /// - `connections`: the most connections for requests, 2 or more;
    /// - `wakeups`: where the connection for wake-ups is made to, if the URL names a pooler: `HOST[:PORT]`, or `0` for
    ///   none;
    /// - `sslmode`: `verify-full`, `verify-ca` or `require` (the same: certificate and host name are always verified),
    ///   `prefer`, or `disable`. By default `prefer` for sockets and for hosts named `localhost` or by a loopback address, else `verify-full`;
    /// - `sslrootcert`: the path of a private authority's certificate in PEM;
    /// - `application_name`, `channel_binding`, `connect_timeout`, `dbname`, `host`, `hostaddr`, `keepalives` and its kin,
    ///   `load_balance_hosts`, `options`, `password`, `port`, `sslnegotiation`, `target_session_attrs`,
    ///   `tcp_user_timeout`, `user`: as libpq has them;
    /// - `ssl-mode`, `ssl-root-cert` and `ssl-ca` are sqlx's names of `sslmode` and `sslrootcert`. Options of libpq and
    ///   sqlx that change nothing here are accepted: `client_encoding`, `fallback_application_name`, `sslsni`,
    ///   `statement-cache-capacity`.
    ///
    /// # Errors
    /// `InvalidInput` for any mistake, or a file that cannot be read; without the URL, which may contain a password.
    pub fn parse(url: &str) -> Result<Self> {
        let (config, options) = Self::read(url)?;
        options.finish(Self::OPTIONS).map(|()| config)
    }

    /// Parses a URL. Returns the options that are left too.
    pub(crate) fn read(url: &str) -> Result<(Self, StoreUrl)> {
        let mut options = URL.parse(url)?;
        let mut either = |names: &[&str]| names.iter().filter_map(|name| options.take(name)).next();
        let mode = either(&["sslmode", "ssl-mode"]);
        let authority = either(&["sslrootcert", "ssl-root-cert", "ssl-ca"]);
        let drivers = options.take_these(DRIVERS);
        let server = Server::parse(&options, &drivers, mode.as_deref(), authority.as_deref())?;
        let (settings, schema) = (Settings::take(&mut options)?, options.take("schema"));
        let wakeups = match options.take("wakeups").as_deref() {
            None => Wakers::Same,
            Some("0") => Wakers::Never,
            Some(address) => Wakers::Server(Box::new(server.at(address)?)),
        };
        let config = Self { source: Source::Server(Box::new(server)), schema, settings, wakeups };
        config.check(Self::DEFAULT_SCHEMA)?;
        Ok((config, options))
    }

    /// The connections of your own pool, which must have at least three: [`connect`](Self::connect) takes two of them, which the
    /// store keeps, so that you may lock while your own transactions have all the others. They may be a pooler's, with
    /// transaction pooling. There are no wake-ups unless [`wakeups_at`](Self::wakeups_at) states where from.
    ///
    /// A connection that the pool hands out inside a transaction, which somebody left open, is closed, and the operation
    /// fails as `Unavailable` without effect.
    pub fn pool(pool: deadpool_postgres::Pool) -> Self {
        let source = Source::Pool { pool, prepares: false };
        Self { source, schema: None, settings: Settings::default(), wakeups: Wakers::Never }
    }

    /// Sets the schema of the store's objects: a letter or `_`, then at most 62 letters, digits and `_`, not beginning
    /// with `pg_`. Upper and lower case differ. Stores with different schemas do not exclude each other.
    #[must_use]
    pub fn schema(mut self, schema: impl Into<String>) -> Self {
        self.schema = Some(schema.into());
        self
    }

    /// States that statements can be prepared on the connections of your own pool, because they are sessions of the
    /// server: not those of a pooler with transaction pooling. It makes each operation cheaper.
    #[must_use]
    pub fn prepares_statements(mut self, can: bool) -> Self {
        if let Source::Pool { prepares, .. } = &mut self.source {
            *prepares = can;
        }
        self
    }

    /// Sets where the connection for wake-ups is made to: this server itself, not a pooler. The URL has the form of
    /// [`parse`](PostgresConfig::parse); only its address, its login and its TLS settings count.
    ///
    /// # Errors
    /// As [`parse`](PostgresConfig::parse).
    pub fn wakeups_at(mut self, url: &str) -> Result<Self> {
        if let Source::Server(server) = Self::parse(url)?.source {
            self.wakeups = Wakers::Server(server);
        }
        Ok(self)
    }

    /// The statements that create the store's objects, as [`prepare`](leasehold_core::Store::prepare) runs them, for a
    /// migration of your own. They create what is missing, replace the functions, and need no superuser.
    ///
    /// # Errors
    /// `InvalidInput` for a wrong setting.
    pub fn schema_sql(&self) -> Result<String> {
        let schema = self.check(Self::DEFAULT_SCHEMA)?;
        let create = format!("CREATE SCHEMA IF NOT EXISTS {};\n\n", schema.quoted());
        Ok(create + &Sql::new(schema).create)
    }

    /// The connections, the schema, and where to be woken from.
    pub(crate) async fn open_parts(self) -> Result<(Pool, SchemaName, Option<Box<Server>>)> {
        let wakeups = self.wakeups.clone();
        let (pool, schema, own) = self.open_pool(Self::DEFAULT_SCHEMA, 1).await?;
        let waker = match wakeups {
            Wakers::Same => own.filter(|_| pool.direct),
            Wakers::Server(server) => Some(server),
            Wakers::Never => None,
        };
        Ok((pool, schema, waker))
    }

    /// Connections, of which so many of a caller's pool are for batches; the schema; and the server
    /// unless the connections are a caller's.
    pub(crate) async fn open_pool(
        self,
        schema: &str,
        lanes: usize,
    ) -> Result<(Pool, SchemaName, Option<Box<Server>>)> {
        let schema = self.check(schema)?;
        Ok(match self.source {
            Source::Server(server) => {
                let Server { config, tls, name } = &*server;
                let Settings { timeout, connections, .. } = self.settings;
                let pool = Pool::connect(config, tls, connections, name.clone(), timeout).await?;
                (pool, schema, Some(server))
            }
            Source::Pool { pool, prepares } => {
                (Pool::of_pool(pool, prepares, self.settings.timeout, lanes).await?, schema, None)
            }
        })
    }

    /// The schema, this one if none was given.
    fn check(&self, schema: &str) -> Result<SchemaName> {
        self.settings.check()?;
        let schema = self.schema.as_deref().unwrap_or(schema);
        SchemaName::new(schema).ok_or_else(|| {
            Error::invalid_input(format!(
                "the option schema is {schema:?}; it must be a letter or _, then at most 62 letters, digits and _, and not \
                 begin with pg_"
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio_postgres::config::SslMode;

    use super::*;

    #[test]
    fn connections_to_other_machines_are_encrypted_unless_the_url_turns_it_off() {
        for (url, mode) in [
            ("postgres://db-1/app", SslMode::Require),
            ("postgres://10.0.0.7/app", SslMode::Require),
            ("postgres://localhost,db-1/app", SslMode::Require),
            ("postgres://localhost/app", SslMode::Prefer),
            ("postgres://127.0.0.1/app", SslMode::Prefer),
            ("postgres:///app?host=/run/postgresql", SslMode::Prefer),
            ("postgres://db-1/app?sslmode=disable", SslMode::Disable),
            ("postgres://localhost/app?sslmode=verify-full", SslMode::Require),
        ] {
            assert_eq!(server(url).config.get_ssl_mode(), mode, "{url}");
        }
    }

    #[test]
    fn urls_of_sqlx_and_of_libpq_are_accepted() {
        // As `PgConnectOptions::to_url_lossy` of sqlx 0.9 writes them.
        let of_sqlx = server(
            "postgres://app:p%40ss@db-1:5432/locks?sslmode=verify-ca&statement-cache-capacity=100",
        );
        assert_eq!(of_sqlx.config.get_ssl_mode(), SslMode::Require);
        let of_libpq = server(
            "postgresql:///locks?host=db-1&port=6432&user=app&password=p%40ss&ssl-mode=prefer&client_encoding=UTF8",
        );
        assert_eq!(of_libpq.name, "db-1:6432");
        assert_eq!(of_libpq.config.get_user(), Some("app"));
        assert_eq!(of_libpq.config.get_ssl_mode(), SslMode::Prefer);
    }

    #[test]
    fn every_part_of_a_url_is_parsed() {
        let url = "postgres://app:p%40ss@db-1:6432,db-2/locks?schema=s1&timeout=250ms&connections=7\
                   &target_session_attrs=read-write&sslmode=disable&wakeups=db-1:5432";
        let config = PostgresConfig::parse(url).unwrap();
        assert_eq!(
            (config.schema.as_deref(), config.settings.timeout),
            (Some("s1"), Duration::from_millis(250))
        );
        let Source::Server(server) = &config.source else { unreachable!() };
        assert_eq!(
            (server.name.as_str(), config.settings.connections),
            ("db-1:6432, db-2:5432", 7)
        );
        assert_eq!(server.config.get_password(), Some(&b"p@ss"[..]));
        assert!(matches!(&config.wakeups, Wakers::Server(at) if at.name == "db-1:5432"));
        assert!(!format!("{config:?}").contains("p@ss"));
    }

    #[test]
    fn a_pool_is_shown_without_its_password() {
        let server = "host=db-1 password=hunter2".parse().unwrap();
        let manager = deadpool_postgres::Manager::new(server, tokio_postgres::NoTls);
        let pool = deadpool_postgres::Pool::builder(manager).build().unwrap();
        let shown = format!("{:?}", PostgresConfig::pool(pool));
        assert!(shown.contains("db-1") && !shown.contains("hunter2"), "{shown}");
    }

    #[test]
    fn mistakes_in_a_url_are_named_and_no_secret() {
        let mistakes = [
            ("mysql://h/app", "postgres://"),
            ("postgres://h:port/app", "cannot be parsed"),
            ("postgres:///app", "no host"),
            ("postgres://h/app?ttl=1", "\"ttl\""),
            ("postgres://h/app?schema=a\"b", "\"a\\\"b\""),
            ("postgres://h/app?schema=pg_x", "pg_"),
            ("postgres://h/app?timeout=1us", "at least 1ms"),
            ("postgres://h/app?connections=1", "2 or more"),
            ("postgres://h/app?sslmode=allow", "verify-full"),
            ("postgres://h/app?sslrootcert=/nowhere", "/nowhere"),
            ("postgres://h/app?ssl-ca=/nowhere", "/nowhere"),
            ("postgres://h/app?sslcert=/hunter2", "sslcert of the postgres URL is not supported"),
            ("postgres://h/app?service=hunter2", "PostgresConfig::pool"),
            ("postgres://h/app?wakeups=h:x", "HOST:PORT"),
            ("postgres://u:hunter2@h:port/app", "cannot be parsed"),
        ];
        leasehold_testkit::urls::refuses(PostgresConfig::parse, &mistakes);
    }

    fn server(url: &str) -> Server {
        let Source::Server(server) = PostgresConfig::parse(url).unwrap().source else {
            unreachable!()
        };
        *server
    }
}
