//! Servers that forget what they acknowledged, or may: which level they reach, and when they grant.

use std::sync::Arc;
use std::time::Duration;

use leasehold_conformance::ServerClock;
use leasehold_core::{
    Effect, ErrorKind, Health, Level, Mode, ReleaseOutcome, RenewOutcome, Store as _, Ttl,
};
use leasehold_quorum::{QuorumConfig, QuorumStore};
use leasehold_redis::RedisConfig;
use leasehold_testkit::redis::{DURABLE, Server};
use leasehold_testkit::requests::{acquire, failed, granted, only, refused, release, renew};
use leasehold_testkit::{LONG, until};

const MINUTE: Duration = Duration::from_secs(60);

fn has_hazard(health: &Health, text: &str) -> bool {
    health.hazards.iter().any(|hazard| hazard.contains(text))
}

/// Servers on one clock, which a test moves.
async fn on_a_clock(count: usize, settings: &[&str]) -> (Vec<Server>, ServerClock, impl Drop) {
    let directory = tempfile::tempdir().unwrap();
    let clock = ServerClock::new(directory.path().join("time")).unwrap();
    let mut servers = Vec::new();
    for _ in 0..count {
        servers.push(Server::start_on(Some(clock.clone()), settings).await.unwrap());
    }
    (servers, clock, directory)
}

/// A checked quorum whose nodes wait for a minute after each start, unless they are stated to be durable.
async fn quorum(servers: &[Server], clock: &ServerClock, is_durable: bool) -> QuorumStore {
    let mut config = QuorumConfig::new().clock(Arc::new(clock.manual()));
    for server in servers {
        let node = RedisConfig::parse(&server.url()).unwrap().timeout(LONG);
        let node = node.quarantine(MINUTE).durable(is_durable).connect().await.unwrap();
        config = config.node(server.url(), node);
    }
    let store = config.build().unwrap();
    store.check().await.unwrap();
    store
}

#[tokio::test]
async fn nodes_that_forgot_grant_nothing_for_a_term_although_they_write_durably_now() {
    for is_emptied in [false, true] {
        let before = if is_emptied { DURABLE } else { &[] };
        let (mut servers, clock, _directory) = on_a_clock(3, before).await;
        Server::advance(&servers.iter().collect::<Vec<_>>(), 2 * MINUTE).unwrap();
        let first = quorum(&servers, &clock, false).await;
        granted(first.acquire(&acquire("k", "first", Mode::Exclusive)).await);
        first.close().await;
        for server in &mut servers[1..] {
            if is_emptied {
                server.restart_empty().await.unwrap();
            } else {
                server.restart_with(DURABLE).await.unwrap();
            }
        }
        let second = quorum(&servers, &clock, false).await;
        let acquired = second.acquire(&acquire("k", "second", Mode::Exclusive)).await;
        let error = failed(acquired, ErrorKind::Unavailable, Effect::NotApplied, "just started");
        let rest = error.retry_after().unwrap();
        assert!(rest > Duration::ZERO && rest <= MINUTE, "{rest:?}");
        if is_emptied {
            // What the operator's statement is worth, and what it costs if it is wrong.
            let third = quorum(&servers, &clock, true).await;
            granted(third.acquire(&acquire("k", "third", Mode::Exclusive)).await);
            third.release(&release("k", "third")).await.unwrap();
            third.close().await;
        }
        Server::advance(&servers.iter().collect::<Vec<_>>(), MINUTE + 2 * Duration::from_secs(1))
            .unwrap();
        granted(second.acquire(&acquire("k", "second", Mode::Exclusive)).await);
    }
}

#[tokio::test]
async fn a_fenced_quorum_needs_nodes_that_are_stated_to_be_durable() {
    let server = Server::start(DURABLE).await.unwrap();
    for (options, is_fit) in [("quarantine=60s", false), ("durable=1", true)] {
        let (node, _) = server.checked(options).await.unwrap();
        let quorum = QuorumConfig::new().fenced(true).node("n", node).build().unwrap();
        match quorum.check().await {
            Ok(health) => assert!(is_fit && health.level == Level::Fenced, "{health:?}"),
            Err(error) => assert!(!is_fit && error.to_string().contains("durable=1"), "{error}"),
        }
    }
    let (node, _) = server.checked("").await.unwrap();
    let quorum = QuorumConfig::new().node("n", node).build().unwrap();
    failed(quorum.check().await, ErrorKind::Incompatible, Effect::NotApplied, "quarantine");
}

