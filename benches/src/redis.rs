//! Redis: the front end against raw calls of the driver and against other crates.

pub(crate) mod peers;
pub(crate) mod raw;

mod drain;
mod handover;
mod holders;
mod pairs;
pub(crate) mod renewal;
mod waiting;

use std::time::Duration;

use leasehold::{Error, Result};
use leasehold_conformance::{Fault, Proxy};

use crate::measure;
use leasehold_testkit::redis::Server;

pub(crate) use drain::child;

/// Measures these parts, or all.
pub(crate) async fn run(parts: &[&str]) -> Result<()> {
    println!("# Redis\n");
    let server = start().await?;
    measure::print_machine(&[
        ("Redis", &version(&server).await?),
        ("redis (the driver)", measure::version("redis")),
        ("rslock", measure::version("rslock")),
        ("distributed-lock-redis", measure::version("distributed-lock-redis")),
        ("fred (its driver)", measure::version("fred")),
    ]);
    let wanted = |part| parts.is_empty() || parts.contains(&part);
    if wanted("pairs") {
        pairs::run(&server).await?;
    }
    if wanted("fresh") {
        pairs::fresh(&server).await?;
    }
    if wanted("processor") {
        pairs::processor(&server).await?;
    }
    if wanted("handover") {
        handover::run().await?;
    }
    if wanted("drain") {
        drain::run().await?;
    }
    if wanted("waiting") {
        waiting::run().await?;
    }
    if wanted("renewal") {
        renewal::run().await?;
    }
    if wanted("holders") {
        holders::run().await?;
    }
    Ok(())
}

/// A server that writes nothing to disk, on a free port and in its own directory.
pub(crate) async fn start() -> Result<Server> {
    Server::start(&["--maxclients", "5000"]).await.map_err(failed)
}

/// What the slow network adds to each message.
pub(crate) const LATENCY: Duration = Duration::from_millis(5);

/// A slow network before this server.
pub(crate) async fn slow_network(server: &Server) -> Result<Proxy> {
    let network = Proxy::before(([127, 0, 0, 1], server.port()).into()).await.map_err(failed)?;
    network.set(Fault::Delay(LATENCY));
    Ok(network)
}

pub(crate) async fn version(server: &Server) -> Result<String> {
    let info = raw::info(&mut raw::connect(&server.url()).await?, "server").await?;
    Ok(raw::field(&info, "redis_version").unwrap_or("unknown").to_owned())
}

/// Converts a failure of the test tools.
pub(crate) fn failed(failure: leasehold_conformance::Failure) -> Error {
    Error::unexpected(format!("a server of the benchmark failed ({failure})"))
}
