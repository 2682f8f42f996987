use std::fmt;

use leasehold_core::{Error, Result};
use leasehold_driver::StoreUrl;
use leasehold_sql::{Settings, UrlRules};

use crate::pool::Pool;
use crate::server::Server;
use crate::sql::{self, DatabaseName, Sql};

/// The name of the store, as in its URL.
pub(crate) const NAME: &str = "mysql";

/// Which server to use, and how.
///
/// ```
/// use leasehold_mysql::MysqlConfig;
/// use std::time::Duration;
///
/// let config = MysqlConfig::parse("mysql://app@10.0.0.7/locks")?.timeout(Duration::from_secs(2));
/// assert!(MysqlConfig::parse("mysql://h/locks?ttl=1").is_err());
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct MysqlConfig {
    source: Source,
    pub(crate) settings: Settings,
}

const URL: UrlRules = UrlRules {
    store: "MySQL or MariaDB",
    schemes: MysqlConfig::SCHEMES,
    // Of sqlx: the sessions of the store have settings of their own.
    dropped: &["charset", "collation", "statement-cache-capacity", "time-zone", "timezone"],
    // Of sqlx.
    refused: &["ssl-cert", "ssl-key", "sslcert", "sslkey"],
    instead: "MysqlConfig::pool",
};

#[derive(Clone)]
enum Source {
    Server(Box<Server>),
    Pool { pool: mysql_async::Pool, database: String },
}

impl MysqlConfig {
    leasehold_sql::setters!();

    /// The default name of the database.
    pub const DEFAULT_DATABASE: &str = "leasehold";
    /// The schemes of its URLs.
    pub const SCHEMES: &[&str] = &["mysql", "mariadb"];

    pub(crate) const OPTIONS: &[&str] = &["timeout", "connections", "ssl-mode", "ssl-ca", "socket"];

    /// Parses a URL: `mysql://[USER[:PASSWORD]@]HOST[:PORT][/DATABASE]`, or `mariadb://…`, which is the same. The store's
    /// objects are in that database, `leasehold` by default. The options:
    ///
    /// - `timeout`: the limit of an operation, such as `5s`;
    /// - `connections`: the most connections, 2 or more;
    /// - `ssl-mode`: `verify_identity` or `required` (the same: certificates and the host's name are always verified), or
    ///   `disabled`. By default, and as `preferred`, `disabled` for hosts named `localhost` or by a loopback address, else
    ///   `verify_identity`;
    /// - `ssl-ca`: the path of a private authority's certificate in PEM;
    /// - `socket`: the path of a Unix socket, with a URL that has no host;
    /// - `sslmode` and `sslca` are sqlx's names of `ssl-mode` and `ssl-ca`. Its options `charset`, `collation`,
    ///   `statement-cache-capacity`, `time-zone` and `timezone` are accepted, and change nothing.
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
        let server = Server::parse(&mut options, Self::DEFAULT_DATABASE)?;
        let (source, settings) = (Source::Server(Box::new(server)), Settings::take(&mut options)?);
        let config = Self { settings, ..Self::of(source) };
        config.check()?;
        Ok((config, options))
    }

    /// The connections of your own pool, which must have at least three: the store keeps two of them from its start, one
    /// for batches. The store's objects are in this database.
    ///
    /// What it prepares in a session stays there: with [`PoolOpts::with_reset_connection`] (the driver's default), each
    /// operation takes two exchanges more.
    ///
    /// [`PoolOpts::with_reset_connection`]: mysql_async::PoolOpts::with_reset_connection
    pub fn pool(pool: mysql_async::Pool, database: impl Into<String>) -> Self {
        let source = Source::Pool { pool, database: database.into() };
        Self::of(source)
    }

    fn of(source: Source) -> Self {
        Self { source, settings: Settings::default() }
    }

    /// The statements that create the store's objects, as [`prepare`](leasehold_core::Store::prepare) runs them, for a
    /// migration of your own. They create the database unless it exists; each can be run again. The bodies of procedures
    /// contain semicolons: send the text whole, or set another delimiter in your client.
    ///
    /// # Errors
    /// `InvalidInput` for a wrong setting.
    pub fn schema_sql(&self) -> Result<String> {
        let database = self.check()?;
        let create = format!("CREATE DATABASE IF NOT EXISTS {}", database.quoted());
        let statements = Sql::new(database, sql::NOW).create();
        let all = std::iter::once(create).chain(statements);
        Ok(all.map(|statement| format!("{};\n\n", statement.trim_end())).collect())
    }

    /// Connections, of a caller's pool so many of them for batches, and the statements for them.
    pub(crate) async fn open_pool(self, lanes: usize) -> Result<(Pool, Sql)> {
        let (database, clock) = (self.check()?, self.settings.clock.unwrap_or(sql::NOW));
        let pool = match self.source {
            Source::Server(server) => {
                let Server { opts, name, .. } = *server;
                Pool::open(opts, self.settings.connections, name, self.settings.timeout).await?
            }
            Source::Pool { pool, .. } => Pool::of_pool(pool, self.settings.timeout, lanes).await?,
        };
        Ok((pool, Sql::new(database, clock)))
    }

    /// The name of the database.
    fn check(&self) -> Result<DatabaseName> {
        self.settings.check()?;
        match &self.source {
            Source::Server(server) => Ok(server.database.clone()),
            Source::Pool { database, .. } => DatabaseName::new(database).ok_or_else(|| {
                Error::invalid_input(format!(
                    "the database is {database:?}; its name must be 1 to {} letters, digits, _, - and $",
                    DatabaseName::MAX_BYTES
                ))
            }),
        }
    }
}