#[tokio::test]
async fn durable_is_refused_where_settings_disagree() {
    let everysec = &["--appendonly", "yes", "--appendfsync", "everysec"][..];
    let on_rewrite = [DURABLE, &["--no-appendfsync-on-rewrite", "yes"]].concat();
    for (settings, fragment) in [
        (&[][..], "no append-only file"),
        (everysec, "appendfsync everysec"),
        (&on_rewrite, "no-appendfsync-on-rewrite yes"),
    ] {
        let server = Server::start(settings).await.unwrap();
        let (store, health) = server.checked("").await.unwrap();
        assert_eq!((health.level, health.durable), (Level::BestEffort, false), "{fragment}");
        assert!(has_hazard(&health, fragment), "{health:?}");
        granted(store.acquire(&acquire("k", "a", Mode::Exclusive)).await);
        let checked = server.checked("durable=1").await;
        let error = failed(checked, ErrorKind::Incompatible, Effect::NotApplied, fragment);
        assert!(error.to_string().contains("durable=1"), "{error}");
    }
    let server = Server::start(DURABLE).await.unwrap();
    let (_, health) = server.checked("durable=1").await.unwrap();
    assert_eq!((health.level, health.durable, health.fails_over), (Level::Fenced, true, false));
    assert!(health.hazards.is_empty() && health.identity.is_some(), "{health:?}");
    assert_eq!(health.level_max_ttl, None);
    assert_eq!((health.schema, health.clock_difference_us), (Some(1), Some(0)));
}

#[tokio::test]
async fn switching_the_append_only_file_off_and_on() {
    let server = Server::start(DURABLE).await.unwrap();
    let (stated, _) = server.checked("durable=1").await.unwrap();
    granted(stated.acquire(&acquire("k", "a", Mode::Exclusive)).await);

    server.ask(&["CONFIG", "SET", "appendonly", "no"]).await.unwrap();
    let acquired = stated.acquire(&acquire("other", "a", Mode::Exclusive)).await;
    failed(acquired, ErrorKind::Incompatible, Effect::NotApplied, "no append-only file");
    failed(stated.check().await, ErrorKind::Incompatible, Effect::NotApplied, "durable=1");
    let renewed = stated.renew(&renew("k", "a", Mode::Exclusive, Ttl::new(LONG).unwrap())).await;
    assert!(matches!(only(renewed.unwrap().leases), RenewOutcome::Held(_)));
    let (plain, health) = server.checked("max_ttl=1ms").await.unwrap();
    assert_eq!(health.level, Level::BestEffort);

    // The first rewrite takes half a minute, unless it is ended; a crash meanwhile loses everything.
    server.ask(&["CONFIG", "SET", "rdb-key-save-delay", "30000000"]).await.unwrap();
    server.ask(&["CONFIG", "SET", "appendonly", "yes"]).await.unwrap();
    let health = plain.check().await.unwrap();
    assert!(health.level == Level::BestEffort && has_hazard(&health, "rewriting"), "{health:?}");
    let health = stated.check().await.unwrap();
    assert_eq!((health.level, health.durable), (Level::BestEffort, false), "{health:?}");
    let acquired = stated.acquire(&acquire("other", "a", Mode::Exclusive)).await;
    failed(acquired, ErrorKind::Unavailable, Effect::NotApplied, "for the first time");

    server.ask(&["CONFIG", "SET", "appendonly", "no"]).await.unwrap();
    server.ask(&["CONFIG", "SET", "rdb-key-save-delay", "0"]).await.unwrap();
    server.ask(&["CONFIG", "SET", "appendonly", "yes"]).await.unwrap();
    until(async || stated.acquire(&acquire("other", "a", Mode::Exclusive)).await.is_ok()).await;
    assert_eq!(stated.check().await.unwrap().level, Level::Fenced);
    // It has been up for longer than any term.
    until(async || plain.check().await.unwrap().level == Level::Fenced).await;
}

