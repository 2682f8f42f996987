//! The table of the PHP library in a server.

use std::future::Future;
use std::time::Duration;

use futures_util::FutureExt as _;
use leasehold_conformance::Fault;
use leasehold_core::{Effect, ErrorKind, Mode, ReleaseOutcome, RenewOutcome, Store, Ttl};
use leasehold_driver::nene::{self, NeneConfig, NeneServerConfig, NeneTable};
use tokio::task::JoinSet;

use super::SqlTestServer;
use crate::nene::cases::calls::{acquires, releases, renews, table};
use crate::nene::cases::config;
use crate::nene::{Database, Php};
use crate::requests::{acquire, evict, failed, granted, release, released, renew, renewed};
use crate::urls::refuses;
use crate::{LONG, SECOND, fails_within, until};

/// The tests of the table, those of every database too.
#[macro_export]
macro_rules! sql_nene {
    ($server:ty) => {
        $crate::nene_tests!($server);
        $crate::sql_tests!($server, nene, [], on two threads [
            a_server_that_is_away_fails_every_operation_until_it_is_back,
            an_operation_of_two_exchanges_ends_in_time,
            a_missing_table_and_a_missing_privilege_are_named,
            a_url_has_the_options_of_both,
        ]);
    };
}

/// A server with the table in the database of an application.
pub trait NeneServer: SqlTestServer {
    type Config: nene::NeneServer;

    /// Statements that create the database.
    const DATABASE: &'static str;

    /// Adds a row of `r` whose end is no time.
    const ADD_UNREADABLE: &'static str;

    /// Finds a row once a write waits for a lease's.
    const WAITING: &'static str;

    /// The database, for PHP.
    const DSN: &'static str;

    /// Statements that create the user `worker`, and that give it `{privileges}` on the table.
    const WORKER: &'static str;
    const GRANT: &'static str;

    /// What the error has that reports the missing privilege for an insert.
    const DENIED: &'static str;

    /// What a URL describes.
    fn config(url: &str) -> leasehold_core::Result<Self::Config>;

    /// A pool of the application's.
    fn pool_config(&self, timeout: Duration) -> Self::Config;
}

/// A store in the table of a server.
pub type NeneStore<S> = NeneTable<<<S as NeneServer>::Config as nene::NeneServer>::Rows>;

impl<S: NeneServer> Database for S {
    type Store = NeneStore<S>;

    const UNREADABLE: &'static str = "no time";

    async fn new() -> Self {
        let server = S::start(S::UNSYNCED).await.unwrap();
        server.ask(S::DATABASE).await;
        server
    }

    async fn open_table(&self, config: NeneConfig) -> NeneStore<S> {
        let store = open::<S>(&self.url(""), config).await.unwrap();
        store.prepare().await.unwrap();
        store
    }

    async fn open_patient(&self, config: NeneConfig) -> NeneStore<S> {
        let server = NeneServerConfig::new(self.pool_config(LONG));
        let store = server.nene(config).connect().await.unwrap();
        store.prepare().await.unwrap();
        store
    }

    async fn put_unreadable(&self) {
        self.ask(S::ADD_UNREADABLE).await;
    }

    async fn until_it_waits<T: Send + 'static>(
        &self,
        operation: impl Future<Output = T> + Send + 'static,
    ) -> JoinSet<T> {
        let mut waiting = JoinSet::new();
        waiting.spawn(operation);
        until(async || !self.ask(S::WAITING).await.is_empty()).await;
        waiting
    }

    fn php_ahead(&self, ahead: i64) -> Php {
        let dsn = S::DSN.replace("{port}", &self.port().to_string());
        Php::start(&dsn, S::ADMINISTRATOR, ahead)
    }
}

/// A store in the table of the server at `url`.
async fn open<S: NeneServer>(
    url: &str,
    config: NeneConfig,
) -> leasehold_core::Result<NeneStore<S>> {
    NeneServerConfig::new(S::config(url)?).nene(config).connect().await
}

