//! Failures in one part of a Redis Cluster while others work.

use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use leasehold_conformance::{Fault, Proxy};
use leasehold_core::{
    Claims, Effect, ErrorKind, EvictRequest, EvictTarget, Filter, ListRequest, Mode, RenewEntry,
    RenewRequest, Store as _, Ttl, Wakeups,
};
use leasehold_redis::RedisStore;
use leasehold_testkit::redis::Server;
use leasehold_testkit::redis::cluster::{Cluster, ClusterOptions, MASTERS};
use leasehold_testkit::requests::{acquire, granted, id, key};
use leasehold_testkit::{LONG, in_time, until};

/// A name whose slot this master owns, and the slot.
async fn name_at(cluster: &Cluster, master: usize) -> (String, i64) {
    for n in 0.. {
        let name = format!("job:{n}");
        let slot = cluster.nodes[0].number(&["CLUSTER", "KEYSLOT", &name]).await;
        if Cluster::first_owner(slot.try_into().unwrap()) == master {
            return (name, slot);
        }
    }
    unreachable!()
}

/// A hint published at this node wakes the waiter.
async fn is_woken_by(wakeups: &mut Wakeups, name: &str, node: &Server) {
    let channel = format!("lh:lock:{{{name}}}:{name}");
    until(async || node.number(&["SPUBLISH", &channel, ""]).await == 1).await;
    assert_eq!(in_time(wakeups.next()).await, key(name));
}

fn everything() -> ListRequest {
    ListRequest::new(Filter::default())
}

#[tokio::test]
async fn a_failure_that_may_have_acted_represents_all_parts() {
    let cluster = Cluster::start(ClusterOptions::default()).await.unwrap();
    let proxies = cluster.behind_proxies().await;
    for node in &cluster.nodes {
        let rule = "ACL SETUSER locker on >PASSWORD ~* &* +@all";
        node.ask(&rule.split(' ').collect::<Vec<_>>()).await.unwrap();
    }
    // This one refuses at once.
    cluster.nodes[0].ask(&["ACL", "SETUSER", "locker", "-evalsha"]).await.unwrap();
    let mut names = Vec::new();
    for master in 0..MASTERS {
        names.push(name_at(&cluster, master).await.0);
    }
    for evicts in [false, true] {
        for order in [[0, 1, 2], [2, 1, 0]] {
            let url = format!("redis+cluster://locker:PASSWORD@{}/", proxies[0].address());
            let store = RedisStore::connect(&url).await.unwrap();
            for (at, name) in names.iter().enumerate() {
                let listed =
                    store.list(&ListRequest::new(Filter::default().with_key(key(name)))).await;
                assert_eq!(listed.is_err(), at == 0, "{listed:?}");
            }
            // This one acts, and nobody receives its reply.
            proxies[1].set(Fault::CutAfter);
            let error = if evicts {
                // There is nothing to do at the third node.
                let target = |at: usize| EvictTarget::new(key(&names[at]), Some(id("a")));
                let evict = EvictRequest::exactly(order.map(target).to_vec(), None);
                store.evict(&evict).await.map(drop).unwrap_err()
            } else {
                let ttl = Ttl::new(LONG).unwrap();
                let claims = |at: usize| Claims::one(key(&names[at]), Mode::Exclusive);
                let both = order.into_iter().filter(|at| *at < 2);
                let renewals = both.map(|at| RenewEntry::extend(id("a"), claims(at), ttl));
                store.renew(&RenewRequest::new(renewals.collect())).await.map(drop).unwrap_err()
            };
            let failure = (error.kind(), error.effect());
            assert_eq!(failure, (ErrorKind::Unavailable, Effect::Unknown), "{order:?}: {error}");
            proxies[1].set(Fault::None);
        }
    }
}

#[tokio::test]
async fn one_failed_topology_request_fails_all_that_wait_for_it() {
    let cluster = Cluster::start(ClusterOptions::default()).await.unwrap();
    let proxies = cluster.behind_proxies().await;
    let url = format!("redis+cluster://{}/", proxies[0].address());
    let store = RedisStore::connect(&url).await.unwrap();
    store.list(&everything()).await.unwrap();
    let set = |fault| proxies.iter().for_each(|proxy| proxy.set(fault));
    set(Fault::CutBefore);
    let exchanges = || proxies.iter().map(Proxy::exchanges).sum::<usize>();
    // Each begins by asking for the topology, while nobody answers.
    let search = async |callers: usize| {
        let before = exchanges();
        let request = everything();
        for listed in join_all((0..callers).map(|_| store.list(&request))).await {
            let error = listed.unwrap_err();
            let failure = (error.kind(), error.effect());
            assert_eq!(failure, (ErrorKind::Unavailable, Effect::NotApplied), "{error}");
        }
        exchanges() - before
    };
    let of_one = search(1).await;
    assert!(of_one > 0);
    assert_eq!(search(8).await, of_one);
    set(Fault::None);
    store.list(&everything()).await.unwrap();
}

