//! The front end on a real Redis server.

use std::future::IntoFuture as _;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use leasehold::store::{Clock as _, SystemClock};
use leasehold::{ErrorKind, Guard, Level, Locker, LostReason, Result, Wait, WaitCause};
use leasehold_conformance::{Fault, Proxy, ServerClock};
use leasehold_redis::{RedisStore, redis};
use leasehold_testkit::redis::cluster::{Cluster, ClusterOptions};
use leasehold_testkit::redis::{DURABLE, Server};
use leasehold_testkit::{LONG, SECOND, in_time, until};

use crate::stalls;

/// A server, a proxy before it, and a `Locker` that uses the proxy.
async fn setup(options: &str) -> (Server, Proxy, Locker) {
    let server = Server::start(DURABLE).await.unwrap();
    let proxy = Proxy::before(([127, 0, 0, 1], server.port()).into()).await.unwrap();
    let url = format!("redis://{}/?durable=1&{options}", proxy.address());
    let locks = Locker::connect(&url).await.unwrap();
    (server, proxy, locks)
}

#[tokio::test]
async fn acquire_renew_and_release_are_one_exchange_each() {
    // What is late on a busy machine would be sent again after a tenth of it.
    let (_server, proxy, locks) = setup("timeout=30s").await;
    let round = async || {
        let mut before = proxy.exchanges();
        let mut counts = Vec::new();
        let mut count = || {
            counts.push(proxy.exchanges() - before);
            before = proxy.exchanges();
        };
        let guard = locks.lock("k").await.unwrap();
        count();
        guard.renew().await.unwrap();
        count();
        guard.release().await.unwrap();
        count();
        counts
    };
    round().await;
    assert_eq!(round().await, [1, 1, 1]);
}

#[tokio::test]
async fn a_lost_answer_costs_no_grant() {
    let (server, proxy, locks) = setup("timeout=3s").await;
    let first = locks.lock("k").await.unwrap();
    let token = first.token();
    first.release().await.unwrap();
    for fault in [Fault::CutAfter, Fault::SwallowAnswers] {
        proxy.once(fault);
        let guard = locks.lock("k").wait(Wait::UpTo(LONG)).await.unwrap();
        assert!(guard.token() > token);
        let id = guard.lease().id.to_string();
        assert_eq!(server.text(&["GET", "k"]).await, Some(id));
        guard.release().await.unwrap();
    }
    assert_eq!(server.number(&["EXISTS", "k"]).await, 0);
}

#[tokio::test]
async fn short_leases_outlive_dead_connections() {
    let (_server, proxy, _) = setup("").await;
    let url = format!("redis://{}/?timeout=60s", proxy.address());
    stalls::leases_outlive_dead_connections(&url, &proxy, 2 * SECOND).await;
}