#[tokio::test]
async fn the_level_is_for_terms_that_ended_since_the_start() {
    let (servers, _clock, _directory) = on_a_clock(1, DURABLE).await;
    let server = &servers[0];
    let (store, health) = server.checked("").await.unwrap();
    assert_eq!((health.level, health.durable), (Level::BestEffort, false));
    assert!(has_hazard(&health, "durable=1"), "{health:?}");
    Server::advance(&[server], Duration::from_secs(59)).unwrap();
    assert_eq!(store.check().await.unwrap().level, Level::BestEffort);
    let (_, health) = server.checked("max_ttl=30s").await.unwrap();
    assert_eq!((health.level, health.level_max_ttl), (Level::Fenced, Some(MINUTE / 2)));
    Server::advance(&[server], Duration::from_secs(2)).unwrap();
    let health = store.check().await.unwrap();
    assert_eq!((health.level, health.level_max_ttl), (Level::Fenced, Some(MINUTE)));
    assert!(!health.durable && has_hazard(&health, "for terms above 60s"), "{health:?}");
    let long = Ttl::new(MINUTE + Duration::from_millis(1)).unwrap();
    let levels = [Ttl::new(MINUTE).unwrap(), long, Ttl::NEVER].map(|ttl| health.level_of(ttl));
    assert_eq!(levels, [Level::Fenced, Level::BestEffort, Level::BestEffort]);
    // A quarantine makes up for what was forgotten.
    server.restart().await.unwrap();
    for quarantine in [MINUTE * 3 / 2, MINUTE / 2] {
        let options = format!("quarantine={}s", quarantine.as_secs());
        let (_, health) = server.checked(&options).await.unwrap();
        let longest = (health.level, health.level_max_ttl, health.quarantine);
        assert_eq!(longest, (Level::Fenced, Some(quarantine), quarantine));
    }
    let (_, health) = server.checked("quarantine=30s&max_ttl=60s").await.unwrap();
    assert_eq!((health.level, health.level_max_ttl), (Level::BestEffort, None));
}

#[tokio::test]
async fn a_server_in_quarantine_grants_nothing_and_releases() {
    let server = Server::start(DURABLE).await.unwrap();
    let (store, health) = server.checked("quarantine=1h").await.unwrap();
    assert_eq!(health.quarantine, 60 * MINUTE);
    let acquired = store.acquire(&acquire("k", "a", Mode::Exclusive)).await;
    let error = failed(acquired, ErrorKind::Unavailable, Effect::NotApplied, "has just started");
    assert!(error.retry_after().unwrap() > 55 * MINUTE);
    let released = store.release(&release("k", "a")).await.unwrap();
    assert!(matches!(only(released.leases), ReleaseOutcome::NotHeld));
    let (stated, health) = server.checked("quarantine=1h&durable=1").await.unwrap();
    assert_eq!(health.quarantine, Duration::ZERO);
    granted(stated.acquire(&acquire("k", "a", Mode::Exclusive)).await);
    let (short, _) = server.checked("quarantine=1ms").await.unwrap();
    until(async || short.acquire(&acquire("other", "a", Mode::Exclusive)).await.is_ok()).await;
}

#[tokio::test]
async fn a_master_counts_as_failing_over_when_its_replica_has_left_and_after_its_own_promotion() {
    let at_once = [DURABLE, &["--repl-diskless-sync-delay", "0"]].concat();
    let master = Server::start(&at_once).await.unwrap();
    let port = master.port().to_string();
    let replica = [DURABLE, &["--replicaof", "127.0.0.1", &port]].concat();
    let replica = Server::start(&replica).await.unwrap();
    until(async || {
        replica.text(&["INFO", "replication"]).await.unwrap().contains("master_link_status:up")
    })
    .await;
    let (before, _) = master.checked("durable=1").await.unwrap();
    granted(before.acquire(&acquire("k", "a", Mode::Exclusive)).await);
    until(async || replica.number(&["EXISTS", "k"]).await == 1).await;

    master.kill();
    replica.ask(&["REPLICAOF", "NO", "ONE"]).await.unwrap();
    let (plain, health) = replica.checked("max_ttl=1ms").await.unwrap();
    assert_eq!((health.level, health.fails_over), (Level::BestEffort, true));
    refused(plain.acquire(&acquire("k", "b", Mode::Exclusive)).await);
    for options in ["durable=1", "quarantine=1ms"] {
        let (careful, _) = replica.checked(options).await.unwrap();
        let acquired = careful.acquire(&acquire("other", "b", Mode::Exclusive)).await;
        failed(acquired, ErrorKind::Incompatible, Effect::NotApplied, "was a replica");
    }

    // Connects and leaves again.
    let alone = Server::start(&at_once).await.unwrap();
    let port = alone.port().to_string();
    let leaves = Server::start(&["--replicaof", "127.0.0.1", &port]).await.unwrap();
    until(async || {
        alone.text(&["INFO", "replication"]).await.unwrap().contains("connected_slaves:1")
    })
    .await;
    leaves.kill();
    until(async || {
        alone.text(&["INFO", "replication"]).await.unwrap().contains("connected_slaves:0")
    })
    .await;
    let (_, health) = alone.checked("durable=1").await.unwrap();
    assert_eq!((health.level, health.fails_over), (Level::BestEffort, true), "{health:?}");
}
