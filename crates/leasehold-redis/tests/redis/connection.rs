//! What happens to requests and wake-ups when the connection, or the server, goes away.

use std::time::Duration;

use futures_util::FutureExt as _;
use leasehold_conformance::{Fault, Proxy};
use leasehold_core::{
    Effect, ErrorKind, EvictRequest, Filter, ListRequest, Mode, ReleaseOutcome, RenewOutcome,
    Store as _, Ttl,
};
use leasehold_redis::redis;
use leasehold_redis::{RedisConfig, RedisStore};
use leasehold_testkit::redis::cluster::{Cluster, ClusterOptions};
use leasehold_testkit::redis::{DURABLE, Server};
use leasehold_testkit::requests::{acquire, granted, key, only, refused, release, renew};
use leasehold_testkit::{LONG, in_time, until};

/// The limit of one exchange: short for a waiting test, long for a busy machine.
const LIMIT: Duration = Duration::from_secs(3);

/// A server, a proxy before it, and a store that uses the proxy.
async fn setup() -> (Server, Proxy, RedisStore) {
    let server = Server::start(DURABLE).await.unwrap();
    let proxy = Proxy::before(([127, 0, 0, 1], server.port()).into()).await.unwrap();
    let url = format!("redis://{}/", proxy.address());
    let store = RedisConfig::parse(&url).unwrap().timeout(LIMIT).connect().await.unwrap();
    (server, proxy, store)
}

#[tokio::test]
async fn a_server_that_hangs_is_not_awaited_beyond_the_limit() {
    let (server, _proxy, store) = setup().await;
    granted(store.acquire(&acquire("k", "a", Mode::Exclusive)).await);
    server.pause();
    let ttl = Ttl::new(LONG).unwrap();
    let request = renew("k", "a", Mode::Exclusive, ttl);
    let error = in_time(store.renew(&request)).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::Unknown));
    assert!(error.to_string().contains("within 3s"), "{error}");
    server.resume();
    let renewed = store.renew(&renew("k", "a", Mode::Exclusive, ttl)).await.unwrap();
    assert!(matches!(only(renewed.leases), RenewOutcome::Held(_)));
}

/// An acquire is late on a connection that stalls: reads go past it on a new one, and so do later requests about other
/// leases, but not its own release.
#[tokio::test]
async fn an_acquire_that_is_late_is_not_passed_by_its_release() {
    let (_server, proxy, store) = setup().await;
    // The server knows the scripts from then on.
    granted(store.acquire(&acquire("warm", "w", Mode::Exclusive)).await);
    store.release(&release("warm", "w")).await.unwrap();
    proxy.once(Fault::Delay(LIMIT / 3));
    let (asks, ends) = (acquire("k", "a", Mode::Exclusive), release("k", "a"));
    let mut late = store.acquire(&asks).boxed();
    assert!((&mut late).now_or_never().is_none());
    let looks = ListRequest::new(Filter::default().with_key(key("warm")));
    in_time(store.list(&looks)).await.unwrap();
    let mut released = store.release(&ends).boxed();
    assert!((&mut released).now_or_never().is_none());
    granted(in_time(store.acquire(&acquire("other", "b", Mode::Exclusive))).await);
    assert!((&mut late).now_or_never().is_none(), "they waited for it");
    granted(in_time(late).await);
    let outcome = only(in_time(released).await.unwrap().leases);
    assert!(matches!(outcome, ReleaseOutcome::Released), "{outcome:?}");
    granted(in_time(store.acquire(&acquire("k", "c", Mode::Exclusive))).await);
}

