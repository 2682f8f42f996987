//! What becomes of requests and of wake-ups when the connection, or the server, goes away.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod requests;
mod server;

use std::time::Duration;

use futures_util::FutureExt as _;
use leasehold_conformance::{Fault, Proxy};
use leasehold_core::{
    Effect, ErrorKind, Evict, Filter, LeaseReleased, LeaseRenewed, List, Mode, Store as _, Ttl,
};
use leasehold_quorum::QuorumConfig;
use leasehold_redis::redis;
use leasehold_redis::{RedisConfig, RedisStore};
use requests::{LONG, acquire, granted, key, only, refused, release, renew};
use server::{DURABLE, Server, in_time, until};

/// Of one exchange: short for whoever waits for it, long on a busy machine.
const LIMIT: Duration = Duration::from_secs(3);

/// A server, a proxy before it, and a store that goes through that.
async fn setup() -> (Server, Proxy, RedisStore) {
    let server = Server::start(DURABLE).await.unwrap();
    let proxy = Proxy::before(([127, 0, 0, 1], server.port()).into()).await.unwrap();
    let url = format!("redis://{}/", proxy.address());
    let store = RedisConfig::from_url(&url).unwrap().timeout(LIMIT).open().await.unwrap();
    (server, proxy, store)
}

#[tokio::test]
async fn each_operation_is_one_exchange() {
    let (_server, proxy, store) = setup().await;
    let ttl = Ttl::new(LONG).unwrap();
    // The scripts become known to the server.
    let round = async || {
        let mut counts = Vec::new();
        let mut before = proxy.exchanges();
        let mut count = || {
            counts.push(proxy.exchanges() - before);
            before = proxy.exchanges();
        };
        granted(store.acquire(&acquire("k", "a", Mode::Exclusive)).await);
        count();
        refused(store.acquire(&acquire("k", "b", Mode::Exclusive)).await);
        count();
        store.renew(&renew("k", "a", Mode::Exclusive, ttl)).await.unwrap();
        count();
        store.list(&List::new(Filter::default().with_key(key("k")))).await.unwrap();
        count();
        store.list(&List::new(Filter::default())).await.unwrap();
        count();
        store.release(&release("k", "a")).await.unwrap();
        count();
        store.evict(&Evict::expired(Filter::default())).await.unwrap();
        count();
        store.check().await.unwrap();
        count();
        counts
    };
    round().await;
    assert_eq!(round().await, [1; 8]);
}

/// Whichever answer decides. A grant with a token may take a second, because the nodes' clocks differ.
#[tokio::test]
async fn each_operation_of_a_quorum_is_one_exchange_with_each_node() {
    let (mut servers, mut proxies, mut stores) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..3 {
        let (server, proxy, store) = setup().await;
        servers.push(server);
        proxies.push(proxy);
        stores.push(store);
    }
    let ttl = Ttl::new(LONG).unwrap();
    for fenced in [false, true] {
        let mut config = QuorumConfig::new().node_timeout(LONG).fenced(fenced);
        for (at, store) in stores.iter().enumerate() {
            config = config.node(format!("n{at}"), store.clone());
        }
        let store = config.open().unwrap();
        let round = async || {
            let exchanges = || proxies.iter().map(Proxy::exchanges).collect::<Vec<_>>();
            let (mut counts, mut before) = (Vec::new(), exchanges());
            let mut count = async || {
                store.settled().await;
                let now = exchanges();
                counts.push(now.iter().zip(&before).map(|(now, then)| now - then).collect());
                before = now;
            };
            granted(store.acquire(&acquire("k", "a", Mode::Exclusive)).await);
            count().await;
            refused(store.acquire(&acquire("k", "b", Mode::Exclusive)).await);
            count().await;
            store.renew(&renew("k", "a", Mode::Exclusive, ttl)).await.unwrap();
            count().await;
            store.list(&List::new(Filter::default().with_key(key("k")))).await.unwrap();
            count().await;
            store.release(&release("k", "a")).await.unwrap();
            count().await;
            store.evict(&Evict::expired(Filter::default())).await.unwrap();
            count().await;
            store.check().await.unwrap();
            count().await;
            counts
        };
        // The scripts become known to the servers.
        round().await;
        let mut counts: Vec<Vec<usize>> = round().await;
        println!("fenced: {fenced}, exchanges: {counts:?}");
        if fenced {
            assert!(counts.remove(0).iter().all(|count| (1..=2).contains(count)));
        }
        assert!(counts.iter().flatten().all(|count| *count == 1), "{counts:?}");
    }
}

