//! Hand-over: from the call of `release` until the next waiter has its guard.

use std::time::Duration;

use leasehold::{Locker, Result};
use leasehold_conformance::{Fault, Proxy};
use leasehold_redis::RedisStore;
use leasehold_redis::redis;
use tokio::task::JoinSet;

use super::raw::{self, Forms, Scripts};
use crate::handover;
use crate::measure::{micros, now, percentile, ratio};

/// Measures with 1, 10, 100 and 1,000 waiters on this machine, and then with 1, 10 and 100 behind a network.
pub(crate) async fn run() -> Result<()> {
    println!("## Hand-over\n");
    println!(
        "From the call of `release` to the next waiter's guard. \"one `Locker`\": waiters in line in one process; \"a \
         `Locker` each\": with a connection each, as if in processes of their own, woken by the server. A round trip is \
         half of a raw release and acquire with the same scripts, one after the other on one connection; measured \
         before and after each row. Behind a network each message to the server and from it takes {} ms longer, in a \
         proxy.\n",
        LATENCY.as_millis()
    );
    println!(
        "| waiters | line | network | round trip p50, µs | `PING` p50, µs | p50, µs | p99, µs | p50 in round trips |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for waiters in [1, 10, 100, 1_000] {
        let server = super::start().await?;
        rows(&server.url(), waiters, "none").await?;
    }
    for waiters in [1, 10, 100] {
        let server = super::start().await?;
        let address = ([127, 0, 0, 1], server.port()).into();
        let proxy = Proxy::before(address).await.map_err(super::failed)?;
        proxy.set(Fault::Delay(LATENCY));
        rows(&format!("redis://{}/", proxy.address()), waiters, "slow").await?;
    }
    println!();
    Ok(())
}

/// One way.
const LATENCY: Duration = Duration::from_millis(5);

async fn rows(url: &str, waiters: usize, network: &str) -> Result<()> {
    let one = Locker::new(RedisStore::from_url(url).await?);
    row(url, waiters, "one `Locker`", network, |_| one.clone()).await?;
    let mut many = Vec::with_capacity(waiters + 1);
    for _ in 0..=waiters {
        many.push(Locker::new(RedisStore::from_url(url).await?));
    }
    row(url, waiters, "a `Locker` each", network, |n| many[n].clone()).await
}

async fn row(
    url: &str,
    waiters: usize,
    line: &str,
    network: &str,
    locker: impl Fn(usize) -> Locker,
) -> Result<()> {
    let count = if waiters > 100 || network == "slow" { 300 } else { 1_000 };
    let mut trips = Trips::default();
    trips.measure(url).await?;
    let mut handovers = handover::measure(waiters, count, waiters.min(100), locker).await?;
    trips.measure(url).await?;
    let trip = percentile(&mut trips.scripts, 50);
    let p50 = percentile(&mut handovers, 50);
    println!(
        "| {waiters} | {line} | {network} | {} | {} | {} | {} | {:.2} |",
        micros(trip),
        micros(percentile(&mut trips.pings, 50)),
        micros(p50),
        micros(percentile(&mut handovers, 99)),
        ratio(p50, trip)
    );
    Ok(())
}

/// Round trips of a raw connection.
#[derive(Default)]
struct Trips {
    pings: Vec<Duration>,
    scripts: Vec<Duration>,
}

impl Trips {
    async fn measure(&mut self, url: &str) -> Result<()> {
        let mut link = raw::connect(url).await?;
        let scripts = Scripts::load(&mut link, Forms::Same).await?;
        let mut task = JoinSet::new();
        // On a worker, as what it is compared with.
        task.spawn(async move {
            let mut trips = Self::default();
            for _ in 0..300 {
                let start = now();
                raw::send(&mut link, &redis::cmd("PING")).await?;
                trips.pings.push(now() - start);
                let start = now();
                scripts.pair(&mut link, "round-trip").await?;
                trips.scripts.push((now() - start) / 2);
            }
            Result::<Self>::Ok(trips)
        });
        let measured = task.join_next().await.expect("a task was spawned");
        let trips = measured.expect("a task of the benchmark does not panic")?;
        self.pings.extend(trips.pings);
        self.scripts.extend(trips.scripts);
        Ok(())
    }
}
