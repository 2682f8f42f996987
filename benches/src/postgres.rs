//! PostgreSQL: the store and the front end against the same work by plain statements.

mod pairs;
mod raw;

use leasehold::{Error, Result};
use leasehold_testkit::postgres::Server;

use crate::measure;

/// Measures these parts, or all.
pub(crate) async fn run(parts: &[&str]) -> Result<()> {
    println!("# PostgreSQL\n");
    // Commits wait for the disk.
    let server = Server::start(&[]).await.map_err(failed)?;
    let version = server.rows("SHOW server_version").await;
    measure::print_machine(&[
        ("PostgreSQL", version[0].get(0)),
        ("tokio-postgres", measure::version("tokio-postgres")),
    ]);
    if parts.is_empty() || parts.contains(&"pairs") {
        pairs::run(&server).await?;
    }
    Ok(())
}

/// Converts a failure of the test tools.
fn failed(failure: leasehold_conformance::Failure) -> Error {
    Error::unexpected(format!("a server of the benchmark failed ({failure})"))
}
