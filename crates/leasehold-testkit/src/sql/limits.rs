//! Operations that end at their limit, whatever they wait for.

use std::time::Duration;

use futures_util::FutureExt as _;
use leasehold_conformance::{Fault, Proxy};
use leasehold_core::{Effect, Mode, Store};

use super::{SqlTestServer, behind_a_proxy, open_behind};
use crate::fails_within;
use crate::limits::fail_in_time;
use crate::requests::{acquire, granted};

#[macro_export]
macro_rules! sql_limits {
    ($server:ty) => {
        $crate::sql_tests!($server, limits, [
            an_operation_ends_in_time_when_nobody_answers_who_connects,
            an_operation_ends_in_time_when_its_server_hangs,
        ], on two threads []);
    };
}

const LIMIT: Duration = Duration::from_secs(2);
const OPTIONS: &str = "timeout=2s";

/// A server, a proxy before it, and a store behind the proxy with a connection of each kind.
async fn warm<S: SqlTestServer>() -> (S, Proxy, S::Store) {
    let (server, proxy) = behind_a_proxy::<S>().await;
    let store = open_behind::<S>(&proxy, OPTIONS).await;
    for (name, mode) in [("warm", Mode::Exclusive), ("tepid", Mode::SHARED)] {
        granted(store.acquire(&acquire(name, "a", mode)).await);
    }
    (server, proxy, store)
}

pub async fn an_operation_ends_in_time_when_nobody_answers_who_connects<S: SqlTestServer>() {
    let (_server, proxy, store) = warm::<S>().await;
    proxy.set(Fault::BlackHole);
    proxy.cut();
    // The ends of the connections have been noticed.
    drop(fails_within(LIMIT, store.check().boxed()).await);
    for (name, error) in fail_in_time(&store, LIMIT).await {
        assert_eq!(error.effect(), Effect::NotApplied, "{name}: {error}");
        assert!(error.to_string().contains("2s"), "{name}: {error}");
    }
    let url = S::plain_url_at(proxy.address().port(), OPTIONS);
    let error = fails_within(LIMIT, S::open(&url).boxed()).await;
    assert_eq!(error.effect(), Effect::NotApplied, "{error}");
    fails_within(LIMIT, store.prepare().boxed()).await;
}

pub async fn an_operation_ends_in_time_when_its_server_hangs<S: SqlTestServer>() {
    let (server, _proxy, store) = warm::<S>().await;
    server.pause();
    let failures = fail_in_time(&store, LIMIT).await;
    server.resume();
    let unknown = failures.iter().filter(|(_, error)| error.effect() == Effect::Unknown).count();
    assert!(unknown > 0, "nothing was sent: {failures:?}");
    // Nobody sends it behind the one that is not answered.
    let queued = failures.iter().find(|(name, _)| *name == "acquire in the queue").unwrap();
    assert_eq!(queued.1.effect(), Effect::NotApplied, "{queued:?}");
}
