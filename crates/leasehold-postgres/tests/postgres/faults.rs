//! Servers that end, connections that are cut, and standbys.

use std::time::Duration;

use leasehold_conformance::history::check;
use leasehold_conformance::{Fault, Proxy};
use leasehold_core::{Claims, Effect, ErrorKind, Level, Mode, RenewOutcome, Store as _, Ttl};
use leasehold_postgres::PostgresStore;
use leasehold_testkit::contender::Habit;
use leasehold_testkit::crowd::{Crowd, Tally};
use leasehold_testkit::postgres::{Server, url};
use leasehold_testkit::requests::{acquire, granted, key, only, refused, renew};
use leasehold_testkit::{LONG, in_time, stalls, until};

const CLIENTS: u64 = 16;
const TERM: Duration = Duration::from_secs(2);

/// Contends on two keys while the server is killed again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killing_the_server_under_load_lets_no_second_holder_in() {
    let server = Server::start(&[]).await.unwrap();
    server.store().await;
    let url = format!("{}&timeout=1s&connections=2", server.url());
    let mut clients = Vec::new();
    for client in 0..CLIENTS {
        let name = if client % 4 == 0 { "b" } else { "a" };
        let mode = if client % 4 == 1 { Mode::SHARED } else { Mode::Exclusive };
        let habit = Habit { claims: Claims::one(key(name), mode), term: TERM, hold: 20, rest: 10 };
        clients.push((PostgresStore::connect(&url).await.unwrap(), habit));
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
    let url = format!("{}&timeout=2s", url(proxy.address().port()));
    for (n, mode) in [Mode::Exclusive, Mode::SHARED].into_iter().enumerate() {
        for (m, fault) in
            [Fault::CutBefore, Fault::CutAfter, Fault::SwallowAnswers].into_iter().enumerate()
        {
            let store = PostgresStore::connect(&url).await.unwrap();
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
    let url = format!("{}&timeout=6s", url(proxy.address().port()));
    let store = PostgresStore::connect(&url).await.unwrap();
    stalls::an_acquire_that_is_late_is_not_passed_by_its_release(&store, &proxy).await;
}

#[tokio::test]
async fn a_server_that_hangs_is_not_awaited_beyond_the_limit() {
    let server = Server::start(&[]).await.unwrap();
    let store = PostgresStore::connect(&format!("{}&timeout=1s", server.url())).await.unwrap();
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
async fn a_statement_time_out_of_the_session_is_named_and_changed_nothing() {
    let server = Server::start(&[]).await.unwrap();
    server.store().await;
    server.run("ALTER ROLE postgres SET statement_timeout = '1s'").await;
    let store = PostgresStore::connect(&server.url()).await.unwrap();
    granted(store.acquire(&acquire("k", "warm", Mode::SHARED)).await);
    let user = server.connect().await.unwrap();
    user.batch_execute("BEGIN; SELECT * FROM leasehold.leases FOR UPDATE").await.unwrap();
    let error = in_time(store.acquire(&acquire("k", "a", Mode::SHARED))).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::NotApplied));
    assert!(error.to_string().contains("statement_timeout"), "{error}");
}

#[tokio::test]
async fn a_standby_is_refused_and_one_that_lags_lowers_the_level() {
    let server = Server::start(&[]).await.unwrap();
    let store = server.store().await;
    assert_eq!(store.check().await.unwrap().level, Level::Fenced);
    let standby = server.standby().await.unwrap();
    until(async || store.check().await.unwrap().fails_over).await;
    let health = store.check().await.unwrap();
    assert_eq!(health.level, Level::BestEffort);
    assert!(health.hazards[0].contains("synchronous_standby_names"), "{health:?}");
    // Both standbys have this name.
    let second = server.standby().await.unwrap();
    for (names, fails_over) in [
        ("walreceiver", true),
        ("ANY 1 (walreceiver)", true),
        ("FIRST 2 (walreceiver)", false),
        ("ANY 2 (walreceiver)", false),
    ] {
        server.run(&format!("ALTER SYSTEM SET synchronous_standby_names = '{names}'")).await;
        server.run("SELECT pg_reload_conf()").await;
        let states = "SELECT string_agg(DISTINCT sync_state, ' ') FROM pg_stat_replication";
        let expected = match names {
            "walreceiver" => "potential sync",
            "FIRST 2 (walreceiver)" => "sync",
            _ => "quorum",
        };
        until(async || server.rows(states).await[0].get::<_, &str>(0) == expected).await;
        until(async || store.check().await.unwrap().fails_over == fails_over).await;
        let health = store.check().await.unwrap();
        assert_eq!(health.level == Level::Fenced, !fails_over, "{names}: {health:?}");
    }
    drop(second);
    server.run("ALTER SYSTEM RESET synchronous_standby_names").await;
    server.run("SELECT pg_reload_conf()").await;
    let lagging = PostgresStore::connect(&standby.url()).await.unwrap();
    let error = lagging.acquire(&acquire("k", "b", Mode::Exclusive)).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::NotApplied));
    assert!(error.to_string().contains("target_session_attrs"), "{error}");
    let error = lagging.check().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    // Of both, the primary is found.
    let both = format!(
        "postgres://postgres@127.0.0.1:{},127.0.0.1:{}/postgres?sslmode=disable&target_session_attrs=read-write",
        standby.port(),
        server.port()
    );
    let found = PostgresStore::connect(&both).await.unwrap();
    granted(store.acquire(&acquire("k", "a", Mode::Exclusive)).await);
    refused(found.acquire(&acquire("k", "b", Mode::Exclusive)).await);
}

#[tokio::test]
async fn a_server_that_forgets_has_no_level_and_is_not_durable() {
    let server = Server::start(&["fsync=off"]).await.unwrap();
    let health = server.store().await.check().await.unwrap();
    assert_eq!((health.level, health.durable), (Level::BestEffort, false));
    assert!(health.hazards[0].contains("fsync = on"), "{health:?}");
}
