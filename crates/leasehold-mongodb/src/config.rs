mod url;

use std::fmt;
use std::future::IntoFuture;
use std::num::NonZeroU32;
use std::time::Duration;

use leasehold_core::{Error, Result, table};
use leasehold_driver::Deadline;
use mongodb::options::ClientOptions;
use mongodb::{Client, Database};

use crate::commands::Commands;
use crate::error;
use crate::inner::Inner;
use crate::record::Skew;
use crate::server::Server;
use crate::shapes::Shapes;
use crate::wakeups::Watch;

/// Which servers and which collection to use, and how.
///
/// ```
/// use leasehold_mongodb::MongodbConfig;
/// use std::time::Duration;
///
/// let config = MongodbConfig::parse("mongodb://locker@10.0.0.7/app?replicaSet=rs0&collection=locks")?
///     .timeout(Duration::from_secs(2));
/// assert!(MongodbConfig::parse("mongodb://h/app?ttl=1").is_err());
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[derive(Clone)]
pub struct MongodbConfig {
    source: Source,
    database: String,
    collection: String,
    timeout: Duration,
    skew: Duration,
    forget_after: Option<Duration>,
    max_holders: NonZeroU32,
    allow_sharded: bool,
}

/// Where the client comes from.
#[derive(Clone)]
enum Source {
    /// A connection string for the driver, and the servers in it.
    Url {
        driver: String,
        servers: String,
    },
    Client(Client),
}

impl MongodbConfig {
    /// The schemes of its URLs.
    pub const SCHEMES: &[&str] = &["mongodb", "mongodb+srv"];
    /// The default collection: `locks`.
    pub const DEFAULT_COLLECTION: &str = "locks";
    /// The default time limit of an operation: 5 s.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);
    /// The default of [`skew`](Self::skew): 1 s.
    pub const DEFAULT_SKEW: Duration = Duration::from_secs(1);
    /// The default of [`max_holders`](Self::max_holders): 1,024.
    pub const DEFAULT_MAX_HOLDERS: NonZeroU32 = NonZeroU32::new(1_024).expect("not zero");
    /// The most that [`max_holders`](Self::max_holders) can be: 10,000.
    pub const MOST_HOLDERS: u32 = 10_000;

    /// A collection of your own client's database.
    pub fn database(database: &Database, client: Client) -> Self {
        Self::new(Source::Client(client), database.name().to_owned())
    }

    fn new(source: Source, database: String) -> Self {
        Self {
            source,
            database,
            collection: Self::DEFAULT_COLLECTION.to_owned(),
            timeout: Self::DEFAULT_TIMEOUT,
            skew: Self::DEFAULT_SKEW,
            forget_after: Some(table::FORGET_AFTER),
            max_holders: Self::DEFAULT_MAX_HOLDERS,
            allow_sharded: false,
        }
    }

    /// Sets the collection of the locks, which mongo-lock's clients may share: letters, digits and underscores, at most 64.
    #[must_use]
    pub fn collection(mut self, name: impl Into<String>) -> Self {
        self.collection = name.into();
        self
    }

    /// Sets the time limit of an operation, connecting included.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets by how much clocks of mongo-lock's clients may differ from the server's, in whole milliseconds. A lease ends for
    /// its holder so long before the end that they read, and theirs end so long after it for us. Zero states that no such
    /// client uses the collection.
    #[must_use]
    pub fn skew(mut self, skew: Duration) -> Self {
        self.skew = skew;
        self
    }

    /// Sets when the token counter of a key without a holder is forgotten, and its document deleted (C7): after 30 days by
    /// default, `None` for never.
    #[must_use]
    pub fn forget_after(mut self, forget_after: Option<Duration>) -> Self {
        self.forget_after = forget_after;
        self
    }

    /// Sets the most shared holders of a key, at most 10,000: an update takes longer the more there are.
    #[must_use]
    pub fn max_holders(mut self, most: NonZeroU32) -> Self {
        self.max_holders = most;
        self
    }

    /// Allows a sharded cluster, each of whose routers reads its own clock; the level is then L0.
    #[must_use]
    pub fn allow_sharded(mut self, allow: bool) -> Self {
        self.allow_sharded = allow;
        self
    }

