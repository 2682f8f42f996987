//! Servers that were masters and are replicas now.

use std::time::Duration;

use futures_util::future::join_all;
use leasehold_conformance::Proxy;
use leasehold_core::{
    Effect, ErrorKind, EvictRequest, EvictTarget, Filter, ListRequest, Mode, Result, Store as _,
    Ttl,
};
use leasehold_redis::RedisStore;
use leasehold_testkit::redis::Server;
use leasehold_testkit::requests::{acquire, granted, id, key, release, renew};
use leasehold_testkit::{LONG, in_time, until};

/// A server that a store has used, which is a replica of the other one now.
async fn demoted() -> (Server, Server, RedisStore) {
    let (old, new) = (Server::start(&[]).await.unwrap(), Server::start(&[]).await.unwrap());
    let store = old.store().await;
    granted(store.acquire(&acquire("k", "a", Mode::Exclusive)).await);
    demote(&old, &new).await;
    (old, new, store)
}

async fn demote(old: &Server, new: &Server) {
    old.ask(&["REPLICAOF", "127.0.0.1", &new.port().to_string()]).await.unwrap();
}

#[tokio::test]
async fn a_demoted_master_answers_nothing_that_it_knew_before() {
    let (_old, _new, store) = demoted().await;
    let of = |name| ListRequest::new(Filter::default().with_key(key(name)));
    let target = EvictTarget::new(key("k"), Some(id("a")));
    let renewal = renew("k", "a", Mode::Exclusive, Ttl::new(LONG).unwrap());
    let answers: [(&str, Result<()>); 8] = [
        ("acquire", store.acquire(&acquire("l", "b", Mode::Exclusive)).await.map(drop)),
        ("renew", store.renew(&renewal).await.map(drop)),
        ("release", store.release(&release("k", "a")).await.map(drop)),
        ("look up", store.list(&of("k")).await.map(drop)),
        ("look up a free key", store.list(&of("nobody's")).await.map(drop)),
        ("list", store.list(&ListRequest::new(Filter::default())).await.map(drop)),
        ("purge", store.evict(&EvictRequest::expired(Filter::default())).await.map(drop)),
        ("evict", store.evict(&EvictRequest::exactly(vec![target], None)).await.map(drop)),
    ];
    for (name, answer) in answers {
        let error = answer.expect_err(name);
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{name}: {error}");
        assert_eq!(error.effect(), Effect::NotApplied, "{name}: {error}");
        assert!(error.to_string().contains("replica"), "{name}: {error}");
    }
    let error = store.check().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}

#[tokio::test]
async fn a_demoted_master_gets_one_connection_a_second() {
    let (old, _new, store) = demoted().await;
    let connections = async || {
        let stats = old.text(&["INFO", "stats"]).await.unwrap();
        let line = "total_connections_received:";
        let count = stats.lines().find_map(|stat| stat.strip_prefix(line)).unwrap();
        count.parse::<u64>().unwrap()
    };
    let before = connections().await;
    let asks = async |n: usize| {
        let name = format!("k{n}");
        loop {
            store.acquire(&acquire(&name, "a", Mode::SHARED)).await.unwrap_err();
        }
    };
    let long = Duration::from_millis(1_500);
    tokio::time::timeout(long, join_all((0..20).map(asks))).await.unwrap_err();
    // One of this test.
    let sessions = connections().await - before - 1;
    assert!((1..=4).contains(&sessions), "{sessions} connections");
}

/// A waiter sends nothing, and a replica answers who only asks whether it is there.
#[tokio::test]
async fn a_waiter_notices_that_its_master_was_demoted() {
    let (old, new) = (Server::start(&[]).await.unwrap(), Server::start(&[]).await.unwrap());
    let address = Proxy::before(([127, 0, 0, 1], old.port()).into()).await.unwrap();
    let url = format!("redis://{}/?timeout=3s", address.address());
    let store = RedisStore::connect(&url).await.unwrap();
    let mut wakeups = store.subscribe(&[key("k")]).await.unwrap();
    until(async || old.subscribers("lh:lock:{k}:k").await == 1).await;
    demote(&old, &new).await;
    address.lead_to(([127, 0, 0, 1], new.port()).into());
    // That it was connected again, and that the key may be free.
    assert_eq!(in_time(wakeups.next()).await, key("k"));
    assert_eq!(new.subscribers("lh:lock:{k}:k").await, 1);
}
