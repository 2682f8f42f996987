//! The tests that the stores in SQL servers share, over a [`SqlTestServer`]. A store's test program expands a group by
//! its macro, such as [`sql_together!`](crate::sql_together), in the module of the group's name.

pub mod bad_input;
pub mod clocked;
pub mod conformance;
pub mod faults;
pub mod limits;
pub mod mark;
pub mod nene;
pub mod rows;
pub mod sessions;
pub mod together;

use std::future::Future;
use std::ops::Deref;

use leasehold_conformance::{Proxy, Result};
use leasehold_core::{Mode, Store};

use crate::LONG;
use crate::authority::Authority;
use crate::data::put_certificate;
use crate::requests::{acquire, granted, release};
use crate::server_process::ServerProcess;

/// A row of a result, with its values as text.
pub type Values = Vec<Option<String>>;

/// A real server with the objects of its store, as the shared tests use it.
pub trait SqlTestServer: Deref<Target = ServerProcess> + Sized + Send + Sync + 'static {
    type Store: Store + Clone;

    /// A connection past the store.
    type Client: Send;

    /// A pool of the application's, and a connection of it.
    type Pool: Clone + Send + Sync;
    type Pooled: Send;

    /// Settings with which a server that is killed keeps what it has written, and one that loses power may not.
    const UNSYNCED: &'static [&'static str];

    /// The name of its administrator.
    const ADMINISTRATOR: &'static str;

    /// The options of a URL that require TLS, that require a verified certificate too, and that name the file of
    /// its authority.
    const TLS: [&'static str; 3];

    /// The settings of a server whose `{certificate}` and `{key}` are in these files.
    const CERTIFICATE: &'static [&'static str];

    /// The options of a URL that uses no TLS.
    const PLAIN: &'static str;

    /// The table of the leases and its column of keys.
    const LEASES: &'static str;
    const KEY: &'static str;

    /// Reads the high-water mark of the tokens, and sets it to `{mark}`.
    const HIGH_WATER_MARK: &'static str;
    const SET_THE_MARK: &'static str;

    /// The table of the schema's version.
    const VERSION: &'static str;

    /// A statement that counts the calls of stores so far: in PostgreSQL, each is a transaction.
    const CALLS: &'static str;

    /// More calls than a store makes in four seconds while another transaction holds the row of one lease of a hundred.
    const CALLS_WHILE_HELD: u64;

    /// What a line of its log has that reports an error.
    const LOGGED_ERROR: &'static str;

    /// Statements that let a trigger refuse every new row of the key `k3` with the text `not this one`.
    const REFUSE_K3: &'static str;

    /// The change of a lease's columns that frees its key.
    const FREE: &'static str;

    /// Changes of a lease's columns that no store has made.
    const DAMAGES: &'static [&'static str];

    /// Other isolation levels: each by settings of the server, or by statements.
    const ISOLATION_LEVELS: &'static [(&'static [&'static str], &'static str)];

    /// Starts one with these settings. The first makes the data, the others have copies.
    fn start(settings: &[&str]) -> impl Future<Output = Result<Self>> + Send;

    /// Starts one with these settings, and with a [`store`](Self::store).
    fn with_store(settings: &[&str]) -> impl Future<Output = (Self, Self::Store)> {
        async move {
            let server = Self::start(settings).await.unwrap();
            let store = server.store().await;
            (server, store)
        }
    }

    /// Starts its process.
    fn launch(&self) -> impl Future<Output = Result<()>> + Send;

    /// Starts one whose certificate is `NAME.pem` of this authority.
    fn start_with_certificate(
        authority: &Authority,
        name: &str,
    ) -> impl Future<Output = Result<Self>> {
        async move {
            let [certificate, key] = put_certificate(authority, name)?;
            let put = |setting: &&str| {
                setting.replace("{certificate}", &certificate).replace("{key}", &key)
            };
            let settings: Vec<_> = Self::CERTIFICATE.iter().map(put).collect();
            Self::start(&settings.iter().map(String::as_str).collect::<Vec<_>>()).await
        }
    }

    /// The URL of the administrator of the server at this host, with these options.
    fn url_at(host: &str, port: u16, options: &str) -> String;

    /// The same on this machine, without TLS.
    fn plain_url_at(port: u16, options: &str) -> String {
        let options = format!("{}&{options}", Self::PLAIN);
        let url = Self::url_at("127.0.0.1", port, options.trim_matches('&'));
        url.trim_end_matches('?').to_owned()
    }

    fn url(&self, options: &str) -> String {
        Self::plain_url_at(self.port(), options)
    }

    fn open(url: &str) -> impl Future<Output = leasehold_core::Result<Self::Store>> + Send;

    /// A pool of the application's, of this size.
    fn pool(&self, most: usize) -> Self::Pool;

    fn pooled(pool: &Self::Pool) -> impl Future<Output = Self::Pooled>;

    fn client(pooled: &mut Self::Pooled) -> &mut Self::Client;

    fn open_on(&self, pool: Self::Pool) -> impl Future<Output = Self::Store>;

    /// A connection past the store.
    fn connect(&self) -> impl Future<Output = Result<Self::Client>> + Send;

    /// Runs statements, and returns the rows of the first.
    fn query(
        client: &mut Self::Client,
        text: &str,
    ) -> impl Future<Output = Result<Vec<Values>>> + Send;

    /// Kills it, as a crash would, and starts it again in the same directory.
    fn restart(&self) -> impl Future<Output = Result<()>> + Send {
        async {
            self.kill();
            self.launch().await
        }
    }

    /// The lines of its log that report an error.
    fn logged_errors(&self) -> Vec<String> {
        let log = self.log();
        log.lines().filter(|line| line.contains(Self::LOGGED_ERROR)).map(str::to_owned).collect()
    }

    /// A store with its objects, whose limit is longer than many requests at once take on a busy machine.
    fn store(&self) -> impl Future<Output = Self::Store> {
        async { self.prepared(&format!("timeout={}s", LONG.as_secs())).await }
    }

    /// A store with its objects and these options.
    fn prepared(&self, options: &str) -> impl Future<Output = Self::Store> {
        async move {
            let store = Self::open(&self.url(options)).await.unwrap();
            store.prepare().await.unwrap();
            store
        }
    }

    /// Runs statements past the store, and returns the rows of the first.
    fn ask(&self, text: &str) -> impl Future<Output = Vec<Values>> {
        async move {
            let mut client = self.connect().await.unwrap();
            Self::query(&mut client, text).await.unwrap()
        }
    }

    /// A user's transaction that holds the rows where this is true.
    fn hold(&self, which: &str) -> impl Future<Output = Self::Client> {
        async move {
            let mut user = self.connect().await.unwrap();
            let text = format!("BEGIN; SELECT * FROM {} WHERE {which} FOR UPDATE", Self::LEASES);
            Self::query(&mut user, &text).await.unwrap();
            user
        }
    }

    /// How many calls stores have made.
    fn calls(&self) -> impl Future<Output = u64> {
        async { self.ask(Self::CALLS).await[0][0].as_deref().unwrap().parse().unwrap() }
    }

    fn proxy(&self) -> impl Future<Output = Proxy> {
        async { Proxy::before(([127, 0, 0, 1], self.port()).into()).await.unwrap() }
    }
}

