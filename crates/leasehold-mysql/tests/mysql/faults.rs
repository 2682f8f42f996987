//! Servers that end, connections that are cut, and standbys.

use std::time::Duration;

use leasehold_conformance::history::check;
use leasehold_conformance::{Fault, Proxy};
use leasehold_core::{Claims, Effect, ErrorKind, Level, Mode, RenewOutcome, Store as _, Ttl};
use leasehold_mysql::MysqlStore;
use leasehold_mysql::mysql_async::prelude::Queryable as _;
use leasehold_testkit::contender::Habit;
use leasehold_testkit::crowd::{Crowd, Tally};
use leasehold_testkit::mysql::{Server, url};
use leasehold_testkit::requests::{acquire, granted, key, only, refused, renew, renewed};
use leasehold_testkit::{LONG, in_time, stalls};

const CLIENTS: u64 = 16;
const TERM: Duration = Duration::from_secs(2);

/// Contends on two keys while the server is killed again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killing_the_server_under_load_lets_no_second_holder_in() {
    let server = Server::start(&[]).await.unwrap();
    server.store().await;
    let url = format!("{}?timeout=1s&connections=2", server.url());
    let mut clients = Vec::new();
    for client in 0..CLIENTS {
        let name = if client % 4 == 0 { "b" } else { "a" };
        let mode = if client % 4 == 1 { Mode::SHARED } else { Mode::Exclusive };
        let habit = Habit { claims: Claims::one(key(name), mode), term: TERM, hold: 20, rest: 10 };
        clients.push((MysqlStore::connect(&url).await.unwrap(), habit));
    }
    let crowd = Crowd::start(clients);
    for _ in 0..6 {
        crowd.goes_on(10).await;
        server.restart().await.unwrap();
    }
    crowd.goes_on(10).await;
    let (history, _stores) = crowd.stop().await;
    let found = check(&history);
    assert!(found.is_empty(), "{found:?}");
    let tally = Tally::of(&history);
    println!("{tally}");
    // Without contention and without faults it would prove nothing.
    assert!(tally.kept >= 10 && tally.refused >= 20 && tally.unanswered >= 10);
}

#[tokio::test]
async fn a_killed_server_keeps_its_leases_and_tokens() {
    let server = Server::start(&[]).await.unwrap();
    let store = server.store().await;
    let before = granted(store.acquire(&acquire("k", "a", Mode::Exclusive)).await);
    let shared = granted(store.acquire(&acquire("s", "a", Mode::SHARED)).await);
    server.restart().await.unwrap();
    let store = server.store().await;
    let after = granted(store.acquire(&acquire("k", "a", Mode::Exclusive)).await);
    assert_eq!((after.token, after.fresh), (before.token, false));
    refused(store.acquire(&acquire("k", "b", Mode::Exclusive)).await);
    let renewed =
        store.renew(&renew("s", "a", Mode::SHARED, Ttl::new(LONG).unwrap())).await.unwrap();
    assert!(matches!(only(renewed.leases), RenewOutcome::Held(_)));
    assert_ne!(shared.token, after.token);
}

#[tokio::test]
async fn a_connection_cut_before_or_after_the_commit_leaves_one_grant() {
    let server = Server::start(&[]).await.unwrap();
    server.store().await;
    let proxy = Proxy::before(([127, 0, 0, 1], server.port()).into()).await.unwrap();
    let url = format!("{}?timeout=2s", url(proxy.address().port()));
    for (n, mode) in [Mode::Exclusive, Mode::SHARED].into_iter().enumerate() {
        for (m, fault) in
            [Fault::CutBefore, Fault::CutAfter, Fault::SwallowAnswers].into_iter().enumerate()
        {
            let store = MysqlStore::connect(&url).await.unwrap();
            let name = format!("k{n}{m}");
            // Both the connection for batches and another one are there.
            granted(store.acquire(&acquire(&format!("{name} warm"), "a", Mode::Exclusive)).await);
            granted(store.acquire(&acquire(&name, "warm", Mode::SHARED)).await);
            store.release(&leasehold_testkit::requests::release(&name, "warm")).await.unwrap();
            proxy.once(fault);
            let error = in_time(store.acquire(&acquire(&name, "a", mode))).await.unwrap_err();
            assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::Unknown));
            // The same request, sent again, learns what became of it.
            let again = granted(in_time(store.acquire(&acquire(&name, "a", mode))).await);
            assert_eq!(again.fresh, fault == Fault::CutBefore, "{fault:?}");
        }
    }
}

