//! A Redis Cluster of three masters.

use std::time::Duration;

use futures_util::FutureExt as _;
use leasehold_conformance::{Fault, Proxy};
use leasehold_core::{
    AcquireRequest, Claims, Effect, ErrorKind, EvictRequest, Filter, Level, ListRequest, Mode,
    ReleaseEntry, ReleaseOutcome, ReleaseRequest, RenewEntry, RenewOutcome, RenewRequest, Store,
    Ttl,
};
use leasehold_redis::{RedisConfig, RedisStore, redis};
use leasehold_testkit::redis::Server;
use leasehold_testkit::redis::cluster::{Cluster, ClusterOptions, MASTERS};
use leasehold_testkit::requests::{
    acquire, failed, granted, id, key, only, refused, release, renew, until_refused,
};
use leasehold_testkit::{LONG, in_time, until};

/// Enough names to have slots at all masters.
fn names(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("job:{n}")).collect()
}

#[tokio::test]
async fn leases_are_where_their_slots_are() {
    let cluster = Cluster::start(ClusterOptions::default()).await.unwrap();
    let store = RedisStore::connect(&cluster.url()).await.unwrap();
    for name in names(60) {
        granted(store.acquire(&acquire(&name, "a", Mode::Exclusive)).await);
        refused(store.acquire(&acquire(&name, "b", Mode::Exclusive)).await);
    }
    for node in &cluster.nodes {
        assert!(node.number(&["DBSIZE"]).await > 10, "each master has some");
    }
    let listed = store.list(&ListRequest::new(Filter::default()).with_limit(1_000)).await.unwrap();
    assert_eq!((listed.records.len(), listed.next), (60, None));

    let lease = |name: &String| Claims::one(key(name), Mode::Exclusive);
    let all = names(60);
    let renewals =
        all.iter().map(|name| RenewEntry::extend(id("a"), lease(name), Ttl::new(LONG).unwrap()));
    let renewed = store.renew(&RenewRequest::new(renewals.collect())).await.unwrap();
    assert!(renewed.leases.iter().all(|one| matches!(one, RenewOutcome::Held(_))), "{renewed:?}");
    let endings = all.iter().enumerate().map(|(at, name)| {
        // The answers come in the order of the request.
        ReleaseEntry::new(id(if at % 2 == 0 { "a" } else { "b" }), [key(name)])
    });
    let released = store.release(&ReleaseRequest::new(endings.collect())).await.unwrap();
    for (at, one) in released.leases.iter().enumerate() {
        match one {
            ReleaseOutcome::Released => assert_eq!(at % 2, 0),
            ReleaseOutcome::NotHeld => assert_eq!(at % 2, 1),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn keys_of_one_lease_share_a_slot_or_are_refused() {
    let cluster = Cluster::start(ClusterOptions::default()).await.unwrap();
    let store = RedisStore::connect(&cluster.url()).await.unwrap();
    let claims =
        |names: &[&str]| Claims::all(names.iter().map(|name| key(name)), Mode::Exclusive).unwrap();
    let request =
        |names: &[&str]| AcquireRequest::new(id("a"), claims(names), Ttl::new(LONG).unwrap());
    granted(store.acquire(&request(&["{t}:a", "{t}:b"])).await);
    let error = store.acquire(&request(&["a", "b"])).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("hash tag"), "{error}");
    let error = store.acquire(&acquire("a}b", "a", Mode::Exclusive)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");

    // One lease of many that cannot exist does no harm to the others.
    let renewal =
        |names: &[&str]| RenewEntry::extend(id("a"), claims(names), Ttl::new(LONG).unwrap());
    let renewed = store
        .renew(&RenewRequest::new(vec![renewal(&["a", "b"]), renewal(&["{t}:a", "{t}:b"])]))
        .await
        .unwrap();
    assert!(
        matches!(&renewed.leases[..], [RenewOutcome::Failed(error), RenewOutcome::Held(_)]
            if error.kind() == ErrorKind::Unsupported),
        "{renewed:?}"
    );
}

#[tokio::test]
async fn a_release_wakes_waiters_at_every_master() {
    let cluster = Cluster::start(ClusterOptions::default()).await.unwrap();
    let store = RedisStore::connect(&cluster.url()).await.unwrap();
    let other = RedisStore::connect(&cluster.url()).await.unwrap();
    let all: Vec<_> = names(12).iter().map(|name| key(name)).collect();
    let mut wakeups = store.subscribe(&all).await.unwrap();
    for name in names(12) {
        granted(other.acquire(&acquire(&name, "a", Mode::Exclusive)).await);
        let released = other.release(&release(&name, "a")).await.unwrap();
        assert!(matches!(only(released.leases), ReleaseOutcome::Released));
        // Each new connection counts as a hint for all keys.
        in_time(async { while wakeups.next().await != key(&name) {} }).await;
    }
}

#[tokio::test]
async fn a_lease_that_many_waited_for_is_told_at_its_master() {
    let cluster = Cluster::start(ClusterOptions::default()).await.unwrap();
    let store = RedisStore::connect(&cluster.url()).await.unwrap();
    let slot = cluster.nodes[0].number(&["CLUSTER", "KEYSLOT", "job"]).await;
    let node = &cluster.nodes[Cluster::first_owner(slot.try_into().unwrap())];
    let mut wakeups = store.subscribe(&[key("job")]).await.unwrap();
    // What came with the connection.
    until(async || wakeups.next().now_or_never().is_none()).await;
    for (count, calls) in [("4", 1), ("5", 2)] {
        node.ask(&["CONFIG", "RESETSTAT"]).await.unwrap();
        node.ask(&["SPUBLISH", "lh:lock:{job}:job", count]).await.unwrap();
        in_time(wakeups.next()).await;
        let acquired = store.acquire(&acquire("job", count, Mode::Exclusive)).await;
        granted(acquired);
        let statistics = node.text(&["INFO", "commandstats"]).await.unwrap();
        let counted = format!("cmdstat_spublish:calls={calls},");
        assert!(statistics.contains(&counted), "{statistics}");
        store.release(&release("job", count)).await.unwrap();
        in_time(wakeups.next()).await;
    }
}

#[tokio::test]
async fn a_slot_that_moves_takes_leases_and_waiters_with_it() {
    let cluster = Cluster::start(ClusterOptions::default()).await.unwrap();
    let store = RedisStore::connect(&cluster.url()).await.unwrap();
    let first = granted(store.acquire(&acquire("job", "a", Mode::Exclusive)).await);
    let mut wakeups = store.subscribe(&[key("job")]).await.unwrap();

    let slot = cluster.nodes[0].number(&["CLUSTER", "KEYSLOT", "job"]).await;
    let from = Cluster::first_owner(slot.try_into().unwrap());
    let to = (from + 1) % 3;
    cluster
        .move_slot(slot, from, to, &["job", "lh:lock:{job}:job"], async |moved| {
            let acquired = store.acquire(&acquire("job", "b", Mode::Exclusive)).await;
            // A listing has the lease, or reports that it cannot know.
            match store.list(&ListRequest::new(Filter::default())).await {
                Ok(page) => assert_eq!(page.records.len(), 1, "{moved} keys are there"),
                Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
            }
            if moved == 1 {
                // Half of it is here, half there: nobody can know, and nobody guesses.
                let error = acquired.unwrap_err();
                let failure = (error.kind(), error.effect());
                assert_eq!(failure, (ErrorKind::Unavailable, Effect::NotApplied), "{error}");
            } else {
                refused(acquired);
            }
        })
        .await;

    // The hint that everything may have changed.
    assert_eq!(in_time(wakeups.next()).await, key("job"));
    let again = store.acquire(&acquire("job", "a", Mode::Exclusive)).await;
    assert_eq!(granted(again).token, first.token);
    let released = store.release(&release("job", "a")).await.unwrap();
    assert!(matches!(only(released.leases), ReleaseOutcome::Released));
    let subscribed =
        async || cluster.nodes[to].number(&["SPUBLISH", "lh:lock:{job}:job", ""]).await == 1;
    until(subscribed).await;
    let next = granted(store.acquire(&acquire("job", "b", Mode::Exclusive)).await);
    assert!(next.token > first.token);
}

#[tokio::test]
async fn renewals_and_releases_name_no_mark_of_a_slot_that_moves() {
    let cluster = Cluster::start(ClusterOptions::default()).await.unwrap();
    let store = RedisStore::connect(&cluster.url()).await.unwrap();
    for name in ["{t}:held", "{t}:released"] {
        granted(store.acquire(&acquire(name, "a", Mode::Exclusive)).await);
    }
    let slot = cluster.nodes[0].number(&["CLUSTER", "KEYSLOT", "t"]).await;
    let from = Cluster::first_owner(slot.try_into().unwrap());
    let of_slot = ["CLUSTER", "GETKEYSINSLOT", &slot.to_string(), "10"];
    let of_slot: Vec<String> =
        redis::from_redis_value(cluster.nodes[from].ask(&of_slot).await.unwrap()).unwrap();
    let mark = of_slot.iter().find(|name| name.starts_with("lh:token:")).unwrap();
    let metadata = "lh:lock:{t}:{t}:held";
    cluster
        .move_slot(slot, from, (from + 1) % 3, &[mark, metadata, "{t}:held"], async |moved| {
            if moved != 1 {
                return;
            }
            let acquired = store.acquire(&acquire("{t}:held", "b", Mode::Exclusive)).await;
            failed(acquired, ErrorKind::Unavailable, Effect::NotApplied, "");
            let to = Ttl::new(LONG).unwrap();
            let renewed = store.renew(&renew("{t}:held", "a", Mode::Exclusive, to)).await.unwrap();
            assert!(matches!(only(renewed.leases), RenewOutcome::Held(_)));
            let released = store.release(&release("{t}:released", "a")).await.unwrap();
            assert!(matches!(only(released.leases), ReleaseOutcome::Released));
        })
        .await;
}

#[tokio::test]
async fn each_operation_is_one_exchange_with_one_node() {
    let cluster = Cluster::start(ClusterOptions::default()).await.unwrap();
    let proxies = cluster.behind_proxies().await;
    // What is late on a busy machine would be sent again after a tenth of the time limit.
    let url = format!("redis+cluster://{}/?timeout=30s", proxies[1].address());
    let store = RedisStore::connect(&url).await.unwrap();
    let ttl = Ttl::new(LONG).unwrap();
    let round = async |name: &str| {
        let exchanges = || proxies.iter().map(Proxy::exchanges).sum::<usize>();
        let mut counts = Vec::new();
        let mut before = exchanges();
        let mut count = || {
            counts.push(exchanges() - before);
            before = exchanges();
        };
        granted(store.acquire(&acquire(name, "a", Mode::Exclusive)).await);
        count();
        refused(store.acquire(&acquire(name, "b", Mode::Exclusive)).await);
        count();
        store.renew(&renew(name, "a", Mode::Exclusive, ttl)).await.unwrap();
        count();
        store.list(&ListRequest::new(Filter::default().with_key(key(name)))).await.unwrap();
        count();
        store.release(&release(name, "a")).await.unwrap();
        count();
        // One exchange with each master, and one before them for the topology.
        store.list(&ListRequest::new(Filter::default())).await.unwrap();
        count();
        store.evict(&EvictRequest::expired(Filter::default())).await.unwrap();
        count();
        counts
    };
    for name in names(12) {
        // Its master loads the scripts.
        round(&name).await;
    }
    for name in names(12) {
        let counts = round(&name).await;
        assert_eq!(counts[..5], [1; 5], "{name}");
        assert!(counts[5..].iter().sum::<usize>() <= 12, "{counts:?}");
    }
}

#[tokio::test]
async fn a_silent_node_delays_only_its_own_keys_and_by_one_limit() {
    let cluster = Cluster::start(ClusterOptions::default()).await.unwrap();
    let proxies = cluster.behind_proxies().await;
    let url = format!("redis+cluster://{}/", proxies[0].address());
    let config = RedisConfig::parse(&url).unwrap().timeout(Duration::from_secs(3));
    let store = config.connect().await.unwrap();
    let all = names(60);
    for name in &all {
        granted(store.acquire(&acquire(name, "a", Mode::Exclusive)).await);
    }
    let mut at_nodes = [const { Vec::new() }; MASTERS];
    for name in &all {
        let slot = cluster.nodes[0].number(&["CLUSTER", "KEYSLOT", name]).await;
        at_nodes[Cluster::first_owner(slot.try_into().unwrap())].push(name);
    }
    // What is sent on existing connections is lost, and they stay open.
    proxies[0].set(Fault::HalfOpen);
    let request = acquire(at_nodes[0][0], "b", Mode::Exclusive);
    let lost = store.acquire(&request);
    let others = async {
        for name in at_nodes[1].iter().chain(&at_nodes[2]) {
            refused(store.acquire(&acquire(name, "b", Mode::Exclusive)).await);
        }
    };
    let (lost, ()) = tokio::join!(lost, others);
    let error = lost.unwrap_err();
    let failure = (error.kind(), error.effect());
    assert_eq!(failure, (ErrorKind::Unavailable, Effect::Unknown), "{error}");
    proxies[0].set(Fault::None);
    // The connection was given up, and the next is another.
    refused(store.acquire(&request).await);
}

#[tokio::test]
async fn after_a_fail_over_the_new_master_is_found_and_wakes() {
    let plan = ClusterOptions { replicas: 1, ..ClusterOptions::default() };
    let cluster = Cluster::start(plan).await.unwrap();
    let config = RedisConfig::parse(&cluster.url()).unwrap();
    let store = config.timeout(Duration::from_secs(3)).connect().await.unwrap();
    let name = "job";
    granted(store.acquire(&acquire(name, "a", Mode::Exclusive)).await);
    let mut wakeups = store.subscribe(&[key(name)]).await.unwrap();
    let health = store.check().await.unwrap();
    assert!(health.fails_over && health.level == Level::BestEffort, "{health:?}");
    // Otherwise the fail-over may lose the lease, which is not tested here.
    let slot = cluster.nodes[1].number(&["CLUSTER", "KEYSLOT", name]).await;
    let (master, replica) = {
        let at = Cluster::first_owner(slot.try_into().unwrap());
        (&cluster.nodes[at], &cluster.nodes[at + MASTERS])
    };
    until(async || replica.number(&["DBSIZE"]).await == 3).await;
    master.kill();

    until_refused(&store, name).await;
    // A hint reports that everything may have changed; then they are notified again.
    in_time(wakeups.next()).await;
    let woken = async || replica.number(&["SPUBLISH", "lh:lock:{job}:job", ""]).await == 1;
    until(woken).await;
    let released = store.release(&release(name, "a")).await.unwrap();
    assert!(matches!(only(released.leases), ReleaseOutcome::Released));
    granted(store.acquire(&acquire(name, "b", Mode::Exclusive)).await);
}

#[tokio::test]
async fn nodes_that_redirect_to_each_other_are_an_error() {
    let cluster = Cluster::start(ClusterOptions::default()).await.unwrap();
    let store = RedisStore::connect(&cluster.url()).await.unwrap();
    let slot = cluster.nodes[0].number(&["CLUSTER", "KEYSLOT", "job"]).await;
    let (a, b) = (&cluster.nodes[0], &cluster.nodes[1]);
    let ids = [a.id().await, b.id().await];
    until(async || {
        for (node, other) in [(a, &ids[1]), (b, &ids[0])] {
            node.ask(&["CLUSTER", "SETSLOT", &slot.to_string(), "NODE", other]).await.unwrap();
        }
        // Now and then the nodes correct each other, and then this is granted.
        let Err(error) = store.acquire(&acquire("job", "a", Mode::Exclusive)).await else {
            return false;
        };
        let failure = (error.kind(), error.effect());
        assert_eq!(failure, (ErrorKind::Unavailable, Effect::NotApplied), "{error}");
        error.to_string().contains("disagree")
    })
    .await;
}

#[tokio::test]
async fn the_wrong_kind_of_server_is_named() {
    let cluster = Cluster::start(ClusterOptions::default()).await.unwrap();
    let url = format!("redis://127.0.0.1:{}/", cluster.nodes[0].port());
    let error = RedisStore::connect(&url).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible, "{error}");
    assert!(error.to_string().contains("redis+cluster://"), "{error}");

    let single = Server::start(&[]).await.unwrap();
    let url = format!("redis+cluster://127.0.0.1:{}/", single.port());
    let error = RedisStore::connect(&url).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible, "{error}");
    assert!(error.to_string().contains("redis://"), "{error}");
}

#[tokio::test]
async fn the_least_privileges_of_the_page_are_enough_in_a_cluster() {
    let cluster = Cluster::start(ClusterOptions::default()).await.unwrap();
    for node in &cluster.nodes {
        node.add_locker("~lh:lock:* &lh:lock:* +cluster|info +cluster|slots +asking").await;
    }
    let url = cluster.url().replace("://", "://locker:PASSWORD@");
    let store = RedisStore::connect(&url).await.unwrap();
    store.check().await.unwrap();
    let mut wakeups = store.subscribe(&[key("app:job")]).await.unwrap();
    granted(store.acquire(&acquire("app:job", "a", Mode::Exclusive)).await);
    store.release(&release("app:job", "a")).await.unwrap();
    in_time(wakeups.next()).await;
    let listed = store.list(&ListRequest::new(Filter::default())).await.unwrap();
    assert!(listed.records.is_empty());
}

#[tokio::test]
async fn an_unfit_master_is_refused_when_it_is_first_used() {
    let cluster = Cluster::start(ClusterOptions::default()).await.unwrap();
    let slot = cluster.nodes[0].number(&["CLUSTER", "KEYSLOT", "job"]).await;
    let owner = &cluster.nodes[Cluster::first_owner(slot.try_into().unwrap())];
    owner.ask(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]).await.unwrap();
    let store = RedisStore::connect(&cluster.url()).await.unwrap();
    assert!(store.capabilities().checks_on_use);
    let acquired = store.acquire(&acquire("job", "a", Mode::Exclusive)).await;
    failed(acquired, ErrorKind::Incompatible, Effect::NotApplied, "allow_eviction=1");
    failed(store.check().await, ErrorKind::Incompatible, Effect::NotApplied, "allow_eviction=1");
    let url = format!("{}?allow_eviction=1", cluster.url());
    let store = RedisStore::connect(&url).await.unwrap();
    granted(store.acquire(&acquire("job", "a", Mode::Exclusive)).await);
}

