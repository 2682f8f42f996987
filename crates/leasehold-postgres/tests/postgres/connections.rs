//! Which connections are used again, and which are closed.

use std::collections::HashSet;
use std::time::Duration;

use futures_util::future::join_all;
use leasehold_conformance::{Fault, Proxy, dropped_after};
use leasehold_core::{Effect, ErrorKind, Key, Mode, Store as _};
use leasehold_postgres::{PostgresConfig, PostgresNeneConfig, PostgresStore};
use leasehold_testkit::postgres::Server;
use leasehold_testkit::requests::{acquire, granted, refused, release};
use leasehold_testkit::sql::SqlTestServer as _;
use leasehold_testkit::{in_time, until};

/// What keeps `prepare` waiting while another process prepares.
const LOCK: i64 = 0x4c73_6864;

/// The URL of the sessions that [`sessions`] finds.
fn url(server: &Server, timeout: &str) -> String {
    format!("{}&timeout={timeout}&application_name=store", server.url())
}

/// A proxy before the server, and the URL through it.
async fn behind_a_proxy(server: &Server, timeout: &str) -> (Proxy, String) {
    let proxy = server.proxy().await;
    let [of_server, of_proxy] =
        [server.port(), proxy.address().port()].map(|port| format!(":{port}/"));
    let url = url(server, timeout).replace(&of_server, &of_proxy);
    (proxy, url)
}

/// The sessions of the store that are in this state.
async fn sessions(server: &Server, state: &str) -> HashSet<i32> {
    let text = format!(
        "SELECT pid FROM pg_stat_activity WHERE application_name = 'store' AND state LIKE '{state}'"
    );
    server.rows(&text).await.iter().map(|row| row.get(0)).collect()
}

/// What the store grants is seen by another process, on each connection that it has.
async fn grants_are_seen(server: &Server, store: &PostgresStore) {
    let other = server.store().await;
    for (name, mode) in [("k", Mode::Exclusive), ("s", Mode::SHARED)] {
        granted(store.acquire(&acquire(name, "a", mode)).await);
        refused(other.acquire(&acquire(name, "b", Mode::Exclusive)).await);
        store.release(&release(name, "a")).await.unwrap();
    }
    assert_eq!(sessions(server, "idle in transaction%").await, HashSet::new());
}

/// The sessions of a store that has several: requests of shared leases do not go together.
async fn several_sessions(server: &Server, store: &PostgresStore) -> HashSet<i32> {
    let mut round = 0;
    until(async || {
        round += 1;
        let several =
            ["a", "b", "c"].map(|lease| acquire("s", &format!("{lease}{round}"), Mode::SHARED));
        let asked = several.iter().map(|request| async { granted(store.acquire(request).await) });
        join_all(asked).await;
        sessions(server, "%").await.len() > 1
    })
    .await;
    sessions(server, "%").await
}

#[tokio::test]
async fn a_prepare_that_was_dropped_leaves_no_session_in_a_transaction() {
    let server = Server::start(&[]).await.unwrap();
    let other = server.connect().await.unwrap();
    other.batch_execute(&format!("SELECT pg_advisory_lock({LOCK})")).await.unwrap();
    let store = PostgresStore::connect(&url(&server, "30s")).await.unwrap();
    let waits = until(async || server.waits("advisory").await);
    tokio::select! {
        prepared = store.prepare() => panic!("prepared beside another: {prepared:?}"),
        () = waits => {}
    }
    other.batch_execute(&format!("SELECT pg_advisory_unlock({LOCK})")).await.unwrap();
    // It continues without its caller.
    until(async || sessions(&server, "active").await.is_empty()).await;
    until(async || store.check().await.is_ok()).await;
    grants_are_seen(&server, &store).await;
}

#[tokio::test]
async fn a_prepare_that_waited_too_long_leaves_no_session_in_a_transaction() {
    let server = Server::start(&[]).await.unwrap();
    let store = PostgresStore::connect(&url(&server, "3s")).await.unwrap();
    let nene = PostgresConfig::parse(&url(&server, "3s")).unwrap();
    let nene = PostgresNeneConfig::new(nene).connect().await.unwrap();
    let other = server.connect().await.unwrap();
    other.batch_execute(&format!("SELECT pg_advisory_lock({LOCK})")).await.unwrap();
    for error in [store.prepare().await.unwrap_err(), nene.prepare().await.unwrap_err()] {
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::NotApplied));
    }
    until(async || sessions(&server, "idle in transaction%").await.is_empty()).await;
    other.batch_execute(&format!("SELECT pg_advisory_unlock({LOCK})")).await.unwrap();
    until(async || nene.prepare().await.is_ok()).await;
    until(async || store.prepare().await.is_ok()).await;
    grants_are_seen(&server, &store).await;
}