#[tokio::test]
async fn a_waiter_that_subscribes_at_the_old_node_is_woken_by_the_new_one() {
    let cluster = Cluster::start(ClusterOptions::default()).await.unwrap();
    let (name, slot) = name_at(&cluster, 0).await;
    let store = RedisStore::connect(&cluster.url()).await.unwrap();
    cluster.move_slot(slot, 0, 1, &[], async |_| {}).await;
    let mut wakeups = store.subscribe(&[key(&name)]).await.unwrap();
    is_woken_by(&mut wakeups, &name, &cluster.nodes[1]).await;
}

#[tokio::test]
async fn waiters_are_moved_repeatedly_until_the_new_node_is_reachable() {
    let cluster = Cluster::start(ClusterOptions::default()).await.unwrap();
    let proxies = cluster.behind_proxies().await;
    let (name, slot) = name_at(&cluster, 0).await;
    let url = format!("redis+cluster://{}/", proxies[0].address());
    let store = RedisStore::connect(&url).await.unwrap();
    let mut wakeups = store.subscribe(&[key(&name)]).await.unwrap();
    proxies[1].set(Fault::CutBefore);
    let before = proxies[1].exchanges();
    cluster.move_slot(slot, 0, 1, &[], async |_| {}).await;
    // More exchanges than one try and one topology request.
    until(async || proxies[1].exchanges() >= before + 8).await;
    proxies[1].set(Fault::None);
    is_woken_by(&mut wakeups, &name, &cluster.nodes[1]).await;
}

#[tokio::test]
async fn waiters_are_woken_by_the_new_node_once_the_nodes_agree() {
    let cluster = Cluster::start(ClusterOptions::default()).await.unwrap();
    let proxies = cluster.behind_proxies().await;
    let (name, slot) = name_at(&cluster, 0).await;
    let slot = slot.to_string();
    let url = format!("redis+cluster://{}/", proxies[0].address());
    let store = RedisStore::connect(&url).await.unwrap();
    // Each new connection counts as a hint: these are made before.
    let names = [&name, &name_at(&cluster, 1).await.0, &name_at(&cluster, 2).await.0];
    let _others = store.subscribe(&names.map(|name| key(name))).await.unwrap();
    let mut wakeups = store.subscribe(&[key(&name)]).await.unwrap();
    // Nobody sends a request, which would be redirected and so reveal the move.
    let exchanges = || proxies.iter().map(Proxy::exchanges).sum::<usize>();
    for (from, is_cut) in [(0, false), (1, true)] {
        cluster.agree_on_epoch().await;
        let (old, new) = (&cluster.nodes[from], &cluster.nodes[from + 1]);
        let ids = [old.id().await, new.id().await];
        new.ask(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &ids[0]]).await.unwrap();
        let here = ["CLUSTER", "SETSLOT", &slot, "NODE", &ids[1]];
        if is_cut {
            proxies[from].set(Fault::Refuse);
            proxies[from].cut();
        } else {
            // The others, whose view is old, answer the topology request sooner.
            proxies[from].set(Fault::Delay(Duration::from_millis(100)));
        }
        // Only the old owner of the slot knows of the move.
        old.ask(&here).await.unwrap();
        if is_cut {
            proxies[from].set(Fault::None);
        }
        let before = exchanges();
        // More exchanges than one topology request.
        until(async || exchanges() >= before + 8).await;
        // The old node, connected again before it knew of the move, has hinted at the key.
        let hinted = wakeups.next().now_or_never();
        assert!(is_cut || hinted.is_none());
        new.ask(&here).await.unwrap();
        assert_eq!(
            in_time(wakeups.next()).await,
            key(&name),
            "the first hint after it subscribed again"
        );
        is_woken_by(&mut wakeups, &name, new).await;
        proxies[from].set(Fault::None);
    }
}

#[tokio::test]
async fn a_listing_fails_while_a_lock_is_being_moved() {
    let cluster = Cluster::start(ClusterOptions::default()).await.unwrap();
    let store = RedisStore::connect(&cluster.url()).await.unwrap();
    let ((name, slot), (other, _)) = (name_at(&cluster, 0).await, name_at(&cluster, 2).await);
    for name in [&name, &other] {
        granted(store.acquire(&acquire(name, "a", Mode::Exclusive)).await);
    }
    let both = async || assert_eq!(store.list(&everything()).await.unwrap().records.len(), 2);
    let metadata = format!("lh:lock:{{{name}}}:{name}");
    for (from, to, keys) in [(0, 1, [&*name, &*metadata]), (1, 2, [&*metadata, &*name])] {
        let between = async |moved| {
            if moved == 0 {
                return both().await;
            }
            let error = store.list(&everything()).await.unwrap_err();
            let failure = (error.kind(), error.effect());
            assert_eq!(failure, (ErrorKind::Unavailable, Effect::NotApplied), "{error}");
        };
        cluster.move_slot(slot, from, to, &keys, between).await;
        both().await;
    }
}
