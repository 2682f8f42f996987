//! What a waiter costs the server while nothing happens.

use leasehold::{Error, Locker, Result, Wait};
use leasehold_core::BoxFuture;
use leasehold_redis::RedisStore;
use rslock::LockManager;
use tokio::task::JoinSet;

use super::raw;
use crate::subjects::TTL;
use crate::waiting::{self, Counts, WAITERS};
use leasehold_testkit::redis::Server;

/// What a waiter can send; no script of a refused try calls any of them.
const COMMANDS: &[&str] = &["evalsha", "eval", "set", "subscribe", "unsubscribe", "ping", "hello"];

/// Measures all sides at once, each with a server of its own.
pub(crate) async fn run() -> Result<()> {
    println!("## Commands while waiting\n");
    println!(
        "{WAITERS} waiters for a key whose holder renews a lease of 30 s. Commands of all clients, including the \
         holder's renewals; a script counts as one.\n"
    );
    waiting::head();
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
        let counts = counts(&server).await?;
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
    let counts = counts(&server).await?;
    for _ in 0..WAITERS {
        let locks = LockManager::new(vec![server.url()]);
        waiters.spawn(async move { locks.acquire("k", TTL).await.map(|guard| guard.lock.val) });
    }
    let row = counts.end("`rslock`").await?;
    waiters.shutdown().await;
    held.release().await;
    Ok(row)
}

/// Counts the commands that waiters can send.
async fn counts(
    server: &Server,
) -> Result<Counts<impl Fn() -> BoxFuture<'static, Result<u64>> + Send>> {
    let link = raw::connect(&server.url()).await?;
    let commands = move || {
        let mut link = link.clone();
        Box::pin(async move { raw::calls(&mut link, COMMANDS).await }) as BoxFuture<'static, _>
    };
    Counts::start(commands).await
}
