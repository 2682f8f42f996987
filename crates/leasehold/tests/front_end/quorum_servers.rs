//! Quorums of real servers whose connections die, or that switch over.

use std::time::Duration;

use futures_util::future::join_all;
use leasehold::store::{Clock as _, SystemClock};
use leasehold::{Event, Guard, Locker};
use leasehold_conformance::{Fault, Proxy};
use leasehold_testkit::postgres;
use leasehold_testkit::redis::{DURABLE, Server};
use leasehold_testkit::sql::SqlTestServer as _;
use leasehold_testkit::{SECOND, in_time, until};

fn quorum(nodes: &[String]) -> String {
    let encoded = |url: &String| url.replace('?', "%3F").replace('&', "%26").replace('=', "%3D");
    format!("quorum:?node={}", nodes.iter().map(encoded).collect::<Vec<_>>().join("&node="))
}

/// Waits until it was renewed so often. On a busy machine a renewal may fail meanwhile, which is no loss.
async fn renewed(guard: &Guard, times: usize) {
    let mut events = guard.events();
    let mut count = 0;
    while count < times {
        match in_time(events.next()).await {
            Some(Event::Renewed { .. }) => count += 1,
            Some(Event::Failed(_)) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn short_leases_outlive_dead_connections_to_a_minority() {
    let (mut servers, mut proxies, mut nodes) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..5 {
        let server = Server::start(DURABLE).await.unwrap();
        let proxy = Proxy::before(([127, 0, 0, 1], server.port()).into()).await.unwrap();
        nodes.push(format!("redis://{}/?durable=1&timeout=60s", proxy.address()));
        servers.push(server);
        proxies.push(proxy);
    }
    let locks = Locker::connect(&quorum(&nodes)).await.unwrap();
    let (guard, clock) = (locks.lock("k").ttl(4 * SECOND).await.unwrap(), SystemClock::new());
    for proxy in &proxies[..2] {
        proxy.set_present(Fault::BlackHole);
        let before = clock.now();
        locks.lock("other").await.unwrap().release().await.unwrap();
        let took = clock.now() - before;
        assert!(took < 4 * SECOND, "{took:?}");
        renewed(&guard, 2).await;
    }
    guard.release().await.unwrap();
}

/// A standby that lags would be refused; this one has everything.
#[tokio::test]
async fn a_node_that_switches_over_costs_nobody_a_lease_and_takes_part_again() {
    let old = postgres::Server::start(&[]).await.unwrap();
    Locker::connect_unchecked(&old.url()).await.unwrap().prepare().await.unwrap();
    let address = Proxy::before(([127, 0, 0, 1], old.port()).into()).await.unwrap();
    let redis = Server::start(DURABLE).await.unwrap();
    let third = Server::start(DURABLE).await.unwrap();
    let nodes = [postgres::url(address.address().port()), redis.store_url(), third.store_url()];
    let (locks, others) = (
        Locker::connect(&quorum(&nodes)).await.unwrap(),
        Locker::connect(&quorum(&nodes)).await.unwrap(),
    );
    let guard = locks.lock("k").ttl(15 * SECOND).await.unwrap();
    let new = old.standby().await.unwrap();
    new.has_all_of(&old).await;
    old.demote().await;
    new.promote().await;
    address.lead_to(([127, 0, 0, 1], new.port()).into());
    let takes_part =
        async || Locker::connect_unchecked(&new.url()).await.unwrap().is_held("k").await.unwrap();
    let free = async |locks: &Locker| locks.try_lock("free").await.is_ok_and(|it| it.is_some());
    until(async || guard.renew().await.is_ok() && takes_part().await).await;
    // The majority needs the new primary from now on, within 5 s of its accepting writes.
    redis.kill();
    let works = async || {
        join_all([&locks, &others].map(async |locks| until(async || free(locks).await).await)).await
    };
    tokio::time::timeout(Duration::from_secs(5), works()).await.expect("both work by now");
    until(async || guard.renew().await.is_ok()).await;
    assert!(others.try_lock("k").await.unwrap().is_none());
    guard.release().await.unwrap();
}
