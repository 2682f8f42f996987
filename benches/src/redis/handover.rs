//! Hand-over: from the call of `release` until the next waiter has its guard.

use std::time::Duration;

use leasehold::{LeaseId, Locker, Result};
use leasehold_redis::RedisStore;
use leasehold_redis::redis;
use tokio::task::JoinSet;

use super::LATENCY;
use super::raw::{self, Forms, Scripts};
use crate::handover;
use crate::measure::{micros, now, or_few, percentile, ratio};

/// Where the waiters are, and how long each holds.
#[derive(Clone, Copy)]
struct Scenario {
    network: &'static str,
    hold: Duration,
}

const BUSY: Scenario = Scenario { network: "none", hold: Duration::ZERO };
const CALM: Scenario = Scenario { network: "none", hold: Duration::from_millis(5) };
const FAR: Scenario = Scenario { network: "slow", hold: Duration::from_millis(60) };

/// After this pause the machine is as idle as after a longer one.
const PAUSE: Duration = CALM.hold;

/// Measures with 1 to 1,000 waiters.
pub(crate) async fn run() -> Result<()> {
    println!("## Hand-over\n");
    println!(
        "From the call of `release` to the next waiter's guard. \"one `Locker`\": waiters queue in one process; \"a \
         `Locker` each\": a connection each, as if in separate processes, woken by the server. Each waiter holds for \
         the given time, releases, and waits again; with 0, some are not waiting yet when the lock becomes free. A \
         round trip is a raw release or acquire with the same scripts, after a pause as long as the hold (at most 5 \
         ms), because an idle machine is slower to wake; measured before and after each row. In the slow network, a \
         proxy delays each message to and from the server by {} ms.\n",
        LATENCY.as_millis()
    );
    println!(
        "| waiters | queue | network | hold, ms | round trip p50, µs | `PING` p50, µs | p50, µs | p99, µs | p50 in \
         round trips |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for waiters in [1, 10, or_few(100, 11), or_few(1_000, 12)] {
        let server = super::start().await?;
        rows(&server.url(), waiters, &[BUSY, CALM]).await?;
    }
    for waiters in [1, 10, 100] {
        let server = super::start().await?;
        let network = super::slow_network(&server).await?;
        rows(&format!("redis://{}/", network.address()), waiters, &[FAR]).await?;
    }
    println!();
    Ok(())
}

async fn rows(url: &str, waiters: usize, places: &[Scenario]) -> Result<()> {
    let one = Locker::new(RedisStore::connect(url).await?);
    let mut many = Vec::with_capacity(waiters + 1);
    for _ in 0..=waiters {
        many.push(Locker::new(RedisStore::connect(url).await?));
    }
    for place in places {
        row(url, waiters, "one `Locker`", *place, |_| one.clone()).await?;
        row(url, waiters, "a `Locker` each", *place, |n| many[n].clone()).await?;
    }
    Ok(())
}

async fn row(
    url: &str,
    waiters: usize,
    line: &str,
    place: Scenario,
    locker: impl Fn(usize) -> Locker,
) -> Result<()> {
    let Scenario { network, hold } = place;
    let count = or_few(if hold.is_zero() { 1_000 } else { 300 }, 2);
    let mut trips = Trips::default();
    trips.measure(url, hold.min(PAUSE)).await?;
    let mut handovers = handover::measure(waiters, count, waiters.min(100), hold, locker).await?;
    trips.measure(url, hold.min(PAUSE)).await?;
    let trip = percentile(&mut trips.scripts, 50);
    let p50 = percentile(&mut handovers, 50);
    println!(
        "| {waiters} | {line} | {network} | {} | {} | {} | {} | {} | {:.2} |",
        hold.as_millis(),
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
    /// With such a pause before each.
    async fn measure(&mut self, url: &str, pause: Duration) -> Result<()> {
        let mut link = raw::connect(url).await?;
        let scripts = Scripts::load(&mut link, Forms::Same).await?;
        let mut task = JoinSet::new();
        // On a worker, like what it is compared with.
        task.spawn(async move {
            let mut trips = Self::default();
            let timed = async |link: &mut _, command| {
                if !pause.is_zero() {
                    tokio::time::sleep(pause).await;
                }
                let start = now();
                raw::send(link, &command).await?;
                Result::<Duration>::Ok(now() - start)
            };
            for _ in 0..or_few(100, 2) {
                trips.pings.push(timed(&mut link, redis::cmd("PING")).await?);
                let id = LeaseId::mint()?.to_string();
                for command in [scripts.acquire(KEY, &id), scripts.release(KEY, &id)] {
                    trips.scripts.push(timed(&mut link, command).await?);
                }
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

const KEY: &str = "round-trip";
