//! A master with replicas, and the sentinels that choose among them.

use std::time::Duration;

use leasehold_core::{
    Effect, ErrorKind, Level, Mode, ReleaseOutcome, RenewOutcome, Store as _, Ttl,
};
use leasehold_redis::redis;
use leasehold_redis::{RedisConfig, RedisStore};
use leasehold_testkit::redis::sentinel::{SERVICE, Sentinels};
use leasehold_testkit::redis::{DURABLE, Server};
use leasehold_testkit::requests::{
    acquire, granted, key, only, refused, release, renew, until_refused,
};
use leasehold_testkit::{LONG, in_time, until};

/// A master and its replica, which has everything that the master has.
async fn pair() -> (Server, Server) {
    let master = Server::start(DURABLE).await.unwrap();
    let port = master.port().to_string();
    let mut settings = DURABLE.to_vec();
    settings.extend(["--replicaof", "127.0.0.1", &port]);
    let replica = Server::start(&settings).await.unwrap();
    until(async || reports(&replica, "master_link_status:up").await).await;
    (master, replica)
}

/// What a server reports about replication; not while a sentinel cuts its connections.
async fn reports(server: &Server, what: &str) -> bool {
    let told = server
        .ask(&["INFO", "replication"])
        .await
        .and_then(|told| Ok(redis::from_redis_value::<String>(told)?));
    told.is_ok_and(|told| told.contains(what))
}

async fn open(url: &str) -> RedisStore {
    let config = RedisConfig::parse(url).unwrap().timeout(Duration::from_secs(3));
    config.connect().await.unwrap()
}

#[tokio::test]
async fn sentinels_name_the_master_and_after_a_fail_over_the_new_one() {
    let (master, replica) = pair().await;
    let sentinels = Sentinels::watch(&master, 1, 1_000).await.unwrap();
    let store = open(&sentinels.url()).await;
    let health = store.check().await.unwrap();
    assert!(health.fails_over && health.level == Level::BestEffort, "{health:?}");

    granted(store.acquire(&acquire("k", "a", Mode::Exclusive)).await);
    let mut wakeups = store.subscribe(&[key("k")]).await.unwrap();
    until(async || replica.number(&["DBSIZE"]).await == 3).await;
    master.kill();
    until_refused(&store, "k").await;
    in_time(wakeups.next()).await;
    until(async || replica.number(&["SPUBLISH", "lh:lock:{k}:k", ""]).await == 1).await;
    let released = store.release(&release("k", "a")).await.unwrap();
    assert!(matches!(only(released.leases), ReleaseOutcome::Released));
}

#[tokio::test]
async fn a_hung_sentinel_delays_nobody() {
    let master = Server::start(DURABLE).await.unwrap();
    // Nothing happens to the master here.
    let sentinels = Sentinels::watch(&master, 0, 600_000).await.unwrap();
    sentinels.pause(0);
    let store = open(&sentinels.url()).await;
    granted(store.acquire(&acquire("k", "a", Mode::Exclusive)).await);
    let health = store.check().await.unwrap();
    assert!(health.fails_over, "sentinels watch it: {health:?}");

    let url = sentinels.url().replace(SERVICE, "other");
    let config = RedisConfig::parse(&url).unwrap().timeout(Duration::from_millis(500));
    let error = config.connect().await.unwrap_err();
    assert_eq!(
        (error.kind(), error.effect()),
        (ErrorKind::Unavailable, Effect::NotApplied),
        "{error}"
    );
    assert!(error.to_string().contains("\"other\""), "{error}");
}

#[tokio::test]
async fn a_master_that_became_a_replica_is_no_longer_used() {
    let (master, replica) = pair().await;
    let sentinels = Sentinels::watch(&master, 1, 600_000).await.unwrap();
    let store = open(&sentinels.url()).await;
    granted(store.acquire(&acquire("k", "a", Mode::Exclusive)).await);
    until(async || replica.number(&["DBSIZE"]).await == 3).await;
    let failed_over = async || {
        let url = format!("redis://127.0.0.1:{}/", sentinels.ports[0]);
        leasehold_testkit::redis::ask(&url, &["SENTINEL", "FAILOVER", SERVICE]).await.is_ok()
    };
    until(failed_over).await;
    until(async || reports(&master, "role:slave").await).await;
    until_refused(&store, "k").await;
    assert!(reports(&replica, "role:master").await);
}