/// Without the login, which the driver's pool shows.
impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(server) => write!(f, "{}/{}", server.name, server.database.as_str()),
            Self::Pool { database, .. } => write!(f, "a pool/{database}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn server(url: &str) -> Server {
        let Source::Server(server) = MysqlConfig::parse(url).unwrap().source else {
            unreachable!()
        };
        *server
    }

    #[test]
    fn every_part_of_a_url_is_parsed() {
        let url =
            "mysql://app:p%40ss@db-1:3307/locks?timeout=250ms&connections=7&ssl-mode=disabled";
        let config = MysqlConfig::parse(url).unwrap();
        assert_eq!(config.settings.timeout, Duration::from_millis(250));
        let Source::Server(server) = &config.source else { unreachable!() };
        assert_eq!((server.name.as_str(), config.settings.connections), ("db-1:3307", 7));
        assert_eq!(server.database.as_str(), "locks");
        assert_eq!(server.opts.user(), Some("app"));
        assert_eq!(server.opts.pass(), Some("p@ss"));
        assert!(!format!("{config:?}").contains("p@ss"));
    }

    #[test]
    fn what_a_url_does_not_set_has_a_default() {
        let one = server("mariadb://localhost");
        assert_eq!((one.name.as_str(), one.database.as_str()), ("localhost:3306", "leasehold"));
        assert_eq!(server("mysql://[::1]:3307/a").name, "[::1]:3307".replace(['[', ']'], ""));
        assert_eq!(
            server("mysql:///a?socket=/run/mysqld/mysqld.sock").name,
            "/run/mysqld/mysqld.sock"
        );
    }

    #[cfg(feature = "tls")]
    #[test]
    fn connections_to_other_machines_are_encrypted_unless_the_url_turns_it_off() {
        for (url, is_encrypted) in [
            ("mysql://db-1/app", true),
            ("mysql://10.0.0.7/app", true),
            ("mysql://localhost/app", false),
            ("mysql://127.0.0.1/app", false),
            ("mysql://[::1]/app", false),
            ("mysql://db-1/app?ssl-mode=DISABLED", false),
            ("mysql://localhost/app?ssl-mode=verify_identity", true),
            ("mysql://db-1/app?ssl-mode=PREFERRED", true),
            ("mysql://localhost/app?sslmode=preferred", false),
        ] {
            assert_eq!(server(url).opts.ssl_opts().is_some(), is_encrypted, "{url}");
        }
    }

    #[test]
    fn urls_of_sqlx_are_accepted() {
        // As `MySqlConnectOptions::to_url_lossy` of sqlx 0.9 writes them.
        let one = server(
            "mysql://app:p%40ss@localhost:3306/locks?ssl-mode=PREFERRED&charset=utf8mb4\
             &charset=utf8mb4_bin&statement-cache-capacity=100",
        );
        assert_eq!((one.name.as_str(), one.database.as_str()), ("localhost:3306", "locks"));
    }

    #[test]
    fn a_pool_is_shown_without_its_password() {
        let pool = mysql_async::Pool::new("mysql://app:hunter2@db-1/locks");
        let shown = format!("{:?}", MysqlConfig::pool(pool, "locks"));
        assert!(shown.contains("a pool/locks") && !shown.contains("hunter2"), "{shown}");
    }

    #[test]
    fn mistakes_in_a_url_are_named_and_no_secret() {
        let mistakes = [
            ("postgres://h/app", "mysql://"),
            ("mysql://h:port/app", "cannot be parsed"),
            ("mysql:///app", "no host"),
            ("mysql://h1,h2/app", "several servers"),
            ("mysql:h", "cannot be parsed"),
            ("mysql://h/app?ttl=1", "\"ttl\""),
            ("mysql://h/a`b", "\"a`b\""),
            ("mysql://h/a/b", "\"a/b\""),
            ("mysql://h/app?timeout=1us", "at least 1ms"),
            ("mysql://h/app?connections=1", "2 or more"),
            ("mysql://h/app?ssl-mode=maybe", "verify_identity"),
            ("mysql://h/app?sslmode=maybe", "verify_identity"),
            ("mysql://h/app?ssl-key=/hunter2", "ssl-key of the mysql URL is not supported"),
            ("mysql://h/app?sslcert=/hunter2", "MysqlConfig::pool"),
            ("mysql://h/app?socket=/s", "no host"),
            ("mysql://u:hunter2@h:port/app", "cannot be parsed"),
        ];
        leasehold_testkit::urls::refuses(MysqlConfig::parse, &mistakes);
    }
}