/// The others may be as dead as the one that did not answer.
#[tokio::test]
async fn a_reply_that_does_not_come_closes_every_session_that_is_older() {
    let (server, _) = Server::with_store(&[]).await;
    let (proxy, url) = behind_a_proxy(&server, "4s").await;
    let store = PostgresStore::connect(&url).await.unwrap();
    granted(store.acquire(&acquire("k", "a", Mode::Exclusive)).await);
    let before = several_sessions(&server, &store).await;
    proxy.set(Fault::SwallowAnswers);
    in_time(store.acquire(&acquire("k", "b", Mode::Exclusive))).await.unwrap_err();
    until(async || sessions(&server, "%").await.is_disjoint(&before)).await;
    proxy.set(Fault::None);
    refused(store.acquire(&acquire("k", "b", Mode::Exclusive)).await);
    store.check().await.unwrap();
}

#[tokio::test]
async fn one_answer_of_a_demoted_server_closes_every_session_that_is_older() {
    let (server, _) = Server::with_store(&[]).await;
    let store = PostgresStore::connect(&url(&server, "30s")).await.unwrap();
    let before = several_sessions(&server, &store).await;
    server.demote().await;
    store.acquire(&acquire("k", "a", Mode::Exclusive)).await.unwrap_err();
    until(async || sessions(&server, "%").await.is_disjoint(&before)).await;
}

/// No connection ended without a farewell.
fn all_took_leave(server: &Server) {
    let log = server.log();
    for rude in ["unexpected EOF", "reset by peer", "incomplete startup packet"] {
        assert!(!log.contains(rude), "{log}");
    }
}

#[tokio::test]
async fn every_connection_ends_with_a_farewell() {
    let server = Server::start(&["log_min_messages=debug1"]).await.unwrap();
    let store = PostgresStore::connect(&url(&server, "30s")).await.unwrap();
    store.prepare().await.unwrap();
    several_sessions(&server, &store).await;
    let subscribed = async |name| store.subscribe(&[Key::new(name).unwrap()]).await.unwrap();
    let (stays, left) = (subscribed("s").await, subscribed("k").await);
    assert!(sessions(&server, "%").await.len() > 2);
    // Who has left just before is forgotten, and who leaves afterwards connects no more.
    drop(left);
    in_time(store.close()).await;
    drop(stays);
    let waiters = server.ask("SELECT DISTINCT key FROM leasehold.waiters").await;
    assert_eq!(waiters, [[Some("s".to_owned())]]);
    until(async || sessions(&server, "%").await.is_empty()).await;
    all_took_leave(&server);
    // It connects again when it is used.
    granted(store.acquire(&acquire("k", "a", Mode::Exclusive)).await);
}

/// A signal ends a waiter that has just been refused.
#[tokio::test]
async fn a_subscription_dropped_at_any_poll_breaks_no_handshake() {
    let (server, _) = Server::with_store(&["log_min_messages=debug1"]).await;
    for polls in 0.. {
        let store = PostgresStore::connect(&url(&server, "30s")).await.unwrap();
        let keys = [Key::new("k").unwrap()];
        let subscribed = dropped_after(polls, store.subscribe(&keys)).await;
        in_time(store.close()).await;
        if subscribed.is_some() {
            break;
        }
    }
    until(async || sessions(&server, "%").await.is_empty()).await;
    all_took_leave(&server);
}

/// A program closes its store, and ends, while connections are being made for requests that it has dropped.
#[tokio::test]
async fn a_connection_that_nobody_wants_any_more_ends_with_a_farewell() {
    let (server, _) = Server::with_store(&["log_min_messages=debug1"]).await;
    let program = async |url: String, round: u64| {
        let store = PostgresStore::connect(&url).await.unwrap();
        let several = ["a", "b", "c", "d", "e", "f"]
            .map(|lease| acquire("s", &format!("{lease}{round}"), Mode::SHARED));
        let asked = join_all(several.iter().map(|request| store.acquire(request)));
        // No event reports that a connection is being made.
        let soon = tokio::time::sleep(Duration::from_micros(500 * round));
        tokio::select! {
            _ = asked => {}
            () = soon => {}
        }
        let closed = tokio::time::timeout(Duration::from_secs(30), store.close());
        closed.await.expect("no connection stays open");
    };
    for round in 0..20 {
        let url = url(&server, "90s");
        let run = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(program(url, round));
        };
        tokio::task::spawn_blocking(run).await.unwrap();
    }
    until(async || sessions(&server, "%").await.is_empty()).await;
    all_took_leave(&server);
}

#[tokio::test]
async fn a_close_lets_a_request_use_a_connection_that_is_slow_to_make() {
    let (server, _) = Server::with_store(&[]).await;
    let (proxy, url) = behind_a_proxy(&server, "90s").await;
    let store = PostgresStore::connect(&url).await.unwrap();
    store.close().await;
    // Longer than the pauses after which a close ends what has come back.
    proxy.set(Fault::Delay(Duration::from_millis(50)));
    let request = acquire("k", "a", Mode::Exclusive);
    let before = proxy.accepted();
    let closed = async {
        until(async || proxy.accepted() > before).await;
        in_time(store.close()).await;
    };
    let (acquired, ()) = tokio::join!(store.acquire(&request), closed);
    granted(acquired);
}