/// A server with its objects, and a proxy before it.
async fn behind_a_proxy<S: SqlTestServer>() -> (S, Proxy) {
    let (server, _) = S::with_store(&[]).await;
    let proxy = server.proxy().await;
    (server, proxy)
}

/// A store behind this proxy.
async fn open_behind<S: SqlTestServer>(proxy: &Proxy, options: &str) -> S::Store {
    S::open(&S::plain_url_at(proxy.address().port(), options)).await.unwrap()
}

/// Ends a user's transaction.
async fn commit<S: SqlTestServer>(user: &mut S::Client) {
    S::query(user, "COMMIT").await.unwrap();
}

pub fn names(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("k{n}")).collect()
}

/// Uses keys, so that they are not new.
async fn warm(store: &impl Store, names: &[String]) {
    for name in names {
        granted(store.acquire(&acquire(name, "warm", Mode::Exclusive)).await);
        store.release(&release(name, "warm")).await.unwrap();
    }
}

/// Expands to the tests of a group of [`sql`](crate::sql) for a server.
#[macro_export]
macro_rules! sql_tests {
    ($server:ty, $group:ident, [$($name:ident,)*], on two threads [$($threaded:ident,)*]) => {
        $(
            #[tokio::test]
            async fn $name() {
                $crate::sql::$group::$name::<$server>().await;
            }
        )*
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $threaded() {
                $crate::sql::$group::$threaded::<$server>().await;
            }
        )*
    };
}