/// Nobody waits for the answer that would show that the connection stalls.
#[tokio::test]
async fn a_dead_connection_is_noticed_though_every_caller_gives_up_at_once() {
    let (_server, proxy, _) = setup().await;
    let url = format!("redis://{}/?timeout=3s", proxy.address());
    let store = RedisStore::connect(&url).await.unwrap();
    let at_once = Duration::from_millis(20);
    let (asks, ends) = (acquire("l", "a", Mode::Exclusive), release("l", "a"));
    let looks = ListRequest::new(Filter::default().with_key(key("l")));
    granted(store.acquire(&acquire("k", "a", Mode::Exclusive)).await);
    proxy.set_present(Fault::BlackHole);
    let renewal = renew("k", "a", Mode::Exclusive, Ttl::new(LONG).unwrap());
    until(async || {
        let answer = tokio::time::timeout(at_once, store.renew(&renewal)).await;
        answer.is_ok_and(|renewed| matches!(only(renewed.unwrap().leases), RenewOutcome::Held(_)))
    })
    .await;
    // A release waits for the answer to the acquire, for which nobody waits.
    proxy.once(Fault::Delay(Duration::from_millis(1_500)));
    assert!(tokio::time::timeout(at_once, store.acquire(&asks)).await.is_err());
    assert!(in_time(store.list(&looks)).await.unwrap().records.is_empty());
    let outcome = only(in_time(store.release(&ends)).await.unwrap().leases);
    assert!(matches!(outcome, ReleaseOutcome::Released), "{outcome:?}");
}

#[tokio::test]
async fn a_killed_server_keeps_its_leases_if_it_is_durable() {
    let (server, _proxy, store) = setup().await;
    let before = granted(store.acquire(&acquire("k", "a", Mode::Exclusive)).await);
    server.kill();
    let error = store.acquire(&acquire("other", "a", Mode::Exclusive)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    server.restart().await.unwrap();
    let after = granted(store.acquire(&acquire("k", "a", Mode::Exclusive)).await);
    assert_eq!((after.token, after.fresh), (before.token, false));
    refused(store.acquire(&acquire("k", "b", Mode::Exclusive)).await);
}

#[tokio::test]
async fn a_connection_of_a_runtime_that_ended_is_replaced() {
    let server = Server::start(&[]).await.unwrap();
    let url = server.url();
    let store = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(RedisStore::connect(&url)).unwrap()
    });
    let store = store.join().unwrap();
    let request = acquire("k", "a", Mode::Exclusive);
    if let Err(error) = store.acquire(&request).await {
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        granted(store.acquire(&request).await);
    }
}

#[tokio::test]
async fn a_release_wakes_the_waiters_of_its_key_only() {
    let server = Server::start(&[]).await.unwrap();
    let (store, other) = (server.store().await, server.store().await);
    for name in ["k", "unwatched"] {
        granted(other.acquire(&acquire(name, "a", Mode::Exclusive)).await);
    }
    let mut wakeups = store.subscribe(&[key("k"), key("k2")]).await.unwrap();
    let second = store.subscribe(&[key("k")]).await.unwrap();
    assert_eq!(
        server.number(&["SPUBLISH", "lh:lock:{k}:k", ""]).await,
        1,
        "one connection listens"
    );
    assert_eq!(wakeups.next().await, key("k"));
    other.release(&release("unwatched", "a")).await.unwrap();
    other.release(&release("k", "a")).await.unwrap();
    assert_eq!(in_time(wakeups.next()).await, key("k"));
    drop(second);
    granted(other.acquire(&acquire("k", "a", Mode::Exclusive)).await);
    let filter = Filter::default().with_key(key("k"));
    let records = store.list(&ListRequest::new(filter)).await.unwrap().records;
    let targets = records.iter().map(leasehold_core::EvictTarget::of).collect();
    other.evict(&EvictRequest::exactly(targets, None)).await.unwrap();
    assert_eq!(in_time(wakeups.next()).await, key("k"));
    drop(wakeups);
    until(async || server.subscribers("lh:lock:{k}:k").await == 0).await;
}

#[tokio::test]
async fn a_hint_for_many_connections_is_put_off() {
    let server = Server::start(&[]).await.unwrap();
    let store = server.store().await;
    let mut wakeups = store.subscribe(&[key("many"), key("one")]).await.unwrap();
    let mut raw = leasehold_testkit::redis::connect(&server.url()).await.unwrap();
    let mut publish = async |hints: &[[&str; 2]]| {
        let mut hints_at_once = redis::pipe();
        for hint in hints {
            hints_at_once.cmd("SPUBLISH").arg(hint);
        }
        hints_at_once.exec_async(&mut raw).await.unwrap();
    };
    let (many, one) = (["lh:lock:{many}:many", "4000"], ["lh:lock:{one}:one", "1"]);
    let mut overtaken = 0;
    // The delay is random.
    for _ in 0..10 {
        publish(&[many]).await;
        assert_eq!(in_time(wakeups.next()).await, key("many"));
        publish(&[many, one]).await;
        // A waiter that is woken for one key tries for all, and needs no hint for the other.
        if in_time(wakeups.next()).await == key("one") {
            overtaken += 1;
        } else {
            assert_eq!(in_time(wakeups.next()).await, key("one"));
        }
    }
    assert!(overtaken > 0);
}