#[tokio::test]
async fn an_acquire_that_is_late_is_not_passed_by_its_release() {
    let server = Server::start(&[]).await.unwrap();
    server.store().await;
    let proxy = Proxy::before(([127, 0, 0, 1], server.port()).into()).await.unwrap();
    let url = format!("{}?timeout=6s", url(proxy.address().port()));
    let store = MysqlStore::connect(&url).await.unwrap();
    stalls::an_acquire_that_is_late_is_not_passed_by_its_release(&store, &proxy).await;
}

#[tokio::test]
async fn a_server_that_hangs_is_not_awaited_beyond_the_limit() {
    let server = Server::start(&[]).await.unwrap();
    let store = MysqlStore::connect(&format!("{}?timeout=1s", server.url())).await.unwrap();
    store.prepare().await.unwrap();
    granted(store.acquire(&acquire("k", "a", Mode::Exclusive)).await);
    server.pause();
    for mode in [Mode::Exclusive, Mode::SHARED] {
        let error = in_time(store.acquire(&acquire("l", "a", mode))).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.to_string().contains("within"), "{error}");
    }
    server.resume();
    refused(store.acquire(&acquire("k", "b", Mode::Exclusive)).await);
}

#[tokio::test]
async fn a_statement_time_limit_of_the_session_is_named() {
    let server = Server::start(&["--max-statement-time=0.2"]).await.unwrap();
    let store = server.store().await;
    granted(store.acquire(&acquire("k", "a", Mode::Exclusive)).await);
    // A table lock is not a row lock: a statement waits for it.
    let mut user = server.connect().await.unwrap();
    user.query_drop("LOCK TABLES leasehold.leasehold_leases WRITE").await.unwrap();
    let error = in_time(store.acquire(&acquire("k", "b", Mode::Exclusive))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("interrupted"), "{error}");
    user.query_drop("UNLOCK TABLES").await.unwrap();
    refused(in_time(store.acquire(&acquire("k", "b", Mode::Exclusive))).await);
}

#[tokio::test]
async fn a_server_that_forgets_has_no_level_and_is_not_durable() {
    for setting in ["--innodb-flush-log-at-trx-commit=2", "--log-bin", "--innodb-doublewrite=0"] {
        let server = Server::start(&[setting]).await.unwrap();
        let health = server.store().await.check().await.unwrap();
        assert_eq!((health.level, health.durable), (Level::BestEffort, false), "{setting}");
        assert!(health.hazards[0].contains("sync_binlog"), "{health:?}");
    }
    let server = Server::start(&["--log-bin", "--sync-binlog=1"]).await.unwrap();
    let health = server.store().await.check().await.unwrap();
    assert_eq!((health.level, health.durable), (Level::Fenced, true), "{health:?}");
}

/// It is about a shared lease, and so goes in no batch, which others would pass.
#[tokio::test]
async fn a_renewal_that_a_dead_connection_swallows_is_sent_again_on_another() {
    let server = Server::start(&[]).await.unwrap();
    server.store().await;
    let proxy = Proxy::before(([127, 0, 0, 1], server.port()).into()).await.unwrap();
    // Twice as long as the test waits.
    let store = MysqlStore::connect(&format!("{}?timeout=60s", url(proxy.address().port()))).await;
    let store = store.unwrap();
    granted(store.acquire(&acquire("s", "a", Mode::SHARED)).await);
    proxy.set_present(Fault::BlackHole);
    let request = renew("s", "a", Mode::SHARED, Ttl::new(LONG).unwrap());
    let outcome = in_time(renewed(&store, &request)).await.unwrap();
    assert!(matches!(outcome, RenewOutcome::Held(_)), "{outcome:?}");
}