    pub(crate) async fn open(self) -> Result<Inner> {
        self.check()?;
        let until = Deadline::after(self.timeout);
        let (client, server) = match self.source {
            Source::Client(client) => (client, "the server of your client".to_owned()),
            Source::Url { driver, servers } => {
                let failed = |e| error::of(&servers, e);
                // It asks DNS, for which the driver has limits of its own.
                let parsed = until.bound(ClientOptions::parse(driver).into_future()).await;
                let unknown = || error::unreachable(&servers, "DNS did not answer in time");
                let mut options = parsed.ok_or_else(unknown)?.map_err(failed)?;
                // It tells why none can be used before the operation's limit.
                options.server_selection_timeout = Some(self.timeout * 9 / 10);
                options.connect_timeout.get_or_insert(self.timeout);
                options.max_pool_size.get_or_insert(64);
                options.retry_writes = Some(false);
                options.app_name.get_or_insert_with(|| "leasehold".to_owned());
                (Client::with_options(options).map_err(failed)?, servers)
            }
        };
        let commands = Commands::new(client, &self.database, self.collection, server, self.timeout);
        let server = Server::read(&commands, until).await?;
        if server.is_router && !self.allow_sharded {
            return Err(Error::incompatible(format!(
                "{} is a router of a sharded cluster, and each router reads its own clock; allow_sharded=1 uses it all the \
                 same, at level L0",
                commands.server()
            )));
        }
        let watch = Watch::new(commands.clone());
        Ok(Inner {
            commands,
            server,
            skew: Skew(self.skew),
            forget_after: self.forget_after,
            max_holders: self.max_holders,
            purged_to: Default::default(),
            watch,
            shapes: Shapes::new(),
        })
    }

    fn check(&self) -> Result<()> {
        let millisecond = Duration::from_millis(1);
        if self.timeout < millisecond {
            return Err(Error::invalid_input(format!(
                "the time limit is {:?}; it must be at least 1 ms",
                self.timeout
            )));
        }
        if self.forget_after.is_some_and(|after| after < millisecond) {
            return Err(Error::invalid_input(
                "forget_after is zero, which would forget counters at once; it must be at least 1 ms",
            ));
        }
        if !self.skew.subsec_nanos().is_multiple_of(1_000_000)
            || self.skew > Duration::from_secs(3_600)
        {
            return Err(Error::invalid_input(format!(
                "the skew is {:?}; it must be whole milliseconds, at most an hour",
                self.skew
            )));
        }
        if self.max_holders.get() > Self::MOST_HOLDERS {
            return Err(Error::invalid_input(format!(
                "max_holders is {}; it must be at most {}",
                self.max_holders,
                Self::MOST_HOLDERS
            )));
        }
        let is_name = |name: &str| {
            name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
                && name.len() <= 64
                && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        };
        for (what, name) in [("database", &self.database), ("collection", &self.collection)] {
            let is_name = match what {
                "database" => !name.is_empty() && name.len() <= 63 && !name.contains(FORBIDDEN),
                _ => is_name(name),
            };
            if !is_name {
                return Err(Error::invalid_input(format!(
                    "the {what} is {name:?}; it must be 1 to 64 letters, digits and underscores, the first no digit"
                )));
            }
        }
        Ok(())
    }
}

/// What MongoDB refuses in the name of a database.
const FORBIDDEN: [char; 7] = ['/', '\\', '.', ' ', '"', '$', '\0'];

impl fmt::Debug for MongodbConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let server = match &self.source {
            Source::Url { servers, .. } => servers.as_str(),
            Source::Client(_) => "a client",
        };
        f.debug_struct("MongodbConfig")
            .field("server", &server)
            .field("database", &self.database)
            .field("collection", &self.collection)
            .field("timeout", &self.timeout)
            .field("skew", &self.skew)
            .field("forget_after", &self.forget_after)
            .field("max_holders", &self.max_holders)
            .field("allow_sharded", &self.allow_sharded)
            .finish()
    }
}