#[tokio::test]
async fn a_server_that_hangs_costs_a_wait_its_time_and_a_try_the_stores_limit() {
    let (server, _proxy, locks) = setup("timeout=3s").await;
    locks.lock("k").await.unwrap().release().await.unwrap();
    server.pause();
    let clock = SystemClock::new();
    let before = clock.now();
    let error = locks.try_lock("k").await.unwrap_err();
    let took = clock.now() - before;
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(took >= Duration::from_millis(2_900) && took < 9 * SECOND, "{took:?}: {error}");
    let first = locks.lock("k").wait(Wait::Forever).into_future();
    let mut first = Box::pin(first);
    assert!((&mut first).now_or_never().is_none());
    let before = clock.now();
    let error = locks.lock("k").wait(Duration::from_millis(300)).await.unwrap_err();
    let took = clock.now() - before;
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert!(took >= Duration::from_millis(300) && took < 3 * SECOND, "{took:?}: {error}");
    server.resume();
    first.await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_release_hands_over_to_another_process_at_once() {
    let (server, _proxy, locks) = setup("").await;
    let others = Locker::connect(&server.url()).await.unwrap();
    // A term and a poll that are longer than the test.
    let guard = others.lock("k").ttl(Duration::from_secs(3_600)).await.unwrap();
    let waits = locks.lock("k").wait(Wait::UpTo(LONG)).into_future();
    let releases = async {
        until(async || server.subscribers("lh:lock:{k}:k").await > 0).await;
        guard.release().await.unwrap();
        // Before any poll.
        tokio::time::sleep(Duration::from_secs(5)).await;
    };
    tokio::select! {
        guard = waits => guard.unwrap().release().await.unwrap(),
        () = releases => panic!("nobody was woken"),
    };
}

/// Longer than any test.
const HOUR: Duration = Duration::from_secs(3_600);

/// Waits for the key that the test holds.
async fn wait(locks: &Locker) -> Result<Guard> {
    locks.lock("k").ttl(HOUR).wait(Wait::Forever).await
}

/// A holder and a queue of this many, the first of which waits for a wake-up.
async fn hold_and_wait<'a>(
    server: &Server,
    locks: &'a Locker,
    waiters: usize,
) -> (Guard, Vec<BoxFuture<'a, Result<Guard>>>) {
    // Loads the scripts into the server.
    locks.lock("k").await.unwrap().release().await.unwrap();
    let before = server.calls("evalsha").await;
    let holder = locks.lock("k").ttl(HOUR).await.unwrap();
    let mut line: Vec<_> = (0..waiters).map(|_| wait(locks).boxed()).collect();
    assert!(line.iter_mut().all(|waits| waits.now_or_never().is_none()));
    let tried = async {
        // The holder, and the first in the queue before and after it subscribes.
        until(async || server.calls("evalsha").await == before + 3).await;
        // Answers come in order.
        locks.status("k").await.unwrap();
    };
    tokio::select! {
        _ = &mut line[0] => panic!("it is held"),
        () = tried => {}
    }
    assert!((&mut line[0]).now_or_never().is_none());
    (holder, line)
}

#[tokio::test]
async fn the_next_in_the_queue_tries_once() {
    let (server, _proxy, locks) = setup("").await;
    let (mut holder, line) = hold_and_wait(&server, &locks, 3).await;
    for mut waits in line {
        let before = server.calls("evalsha").await;
        tokio::select! {
            biased;
            _ = &mut waits => panic!("it is held"),
            _ = server.calls("evalsha") => {}
        }
        let mut release = Box::pin(holder.release());
        assert!((&mut release).now_or_never().is_none());
        holder = in_time(waits).await.unwrap();
        release.await.unwrap();
        assert_eq!(server.calls("evalsha").await, before + 2, "a release and a try");
    }
    holder.release().await.unwrap();
}

#[tokio::test]
async fn the_next_in_the_queue_tries_before_the_release_is_answered() {
    let (server, proxy, locks) = setup("").await;
    let (holder, mut line) = hold_and_wait(&server, &locks, 1).await;
    let held = server.text(&["GET", "k"]).await;
    proxy.set(Fault::SwallowAnswers);
    let granted = async || {
        let now = server.text(&["GET", "k"]).await;
        now.is_some() && now != held
    };
    tokio::select! {
        _ = &mut line[0] => panic!("its answer was swallowed"),
        _ = holder.release() => panic!("its answer was swallowed"),
        () = until(granted) => {}
    }
}