#[tokio::test]
async fn a_grant_on_too_few_replicas_does_not_count() {
    let (master, replica) = pair().await;
    let config = RedisConfig::parse(&format!("{}?replicas=1", master.url())).unwrap();
    let store = config.clone().timeout(LONG).connect().await.unwrap();
    let hasty = config.timeout(Duration::from_secs(2)).connect().await.unwrap();
    let ttl = Ttl::new(LONG).unwrap();
    granted(store.acquire(&acquire("k", "a", Mode::Exclusive)).await);
    assert_eq!(replica.text(&["GET", "k"]).await.as_deref(), Some("a"), "it was waited for");

    replica.pause();
    let error = hasty.acquire(&acquire("j", "a", Mode::Exclusive)).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.effect()),
        (ErrorKind::Unavailable, Effect::Unknown),
        "{error}"
    );
    assert!(error.to_string().contains("only 0 have"), "{error}");
    // A refusal is still a refusal.
    refused(hasty.acquire(&acquire("j", "b", Mode::Exclusive)).await);
    let error = hasty.renew(&renew("k", "a", Mode::Exclusive, ttl)).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.effect()),
        (ErrorKind::Unavailable, Effect::Unknown),
        "{error}"
    );
    // Losing a release admits nobody.
    let released = hasty.release(&release("k", "a")).await.unwrap();
    assert!(matches!(only(released.leases), ReleaseOutcome::Released));

    replica.resume();
    let confirmed = store.acquire(&acquire("j", "a", Mode::Exclusive)).await.unwrap();
    assert!(
        format!("{confirmed:?}").contains("fresh: false"),
        "the lease was there: {confirmed:?}"
    );
    let renewed = store.renew(&renew("j", "a", Mode::Exclusive, ttl)).await.unwrap();
    assert!(matches!(only(renewed.leases), RenewOutcome::Held(_)));
}

#[tokio::test]
async fn a_grant_is_unknown_if_replicas_may_not_be_counted() {
    let master = Server::start(&[]).await.unwrap();
    master.add_locker("~lh:lock:* &lh:lock:* -wait").await;
    let url = master.url().replace("://", "://locker:PASSWORD@");
    let store = open(&format!("{url}?replicas=1")).await;
    let ttl = Ttl::new(LONG).unwrap();
    let request = acquire("app:k", "a", Mode::Exclusive);
    let acquired = store.acquire(&request).await.map(drop);
    let renewed = store.renew(&renew("app:k", "a", Mode::Exclusive, ttl)).await.map(drop);
    for outcome in [acquired, renewed] {
        let error = outcome.unwrap_err();
        let failure = (error.kind(), error.effect());
        assert_eq!(failure, (ErrorKind::Unavailable, Effect::Unknown), "{error}");
        assert!(error.to_string().contains("NOPERM"), "{error}");
    }
    assert_eq!(master.text(&["GET", "app:k"]).await.as_deref(), Some("a"), "it has acted");
    // A release does not wait for replicas.
    let released = store.release(&release("app:k", "a")).await.unwrap();
    assert!(matches!(only(released.leases), ReleaseOutcome::Released));
}

#[tokio::test]
async fn the_least_privileges_of_the_page_are_enough_behind_sentinels() {
    let (master, replica) = pair().await;
    let sentinels = Sentinels::watch(&master, 1, 600_000).await.unwrap();
    for server in [&master, &replica] {
        server.add_locker("~lh:lock:* &lh:lock:* +role +wait").await;
    }
    for port in &sentinels.ports {
        let rule = "ACL SETUSER asker on >SECRET +hello +sentinel|get-master-addr-by-name";
        let words: Vec<_> = rule.split(' ').collect();
        leasehold_testkit::redis::ask(&format!("redis://127.0.0.1:{port}/"), &words).await.unwrap();
    }
    let url = sentinels.url().replace("://", "://locker:PASSWORD@");
    let url = format!("{url}?replicas=1&sentinel_user=asker&sentinel_pass=SECRET");
    let store = open(&url).await;
    store.check().await.unwrap();
    granted(store.acquire(&acquire("app:k", "a", Mode::Exclusive)).await);
    assert!(matches!(
        only(store.release(&release("app:k", "a")).await.unwrap().leases),
        ReleaseOutcome::Released
    ));
}
