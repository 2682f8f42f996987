//! Renewal of many leases by one process.

use std::time::Duration;

use leasehold::{Event, Events, Guard, Locker, Result};
use leasehold_conformance::Proxy;
use leasehold_redis::redis::aio::MultiplexedConnection;
use leasehold_redis::{RedisStore, redis};
use std::future::IntoFuture as _;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::raw;
use crate::measure::{micros, now, percentile};
use crate::subjects::TTL;

/// Leases of one `Locker`.
pub(crate) const LEASES: usize = 10_000;
/// Observed rounds.
pub(crate) const ROUNDS: usize = 3;

/// Counts what a round of renewals sends, and how it affects others.
pub(crate) async fn run() -> Result<()> {
    println!("## Renewal of {LEASES} leases\n");
    println!(
        "One `Locker`, leases of 30 s, which it renews by itself. An exchange is everything sent before an answer \
         arrives; a proxy counts them. \"others\": `PING` by another client during the round.\n"
    );
    println!(
        "| round | scripts run | exchanges | from the first to the last lease, ms | others p50, µs | others worst, µs |"
    );
    println!("|---|---|---|---|---|---|");
    let server = super::start().await?;
    let proxy =
        Proxy::before(([127, 0, 0, 1], server.port()).into()).await.map_err(super::failed)?;
    let url = format!("redis://{}/", proxy.address());
    let locks = Locker::new(RedisStore::from_url(&url).await?);
    let guards = hold(&locks).await?;
    let mut events: Vec<_> = guards.iter().map(Guard::events).collect();
    let mut link = raw::connect(&server.url()).await?;
    for round in 1..=ROUNDS {
        let exchanges = proxy.exchanges();
        let scripts = raw::calls(&mut link, &["evalsha"]).await?;
        let (pings, mut said) = mpsc::unbounded_channel();
        let mut others = JoinSet::new();
        others.spawn(ping(link.clone(), pings));
        let (first, last) = renewed(&mut events).await;
        others.shutdown().await;
        let scripts = raw::calls(&mut link, &["evalsha"]).await? - scripts;
        let mut during = Vec::new();
        while let Some((start, took)) = said.recv().await {
            if start + took >= first && start <= last {
                during.push(took);
            }
        }
        println!(
            "| {round} | {scripts} | {} | {:.0} | {} | {} |",
            proxy.exchanges() - exchanges,
            (last - first).as_secs_f64() * 1e3,
            micros(percentile(&mut during, 50)),
            micros(percentile(&mut during, 100)),
        );
    }
    for guard in &guards {
        guard.check()?;
    }
    println!();
    Ok(())
}

/// Acquires the leases, many at a time.
pub(crate) async fn hold(locks: &Locker) -> Result<Vec<Guard>> {
    let mut guards = Vec::with_capacity(LEASES);
    for hundred in 0..LEASES / 100 {
        let mut taken = JoinSet::new();
        for n in 0..100 {
            taken.spawn(locks.lock(format!("lease-{hundred}-{n}").as_str()).ttl(TTL).into_future());
        }
        guards.extend(taken.join_all().await.into_iter().collect::<Result<Vec<_>>>()?);
    }
    Ok(guards)
}

/// Waits until all are renewed; returns when the first and the last were.
pub(crate) async fn renewed(events: &mut [Events]) -> (Duration, Duration) {
    let mut first = None;
    for of_one in events {
        while !matches!(of_one.next().await, Some(Event::Renewed { .. }) | None) {}
        first.get_or_insert_with(now);
    }
    let last = now();
    (first.unwrap_or(last), last)
}

async fn ping(mut link: MultiplexedConnection, said: mpsc::UnboundedSender<(Duration, Duration)>) {
    loop {
        let start = now();
        if raw::send(&mut link, &redis::cmd("PING")).await.is_err()
            || said.send((start, now() - start)).is_err()
        {
            return;
        }
    }
}