#[tokio::test]
async fn a_wait_for_a_foreign_lock_follows_its_remaining_term() {
    let (server, _proxy, locks) = setup("").await;
    server.ask(&["SET", "k", "theirs", "PX", "700", "NX"]).await.unwrap();
    let guard = locks.lock("k").wait(Wait::UpTo(LONG)).await.unwrap();
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_broken_lease_is_lost_at_the_next_renewal() {
    let (server, _proxy, locks) = setup("").await;
    let guard = locks.lock("k").ttl(Duration::from_secs(3)).await.unwrap();
    server.ask(&["DEL", "k"]).await.unwrap();
    assert_eq!(in_time(guard.lost()).await, LostReason::Gone);
}

#[tokio::test]
async fn semaphores_and_many_keys() {
    let (_server, _proxy, locks) = setup("prefix=app:").await;
    let held = [
        locks.lock("permit").permits(2).await.unwrap(),
        locks.lock("permit").permits(2).await.unwrap(),
    ];
    assert!(locks.lock("permit").permits(2).wait(Wait::No).await.is_err());
    assert_eq!(locks.status("permit").await.unwrap().len(), 2);
    drop(held);
    let both = locks.lock_all(["a", "b"]).await.unwrap();
    assert!(locks.lock("b").wait(Wait::No).await.is_err());
    both.release().await.unwrap();
}

#[tokio::test]
async fn a_lock_that_requires_more_than_a_forgetful_server_reaches_is_refused() {
    let server = Server::start(&[]).await.unwrap();
    let url = format!("redis://127.0.0.1:{}/", server.port());
    let locks = Locker::connect(&url).await.unwrap();
    drop(locks.lock("a").fenced().await.expect("it has tokens"));
    let error = locks.lock("b").fenced().require(Level::Fenced).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("reaches L0 best effort"), "{error}");
    assert!(error.to_string().contains("appendfsync always"), "{error}");
    assert_eq!(server.number(&["EXISTS", "b"]).await, 0);
}

#[tokio::test]
async fn a_lock_that_requires_a_level_is_granted_once_the_server_reaches_it() {
    let directory = tempfile::tempdir().unwrap();
    let clock = ServerClock::new(directory.path().join("time")).unwrap();
    let server = Server::start_on(Some(clock.clone()), DURABLE).await.unwrap();
    // Nobody has stated what an earlier process did.
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let locks = Locker::builder(store).clock(Arc::new(clock.manual())).build();
    let lock = |ttl| locks.lock("k").ttl(ttl).wait(Wait::No).require(Level::Fenced);
    let error = lock(SECOND).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("durable=1"), "{error}");
    Server::advance(&[&server], 62 * SECOND).unwrap();
    drop(lock(60 * SECOND).await.unwrap());
    let error = lock(61 * SECOND).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("L2 fenced is for terms up to 60s"), "{error}");
    assert_eq!(locks.level(), Level::Fenced);
}

/// Another library's client publishes nothing when it releases. It holds for 50 ms and tries every 100 ms, and so do we.
#[tokio::test]
async fn beside_a_foreign_client_each_gets_a_fair_share() {
    let (held, tries) = (Duration::from_millis(50), Duration::from_millis(100));
    let server = Server::start(DURABLE).await.unwrap();
    let locks = Locker::connect(&server.store_url()).await.unwrap();
    let (mut ours, mut theirs) = (0, 0);
    let we = async {
        loop {
            let guard = locks.lock("k").await.unwrap();
            ours += 1;
            tokio::time::sleep(held).await;
            guard.release().await.unwrap();
            tokio::time::sleep(tries).await;
        }
    };
    let they = async {
        let mut link = leasehold_testkit::redis::connect(&server.url()).await.unwrap();
        loop {
            let mut set = redis::cmd("SET");
            set.arg(&["k", "theirs", "PX", "10000", "NX"]);
            if link.send_packed_command(&set).await.unwrap() == redis::Value::Okay {
                theirs += 1;
                tokio::time::sleep(held).await;
                link.send_packed_command(redis::cmd("DEL").arg("k")).await.unwrap();
            }
            tokio::time::sleep(tries).await;
        }
    };
    let both = async { tokio::join!(we, they) };
    tokio::time::timeout(20 * SECOND, both).await.unwrap_err();
    println!("ours {ours}, theirs {theirs}");
    assert!(ours <= 2 * theirs && theirs <= 2 * ours, "ours {ours}, theirs {theirs}");
}

