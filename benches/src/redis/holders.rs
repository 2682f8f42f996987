//! How long a script about a key with many shared holders keeps the server.

use std::time::Duration;

use leasehold::store::{
    AcquireRequest, ReleaseEntry, ReleaseRequest, RenewEntry, RenewRequest, Store as _,
};
use leasehold::{Claims, Key, LeaseId, Mode, Result, Ttl};
use leasehold_redis::redis::aio::MultiplexedConnection;
use leasehold_redis::{RedisStore, redis};

use super::raw;
use crate::measure::{micros, or_few};
use crate::subjects::TTL;

/// Requests of each kind.
const COUNT: usize = or_few(50, 1);

/// Measures keys with up to as many holders as the store accepts.
pub(crate) async fn run() -> Result<()> {
    println!("## Scripts about a key with many shared holders (`holders`)\n");
    println!(
        "{COUNT} requests of each kind. The longest script, by the server's `SLOWLOG`: for so long no other client was \
         served.\n"
    );
    println!("| holders | request | scripts | longest, µs |");
    println!("|---|---|---|---|");
    let server = super::start().await?;
    let mut link = raw::connect(&server.url()).await?;
    for [name, value] in [["slowlog-log-slower-than", "0"], ["slowlog-max-len", "100000"]] {
        raw::send(&mut link, redis::cmd("CONFIG").arg("SET").arg(name).arg(value)).await?;
    }
    let store = RedisStore::connect(&server.url()).await?;
    let most = store.capabilities().max_holders.map_or(1, |most| most.get() as usize);
    for holders in [1, 100, or_few(most, 101)] {
        rows(&store, &mut link, holders).await?;
    }
    println!();
    Ok(())
}

async fn rows(store: &RedisStore, link: &mut MultiplexedConnection, holders: usize) -> Result<()> {
    let key = Key::new(&format!("shared-by-{holders}"))?;
    let lease = |n: usize| LeaseId::foreign(format!("holder-{n}").as_bytes());
    let claims = |mode| Claims::one(key.clone(), mode);
    let term = Ttl::new(20 * TTL)?;
    let acquire = async |id, mode| {
        store.acquire(&AcquireRequest::new(id, claims(mode), term)).await.map(drop)
    };
    for n in 0..holders {
        acquire(lease(n)?, Mode::SHARED).await?;
    }
    let extend = |n| Ok(RenewEntry::extend(lease(n)?, claims(Mode::SHARED), term));
    for (name, leases) in [("renew one", 1), ("renew all at once", holders)] {
        let renewals = (0..leases).map(extend).collect::<Result<Vec<_>>>()?;
        let request = RenewRequest::new(renewals);
        row(link, (holders, name), async || store.renew(&request).await.map(drop)).await?;
    }
    let replace = async || {
        store
            .release(&ReleaseRequest::new(vec![ReleaseEntry::new(lease(0)?, [key.clone()])]))
            .await?;
        acquire(lease(0)?, Mode::SHARED).await
    };
    row(link, (holders, "release one and acquire another"), replace).await?;
    let refused = async || acquire(LeaseId::mint()?, Mode::Exclusive).await;
    row(link, (holders, "refuse an exclusive lease"), refused).await
}

async fn row(
    link: &mut MultiplexedConnection,
    (holders, name): (usize, &str),
    request: impl AsyncFn() -> Result<()>,
) -> Result<()> {
    request().await?;
    raw::send(link, redis::cmd("SLOWLOG").arg("RESET")).await?;
    for _ in 0..COUNT {
        request().await?;
    }
    let logged = raw::send(link, redis::cmd("SLOWLOG").arg("GET").arg(-1)).await?;
    let logged: Vec<(u64, u64, u64, Vec<String>, String, String)> =
        redis::from_redis_value(logged).map_err(|e| raw::failed(e.into()))?;
    let scripts = logged.iter().filter(|(.., command, _, _)| command[0] == "EVALSHA");
    let took: Vec<u64> = scripts.map(|(_, _, took, ..)| *took).collect();
    let longest = Duration::from_micros(took.iter().copied().max().unwrap_or_default());
    println!("| {holders} | {name} | {} | {} |", took.len(), micros(longest));
    Ok(())
}