#[tokio::test]
async fn a_hint_put_off_in_a_runtime_that_ended_is_delivered() {
    let server = Server::start(&[]).await.unwrap();
    let store = server.store().await;
    let mut wakeups = store.subscribe(&[key("k")]).await.unwrap();
    let mut witness = store.subscribe(&[key("last")]).await.unwrap();
    let mut raw = leasehold_testkit::redis::connect(&server.url()).await.unwrap();
    loop {
        redis::pipe()
            .cmd("SPUBLISH")
            .arg(&["lh:lock:{k}:k", "4000"])
            .cmd("SPUBLISH")
            .arg(&["lh:lock:{last}:last", "1"])
            .exec_async(&mut raw)
            .await
            .unwrap();
        in_time(witness.next()).await;
        let listens = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let hint = runtime.unwrap().block_on(async { wakeups.next().now_or_never() });
            (hint, wakeups)
        });
        let hint;
        (hint, wakeups) = listens.join().unwrap();
        // The random delay may be zero.
        if hint.is_none() {
            break;
        }
    }
    assert_eq!(in_time(wakeups.next()).await, key("k"));
}

#[tokio::test]
async fn a_reconnect_hints_at_every_key() {
    let (server, proxy, store) = setup().await;
    let other = server.store().await;
    let mut wakeups = store.subscribe(&[key("k")]).await.unwrap();
    for cut in [true, false] {
        if cut {
            proxy.cut();
        } else {
            server.restart().await.unwrap();
        }
        // No request is sent meanwhile.
        assert_eq!(in_time(wakeups.next()).await, key("k"));
        let acquired = other.acquire(&acquire("k", "a", Mode::Exclusive)).await;
        let acquired = match acquired {
            Ok(acquired) => Ok(acquired),
            Err(_) => other.acquire(&acquire("k", "a", Mode::Exclusive)).await,
        };
        granted(acquired);
        other.release(&release("k", "a")).await.unwrap();
        assert_eq!(in_time(wakeups.next()).await, key("k"));
    }
}

/// A waiter sends nothing, and a connection that is dead on one side brings no message.
#[tokio::test]
async fn a_waiter_notices_a_connection_that_died_silently() {
    let server = Server::start(&[]).await.unwrap();
    let proxy = Proxy::before(([127, 0, 0, 1], server.port()).into()).await.unwrap();
    let cluster = Cluster::start(ClusterOptions::default()).await.unwrap();
    let proxies = cluster.behind_proxies().await;
    let owner = Cluster::first_owner(
        cluster.nodes[0].number(&["CLUSTER", "KEYSLOT", "k"]).await.try_into().unwrap(),
    );
    let one = (format!("redis://{}/", proxy.address()), &server, &proxy);
    let seed = proxies[0].address();
    let many = (format!("redis+cluster://{seed}/"), &cluster.nodes[owner], &proxies[owner]);
    for (url, server, proxy) in [one, many] {
        let config = RedisConfig::parse(&url).unwrap().timeout(LIMIT);
        let store = config.connect().await.unwrap();
        let mut wakeups = store.subscribe(&[key("k")]).await.unwrap();
        assert_eq!(server.subscribers("lh:lock:{k}:k").await, 1);
        proxy.set(Fault::BlackHole);
        until(async || server.subscribers("lh:lock:{k}:k").await == 0).await;
        proxy.set(Fault::None);
        // That it was connected again, and that the key may be free.
        assert_eq!(in_time(wakeups.next()).await, key("k"), "{url}");
    }
}
