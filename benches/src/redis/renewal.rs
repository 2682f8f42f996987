//! Renewal of many leases by one process.

use leasehold::Result;
use leasehold_redis::redis::aio::MultiplexedConnection;
use leasehold_redis::{RedisStore, redis};

use super::raw;
use crate::measure::now;
use crate::renewal::{COLUMNS, Held, LEASES, ROUNDS, Samples};

/// Counts what a round of renewals sends, and how it affects others.
pub(crate) async fn run() -> Result<()> {
    println!("## Renewal of {LEASES} leases\n");
    println!(
        "One `Locker`, leases of 30 s, which it renews by itself. An exchange is everything sent before an answer \
         arrives; a proxy counts them. \"others\": `PING` by another client during the round.\n"
    );
    println!("| round | scripts run | {COLUMNS}");
    println!("|---|---|---|---|---|---|");
    let server = super::start().await?;
    let mut held = Held::open(([127, 0, 0, 1], server.port()).into(), async |proxy| {
        RedisStore::connect(&format!("redis://{}/", proxy.address())).await
    })
    .await?;
    let mut link = raw::connect(&server.url()).await?;
    for round in 1..=ROUNDS {
        let scripts = raw::calls(&mut link, &["evalsha"]).await?;
        let cells = held.round(|samples| ping(link.clone(), samples)).await;
        let scripts = raw::calls(&mut link, &["evalsha"]).await? - scripts;
        println!("| {round} | {scripts} | {cells}");
    }
    println!();
    held.check()
}

async fn ping(mut link: MultiplexedConnection, samples: Samples) {
    loop {
        let start = now();
        if raw::send(&mut link, &redis::cmd("PING")).await.is_err()
            || samples.send((start, now() - start)).is_err()
        {
            return;
        }
    }
}