#[tokio::test]
async fn a_thousand_leases_are_renewed_and_released_in_one_exchange() {
    let (_server, proxy, store) = setup().await;
    let names: Vec<_> = (0..1_000).map(|at| format!("k{at}")).collect();
    for name in &names {
        granted(store.acquire(&acquire(name, name, Mode::Exclusive)).await);
    }
    let ttl = Ttl::new(LONG).unwrap();
    let renewals = names.iter().map(|n| renew(n, n, Mode::Exclusive, ttl).leases()[0].clone());
    let renewals = leasehold_core::Renew::new(renewals.collect());
    let endings = names.iter().map(|n| release(n, n).leases()[0].clone());
    let endings = leasehold_core::Release::new(endings.collect());
    store.renew(&renewals).await.unwrap();
    store.release(&release("other", "other")).await.unwrap();
    let before = proxy.exchanges();
    let renewed = store.renew(&renewals).await.unwrap().leases;
    assert!(renewed.iter().all(|renewed| matches!(renewed, LeaseRenewed::Held(_))));
    let released = store.release(&endings).await.unwrap().leases;
    assert!(released.iter().all(|released| matches!(released, LeaseReleased::Released)));
    // What is sent together may be answered in parts.
    assert!(proxy.exchanges() - before <= 8, "{}", proxy.exchanges() - before);
}

#[tokio::test]
async fn a_lost_answer_is_learnt_by_asking_again() {
    let (server, proxy, store) = setup().await;
    granted(store.acquire(&acquire("other", "a", Mode::Exclusive)).await);
    for fault in [Fault::CutAfter, Fault::SwallowAnswers] {
        let name = format!("{fault:?}");
        proxy.once(fault);
        let error = store.acquire(&acquire(&name, "a", Mode::Exclusive)).await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::Unknown));
        let minted = server.text(&["HGET", &format!("lh:lock:{{{name}}}:{name}"), "token"]).await;
        let again = granted(store.acquire(&acquire(&name, "a", Mode::Exclusive)).await);
        assert!(!again.fresh);
        assert_eq!(again.token.map(|token| token.to_string()), minted);
    }
    proxy.once(Fault::CutBefore);
    let error = store.acquire(&acquire("before", "a", Mode::Exclusive)).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::Unknown));
    assert!(granted(store.acquire(&acquire("before", "a", Mode::Exclusive)).await).fresh);
}

#[tokio::test]
async fn a_server_that_hangs_is_not_waited_for_beyond_the_limit() {
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
    assert!(matches!(only(renewed.leases), LeaseRenewed::Held(_)));
}

#[tokio::test]
async fn a_connection_that_is_dead_on_one_side_is_replaced() {
    for fault in [Fault::BlackHole, Fault::HalfOpen] {
        let (_server, proxy, store) = setup().await;
        proxy.once(fault);
        let error = store.acquire(&acquire("k", "a", Mode::Exclusive)).await.unwrap_err();
        assert_eq!(error.effect(), Effect::Unknown, "{fault:?}");
        granted(store.acquire(&acquire("k", "a", Mode::Exclusive)).await);
    }
}

#[tokio::test]
async fn a_server_that_was_killed_keeps_its_leases_if_it_is_durable() {
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
async fn a_dropped_caller_harms_no_other() {
    let (_server, proxy, store) = setup().await;
    // Its script becomes known to the server.
    granted(store.acquire(&acquire("first", "a", Mode::Exclusive)).await);
    proxy.set(Fault::Delay(Duration::from_millis(50)));
    let request = acquire("dropped", "a", Mode::Exclusive);
    let dropped = tokio::time::timeout(Duration::from_millis(20), store.acquire(&request));
    let other = acquire("other", "b", Mode::Exclusive);
    let (dropped, other) = tokio::join!(dropped, store.acquire(&other));
    assert!(dropped.is_err());
    granted(other);
    assert!(!granted(store.acquire(&request).await).fresh, "it was carried out");
}

#[tokio::test]
async fn a_connection_of_a_runtime_that_ended_is_replaced() {
    let server = Server::start(&[]).await.unwrap();
    let url = server.url();
    let store = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(RedisStore::from_url(&url)).unwrap()
    });
    let store = store.join().unwrap();
    let request = acquire("k", "a", Mode::Exclusive);
    if let Err(error) = store.acquire(&request).await {
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        granted(store.acquire(&request).await);
    }
}

