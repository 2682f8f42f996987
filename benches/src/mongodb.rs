//! MongoDB: the store and the front end against plain updates by the driver and against mongo-lock's queries.

mod holders;
mod keys;
mod log;
mod pairs;
mod raw;
mod refusal;
mod renewal;
mod size;
mod stall;
mod waiting;

use std::sync::Arc;

use leasehold::store::Store as _;
use leasehold::{Error, MongodbStore, Result};
use leasehold_mongodb::mongodb::bson::{Bson, Document, doc};
use leasehold_testkit::mongodb::Server;
use leasehold_testkit::mongodb::replica_set::ReplicaSet;

pub(crate) use stall::child;

use crate::sides::Side;
use crate::subjects::{self, Keys};
use crate::{handover, measure, processor};

/// How many tasks share the work.
const TASKS: [usize; 3] = [1, 16, 64];

/// Pairs whose processor time is measured.
const PROCESSOR_PAIRS: usize = 3_200;

/// As many connections as the store has at most.
const POOL: u32 = 64;

/// Measures these parts, or all.
pub(crate) async fn run(parts: &[&str]) -> Result<()> {
    println!("# MongoDB\n");
    // Of one server: each commit waits for the journal.
    let set = ReplicaSet::start(1).await.map_err(failed)?;
    let build = set.nodes[0].command("admin", doc! { "buildInfo": 1 }).await.map_err(failed)?;
    measure::print_machine(&[
        ("MongoDB", build.get_str("version").unwrap_or("unknown")),
        ("mongodb (the driver)", measure::version("mongodb")),
    ]);
    let url = set.url();
    let wanted = |part| parts.is_empty() || parts.contains(&part);
    if wanted("pairs") || wanted("processor") {
        let sides = sides(&url).await?;
        if wanted("pairs") {
            pairs::run("a replica set of one", &sides).await?;
        }
        if wanted("processor") {
            processor::run(&set.nodes[0], PROCESSOR_PAIRS, &TASKS, &sides).await?;
        }
    }
    if wanted("fresh") {
        pairs::fresh(&sides_with(&url, Keys::Fresh).await?).await?;
    }
    if wanted("standalone") {
        let server = Server::start(&[]).await.map_err(failed)?;
        pairs::run("a server alone", &sides(&server.url()).await?).await?;
    }
    if wanted("three") {
        let three = ReplicaSet::start(3).await.map_err(failed)?;
        pairs::run("a replica set of three", &sides(&three.url()).await?).await?;
    }
    if wanted("refusal") {
        refusal::run(&set).await?;
    }
    if wanted("handover") {
        let open = async |connections| prepared(&format!("{url}&maxPoolSize={connections}")).await;
        handover::of_server(open).await?;
    }
    if wanted("waiting") {
        waiting::run().await?;
    }
    if wanted("renewal") {
        renewal::run(&set).await?;
    }
    if wanted("keys") {
        keys::run(&set).await?;
    }
    if wanted("stall") {
        stall::run().await?;
    }
    if wanted("holders") {
        holders::run(&set).await?;
    }
    if wanted("size") {
        size::run().await?;
    }
    log::print(&set.nodes[0]);
    Ok(())
}

/// Plain updates, the store, a `Locker`, and mongo-lock's queries.
async fn sides(url: &str) -> Result<Vec<Side>> {
    let mut sides = sides_with(url, Keys::Known).await?;
    sides.push(raw::mongo_lock(url).await?);
    Ok(sides)
}

/// Plain updates, the store and a `Locker`.
async fn sides_with(url: &str, keys: Keys) -> Result<Vec<Side>> {
    let store = Arc::new(prepared(url).await?);
    Ok([vec![raw::plain(url, keys).await?], subjects::sides(&store, keys)].concat())
}

/// A store with its collection.
async fn prepared(url: &str) -> Result<MongodbStore> {
    let store = MongodbStore::connect(url).await?;
    store.prepare().await?;
    Ok(store)
}

/// A number in what a server says about itself; 0 if it is not there.
async fn status(server: &Server, path: &[&str]) -> Result<u64> {
    let status = server.command("admin", doc! { "serverStatus": 1 }).await.map_err(failed)?;
    Ok(number(&status, path))
}

fn number(document: &Document, path: &[&str]) -> u64 {
    let Some((last, before)) = path.split_last() else { return 0 };
    let mut at = document;
    for name in before {
        let Ok(next) = at.get_document(name) else { return 0 };
        at = next;
    }
    let number = match at.get(last) {
        Some(Bson::Int64(number)) => u64::try_from(*number).ok(),
        Some(Bson::Int32(number)) => u64::try_from(*number).ok(),
        _ => None,
    };
    number.unwrap_or(0)
}

/// Converts a failure of the test tools.
fn failed(failure: leasehold_conformance::Failure) -> Error {
    Error::unexpected(format!("a server of the benchmark failed ({failure})"))
}

/// Converts a failure of the driver.
fn refused(error: leasehold_mongodb::mongodb::error::Error) -> Error {
    Error::unexpected("a plain command failed").with_source(error)
}
