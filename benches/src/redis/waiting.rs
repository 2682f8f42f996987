//! What a waiter costs the server while nothing happens.

use std::time::Duration;

use leasehold::store::{Clock as _, SystemClock};
use leasehold::{Error, Locker, Result, Wait};
use leasehold_redis::RedisStore;
use leasehold_redis::redis::aio::MultiplexedConnection;
use rslock::LockManager;
use tokio::task::JoinSet;

use super::raw;
use crate::measure::{float, now};
use crate::subjects::TTL;
use leasehold_testkit::redis::Server;

/// Waiters per row.
const WAITERS: u32 = 100;
/// How long before the count begins, and how long it lasts.
const SETTLING: Duration = Duration::from_secs(10);
const COUNTED: Duration = Duration::from_secs(30);
/// What a waiter can send; no script of a refused try calls any of them.
const COMMANDS: &[&str] = &["evalsha", "eval", "set", "subscribe", "unsubscribe", "ping", "hello"];

/// Measures all sides at once, each with a server of its own.
pub(crate) async fn run() -> Result<()> {
    println!("## Commands while waiting\n");
    println!(
        "{WAITERS} waiters for a key whose holder renews a lease of 30 s. Commands of all clients, including the \
         holder's renewals; a script counts as one.\n"
    );
    println!("| | first 10 s, commands per second and waiter | after that, over 30 s |");
    println!("|---|---|---|");
    let mut sides = JoinSet::new();
    let ours = |each: bool| async move {
        let server = super::start().await?;
        let one = Locker::new(RedisStore::connect(&server.url()).await?);
        let guard = one.lock("k").ttl(TTL).await?;
        let mut waiters = JoinSet::new();
        let mut stores = Vec::new();
        for _ in 0..WAITERS {
            stores.push(RedisStore::connect(&server.url()).await?);
        }
        let counts = Counts::start(&server).await?;
        for store in stores {
            let locks = if each { Locker::new(store) } else { one.clone() };
            waiters.spawn(async move { locks.lock("k").ttl(TTL).wait(Wait::Forever).await });
        }
        let name = if each { "a `Locker` each" } else { "one `Locker`" };
        let row = counts.end(name).await?;
        waiters.shutdown().await;
        guard.ensure_held()?;
        Result::Ok(row)
    };
    sides.spawn(ours(false));
    sides.spawn(ours(true));
    sides.spawn(rslock());
    let mut rows = sides.join_all().await.into_iter().collect::<Result<Vec<_>>>()?;
    rows.sort_unstable();
    println!("{}\n", rows.join("\n"));
    Ok(())
}

async fn rslock() -> Result<String> {
    let server = super::start().await?;
    let failed = |e| Error::unexpected("rslock failed").with_source(e);
    let holder = LockManager::new(vec![server.url()]);
    let held = holder.lock("k", 4 * TTL).await.map_err(failed)?;
    let mut waiters = JoinSet::new();
    let counts = Counts::start(&server).await?;
    for _ in 0..WAITERS {
        let locks = LockManager::new(vec![server.url()]);
        waiters.spawn(async move { locks.acquire("k", TTL).await.map(|guard| guard.lock.val) });
    }
    let row = counts.end("`rslock`").await?;
    waiters.shutdown().await;
    held.release().await;
    Ok(row)
}

/// The server's count of commands, and since when.
struct Counts {
    link: MultiplexedConnection,
    before: u64,
    start: Duration,
}

impl Counts {
    async fn start(server: &Server) -> Result<Self> {
        let mut link = raw::connect(&server.url()).await?;
        let before = raw::calls(&mut link, COMMANDS).await?;
        Ok(Self { link, before, start: now() })
    }

    async fn end(mut self, name: &str) -> Result<String> {
        let clock = SystemClock::new();
        clock.sleep_until(self.start + SETTLING).await;
        let settled = raw::calls(&mut self.link, COMMANDS).await?;
        clock.sleep_until(self.start + SETTLING + COUNTED).await;
        let ended = raw::calls(&mut self.link, COMMANDS).await?;
        let each = |commands: u64, time: Duration| {
            let commands = float(usize::try_from(commands).unwrap_or(usize::MAX));
            commands / f64::from(WAITERS) / time.as_secs_f64()
        };
        let first = each(settled - self.before, SETTLING);
        let later = each(ended - settled, COUNTED);
        Ok(format!("| {name} | {first:.3} | {later:.3} |"))
    }
}