/// A failure is no refusal and no loss, and the store connects again.
pub async fn a_server_that_is_away_fails_every_operation_until_it_is_back<S: NeneServer>() {
    let (server, store) = table::<S>().await;
    assert!(acquires(&store, "r", "a").await);
    server.kill();
    let acquired = store.acquire(&acquire("r", "a", Mode::Exclusive)).await;
    assert_eq!(acquired.unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(store.check().await.unwrap_err().kind(), ErrorKind::Unavailable);
    let renewed = renews(&store, "r", "a").await;
    assert!(matches!(renewed, RenewOutcome::Failed(_)), "{renewed:?}");
    let released = releases(&store, "r", "a").await;
    assert!(matches!(released, ReleaseOutcome::Failed(_)), "{released:?}");
    server.restart().await.unwrap();
    assert!(matches!(renews(&store, "r", "a").await, RenewOutcome::Held(_)));
    assert!(!acquires(&store, "r", "b").await);
}

/// Each exchange takes less than the limit, and two take more: one to look, and one to write.
pub async fn an_operation_of_two_exchanges_ends_in_time<S: NeneServer>() {
    let (server, _) = table::<S>().await;
    let proxy = server.proxy().await;
    let limit = SECOND * 3;
    let url = S::plain_url_at(proxy.address().port(), "timeout=3s");
    let store = open::<S>(&url, config()).await.unwrap();
    let [held, new] = ["held", "new"].map(|name| acquire(name, "ours", Mode::Exclusive));
    let renewal = renew("held", "ours", Mode::Exclusive, Ttl::new(2 * LONG).unwrap());
    let (end, evict) = (release("held", "ours"), evict("held", "ours"));
    let operations = [
        fails_within(limit, store.acquire(&new)).boxed(),
        fails_within(limit, renewed(&store, &renewal)).boxed(),
        fails_within(limit, released(&store, &end)).boxed(),
        fails_within(limit, store.evict(&evict)).boxed(),
    ];
    let mut errors = Vec::new();
    for operation in operations {
        // All of its statements are prepared on the one connection that is idle.
        proxy.set(Fault::None);
        granted(store.acquire(&held).await);
        renewed(&store, &renewal).await.unwrap();
        released(&store, &end).await.unwrap();
        granted(store.acquire(&held).await);
        proxy.set(Fault::Delay(limit * 2 / 5));
        errors.push(operation.await);
    }
    // On a busy machine one may end before its write.
    assert!(errors.iter().any(|error| error.effect() == Effect::Unknown), "{errors:?}");
}

pub async fn a_missing_table_and_a_missing_privilege_are_named<S: NeneServer>() {
    let server = S::new().await;
    let url = server.url("");
    let store = open::<S>(&url, NeneConfig::default()).await.unwrap();
    assert_eq!(store.check().await.unwrap().schema, None);
    let request = acquire("r", "a", Mode::Exclusive);
    let acquired = store.acquire(&request).await;
    failed(acquired, ErrorKind::Incompatible, Effect::NotApplied, "leasehold init");
    store.prepare().await.unwrap();
    assert_eq!(store.check().await.unwrap().schema, Some(1));

    let grant = async |privileges: &str| {
        server.ask(&S::GRANT.replace("{privileges}", privileges)).await;
    };
    server.ask(S::WORKER).await;
    grant("SELECT").await;
    let url = url.replace(&format!("{}@", S::ADMINISTRATOR), "worker@");
    let connect = || open::<S>(&url, NeneConfig::default());
    let error = connect().await.unwrap().acquire(&request).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Denied, Effect::NotApplied), "{error}");
    for part in ["leasehold_driver/nene/manual", S::DENIED] {
        assert!(error.to_string().contains(part), "{error}");
    }
    // The privileges that the page lists.
    grant("SELECT, INSERT, UPDATE, DELETE").await;
    let store = connect().await.unwrap();
    assert_eq!(store.check().await.unwrap().schema, Some(1));
    granted(store.acquire(&request).await);
    granted(store.acquire(&request).await);
}

pub async fn a_url_has_the_options_of_both<S: NeneServer>() {
    let of_both = "format=nene&table=locks&skew=2s&settle=1s&guard=1&timeout=2s";
    let parse = |options: &str| {
        NeneServerConfig::<S::Config>::parse(&S::plain_url_at(1, options)).map(drop)
    };
    assert!(parse(of_both).is_ok());
    refuses(
        parse,
        &[
            ("format=new", "nene"),
            ("format=nene&table=a-b", "\"a-b\""),
            ("format=nene&ttl=1s", "settle"),
        ],
    );
}
