//! What a key leaves on the server when it is released.

use leasehold::{Key, MongodbStore, Result};
use leasehold_mongodb::mongodb::bson::{Document, doc};
use leasehold_testkit::mongodb::replica_set::ReplicaSet;
use leasehold_testkit::mongodb::{DATABASE, Server};
use tokio::task::JoinSet;

use super::{failed, number, prepared};
use crate::measure::{float, or_few};
use crate::subjects::through_store;

/// Keys, each acquired and released once.
const KEYS: usize = or_few(100_000, 100);
const SHARERS: usize = or_few(64, 2);

/// Keys of a month, to which the sizes are extrapolated.
const MONTH: usize = 1_000_000;

pub(crate) async fn run() -> Result<()> {
    println!("## What {KEYS} keys leave\n");
    println!(
        "Each key was acquired and released once, on a server of its own. Its document stays until its counter is forgotten, 30 \
         days later. A key is `size:` and six digits. The last column extrapolates to {MONTH} keys.\n"
    );
    println!("| | bytes for each key | MiB for {MONTH} keys |");
    println!("|---|---|---|");
    let set = ReplicaSet::start(1).await.map_err(failed)?;
    let server = &set.nodes[0];
    let store = prepared(&set.url()).await?;
    let oplog = stats(server, "local", "oplog.rs").await?;
    let mut all = JoinSet::new();
    for sharer in 0..SHARERS {
        all.spawn(of_sharer(store.clone(), sharer));
    }
    all.join_all().await.into_iter().collect::<Result<()>>()?;
    // The files have what is in a checkpoint.
    server.command("admin", doc! { "fsync": 1 }).await.map_err(failed)?;
    let locks = stats(server, DATABASE, "locks").await?;
    let after = stats(server, "local", "oplog.rs").await?;
    let of = |document: &Document, name| number(document, &[name]);
    for (name, bytes) in [
        ("documents, not compressed", of(&locks, "size")),
        ("documents in the file", of(&locks, "storageSize")),
        ("the unique index in its file", number(&locks, &["indexSizes", "resource_1"])),
        ("all six indexes in their files", of(&locks, "totalIndexSize")),
        ("entries in the oplog, not compressed", of(&after, "size") - of(&oplog, "size")),
    ] {
        let each = float(usize::try_from(bytes).unwrap_or(usize::MAX)) / float(KEYS);
        println!("| {name} | {each:.0} | {:.0} |", each * float(MONTH) / f64::from(1 << 20));
    }
    println!();
    super::log::print(server);
    Ok(())
}

async fn of_sharer(store: MongodbStore, sharer: usize) -> Result<()> {
    for n in (sharer..KEYS).step_by(SHARERS) {
        through_store(&store, &Key::new(&format!("size:{n:06}"))?).await?;
    }
    Ok(())
}

async fn stats(server: &Server, database: &str, collection: &str) -> Result<Document> {
    server.command(database, doc! { "collStats": collection }).await.map_err(failed)
}