#[tokio::test]
async fn a_release_wakes_who_waits_and_nobody_else() {
    let server = Server::start(&[]).await.unwrap();
    let (store, other) = (server.store().await, server.store().await);
    for name in ["k", "unheard"] {
        granted(other.acquire(&acquire(name, "a", Mode::Exclusive)).await);
    }
    let mut wakeups = store.subscribe(&[key("k"), key("k2")]).await.unwrap();
    let second = store.subscribe(&[key("k")]).await.unwrap();
    assert_eq!(
        server.number(&["SPUBLISH", "lh:wake:{k}:k", ""]).await,
        1,
        "one connection listens"
    );
    assert_eq!(wakeups.next().await, key("k"));
    other.release(&release("unheard", "a")).await.unwrap();
    other.release(&release("k", "a")).await.unwrap();
    assert_eq!(in_time(wakeups.next()).await, key("k"));
    drop(second);
    granted(other.acquire(&acquire("k", "a", Mode::Exclusive)).await);
    let filter = Filter::default().with_key(key("k"));
    let records = store.list(&List::new(filter)).await.unwrap().records;
    let targets = records.iter().map(leasehold_core::Target::of).collect();
    other.evict(&Evict::exactly(targets, None)).await.unwrap();
    assert_eq!(in_time(wakeups.next()).await, key("k"));
    drop(wakeups);
    until(async || server.hearers("lh:wake:{k}:k").await == 0).await;
}

#[tokio::test]
async fn a_hint_that_many_heard_is_put_off() {
    let server = Server::start(&[]).await.unwrap();
    let store = server.store().await;
    let mut wakeups = store.subscribe(&[key("many"), key("one")]).await.unwrap();
    let mut raw = server::connect(&server.url()).await.unwrap();
    let mut publish = async |hints: &[[&str; 2]]| {
        let mut hints_at_once = redis::pipe();
        for hint in hints {
            hints_at_once.cmd("SPUBLISH").arg(hint);
        }
        hints_at_once.exec_async(&mut raw).await.unwrap();
    };
    let (many, one) = (["lh:wake:{many}:many", "4000"], ["lh:wake:{one}:one", "1"]);
    let mut overtaken = 0;
    // For how long it is put off is chance.
    for _ in 0..10 {
        publish(&[many]).await;
        assert_eq!(in_time(wakeups.next()).await, key("many"));
        publish(&[many, one]).await;
        // Who hears of one key tries for all, and need not be told of the other.
        if in_time(wakeups.next()).await == key("one") {
            overtaken += 1;
        } else {
            assert_eq!(in_time(wakeups.next()).await, key("one"));
        }
    }
    assert!(overtaken > 0);
}

#[tokio::test]
async fn a_hint_put_off_in_a_runtime_that_ended_is_heard() {
    let server = Server::start(&[]).await.unwrap();
    let store = server.store().await;
    let mut wakeups = store.subscribe(&[key("k")]).await.unwrap();
    let mut witness = store.subscribe(&[key("last")]).await.unwrap();
    let mut raw = server::connect(&server.url()).await.unwrap();
    loop {
        redis::pipe()
            .cmd("SPUBLISH")
            .arg(&["lh:wake:{k}:k", "4000"])
            .cmd("SPUBLISH")
            .arg(&["lh:wake:{last}:last", "1"])
            .exec_async(&mut raw)
            .await
            .unwrap();
        in_time(witness.next()).await;
        let listens = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let heard = runtime.unwrap().block_on(async { wakeups.next().now_or_never() });
            (heard, wakeups)
        });
        let heard;
        (heard, wakeups) = listens.join().unwrap();
        // By chance it may be put off for no time.
        if heard.is_none() {
            break;
        }
    }
    assert_eq!(in_time(wakeups.next()).await, key("k"));
}

#[tokio::test]
async fn after_a_reconnect_everything_may_have_changed() {
    let (server, proxy, store) = setup().await;
    let other = server.store().await;
    let mut wakeups = store.subscribe(&[key("k")]).await.unwrap();
    for cut in [true, false] {
        if cut {
            proxy.cut();
        } else {
            server.restart().await.unwrap();
        }
        // Nobody asks for anything meanwhile.
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