#[tokio::test]
async fn nodes_without_the_host_names_that_are_preferred() {
    let cluster = Cluster::start(ClusterOptions::default()).await.unwrap();
    for kind in ["unknown-endpoint", "hostname"] {
        for node in &cluster.nodes {
            node.ask(&["CONFIG", "SET", "cluster-preferred-endpoint-type", kind]).await.unwrap();
        }
        let store = RedisStore::connect(&cluster.url()).await.unwrap();
        for name in names(12) {
            granted(store.acquire(&acquire(&name, kind, Mode::Exclusive)).await);
            store.release(&release(&name, kind)).await.unwrap();
        }
        // Redirects name no host either.
        let slot = cluster.nodes[0].number(&["CLUSTER", "KEYSLOT", kind]).await;
        let from = Cluster::first_owner(slot.try_into().unwrap());
        let to = (from + 1) % MASTERS;
        let held = [kind.to_owned(), format!("lh:lock:{{{kind}}}:{kind}")];
        granted(store.acquire(&acquire(kind, "a", Mode::Exclusive)).await);
        let moves = [held[0].as_str(), held[1].as_str()];
        cluster
            .move_slot(slot, from, to, &moves, async |moved| {
                let acquired = store.acquire(&acquire(kind, "b", Mode::Exclusive)).await;
                match moved {
                    1 => drop(failed(acquired, ErrorKind::Unavailable, Effect::NotApplied, "")),
                    _ => drop(refused(acquired)),
                }
            })
            .await;
        refused(store.acquire(&acquire(kind, "b", Mode::Exclusive)).await);
    }
}