#[tokio::test]
async fn a_waiter_subscribes_once_and_then_tries_once() {
    let server = Server::start(DURABLE).await.unwrap();
    let cluster = Cluster::start(ClusterOptions::default()).await.unwrap();
    let nodes = [vec![&server], cluster.servers()];
    for (url, nodes) in [server.store_url(), cluster.url()].into_iter().zip(nodes) {
        let [holder, waiter] = [Locker::connect(&url).await, Locker::connect(&url).await];
        let _guard = holder.unwrap().lock("k").ttl(LONG).await.unwrap();
        let error = waiter.unwrap().lock("k").wait(4 * SECOND).await.unwrap_err();
        // At once, when it has subscribed, and at the end of its wait.
        assert_eq!(error.wait_report().unwrap().tries, 3, "{error}");
        let mut subscribed = 0;
        for node in nodes {
            subscribed += node.calls("ssubscribe").await;
        }
        assert_eq!(subscribed, 1, "{url}");
    }
}

#[tokio::test]
async fn one_key_of_a_cluster_needs_one_master() {
    let cluster = Cluster::start(ClusterOptions::default()).await.unwrap();
    let slot = cluster.nodes[0].number(&["CLUSTER", "KEYSLOT", "k"]).await;
    let owner = Cluster::first_owner(slot.try_into().unwrap());
    let connections = async |node: &Server| {
        let stats = node.text(&["INFO", "stats"]).await.unwrap();
        let line = stats.lines().find_map(|line| line.strip_prefix("total_connections_received:"));
        line.unwrap().parse::<u64>().unwrap()
    };
    let mut before = Vec::new();
    for node in &cluster.nodes {
        before.push(connections(node).await);
    }
    // Only the owner is asked for the slots. Of several, a busy machine may ask the next too.
    let url = format!("redis+cluster://127.0.0.1:{}", cluster.nodes[owner].port());
    let locks = Locker::connect_unchecked(&url).await.unwrap();
    locks.lock("k").await.unwrap().release().await.unwrap();
    for (at, node) in cluster.nodes.iter().enumerate() {
        // One of them is the question itself.
        let since = connections(node).await - before[at];
        assert_eq!(since, if at == owner { 3 } else { 1 }, "{at}");
    }
    // A level is that of the weakest master.
    let error = locks.lock("k").require(Level::Fenced).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    for (at, node) in cluster.nodes.iter().enumerate() {
        assert!(connections(node).await - before[at] > 2, "{at}");
    }
}

#[tokio::test]
async fn while_a_slot_moves_its_keys_are_waited_for() {
    let cluster = Cluster::start(ClusterOptions::default()).await.unwrap();
    let locks = Locker::connect(&cluster.url()).await.unwrap();
    let both = ["{t}:a", "{t}:b"];
    let all = || locks.lock_all(both);
    let slot = cluster.nodes[0].number(&["CLUSTER", "KEYSLOT", "{t}:a"]).await;
    let from = Cluster::first_owner(slot.try_into().unwrap());
    // Of leases that are over.
    let metadata = both.map(|name| format!("lh:lock:{{t}}:{name}"));
    for name in &metadata {
        cluster.nodes[from].ask(&["SET", name, "xh 1 a 1 1 0 {}", "EX", "3600"]).await.unwrap();
    }
    let names = [metadata[0].as_str(), metadata[1].as_str()];
    let tried = std::cell::Cell::new(0);
    cluster
        .move_slot(slot, from, (from + 1) % 3, &names, async |moved| {
            if moved == 1 {
                // Half is here, half there.
                let error = all().wait(SECOND).await.unwrap_err();
                let wait = error.wait_report().unwrap();
                assert!(matches!(wait.cause, WaitCause::Store(_)), "{error}");
                tried.set(wait.tries);
            }
        })
        .await;
    assert!((3..200).contains(&tried.get()), "{} tries in a second", tried.get());
    all().await.unwrap().release().await.unwrap();
}
