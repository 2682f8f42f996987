//! The SQL stores: the store and the front end against the same work by plain statements.

mod mysql;
mod pairs;
mod postgres;
mod sqlite;

use std::sync::Arc;

use leasehold::{Error, Result, SqliteStore};
use leasehold_testkit::{mysql as mariadb, postgres::Server};

use crate::measure;
use crate::sides::Side;
use crate::subjects;

/// As many plain connections as a large pool has.
const POOL: usize = 64;

/// The most tasks, each with a key.
const TASKS: usize = 256;

/// Acquire and release by plain statements on a pool of connections.
trait Plain: Send + Sync + 'static {
    /// A pair on the connection of this task.
    fn pair(&self, task: usize, key: &str) -> impl Future<Output = Result<()>> + Send;
}

pub(crate) async fn sqlite(_: &[&str]) -> Result<()> {
    println!("# SQLite\n");
    measure::print_machine(&[("SQLite", rusqlite::version())]);
    let folder = tempfile::tempdir().map_err(subjects::io)?;
    let plain = sqlite::Connections::open(&folder.path().join("plain.db"), POOL, TASKS)?;
    let store = SqliteStore::open(folder.path().join("store.db")).await?;
    pairs::run(Arc::new(plain), Arc::new(store), Vec::new()).await
}

/// Measures these parts, or all.
pub(crate) async fn postgres(_: &[&str]) -> Result<()> {
    println!("# PostgreSQL\n");
    // Commits wait for the disk.
    let server = Server::start(&[]).await.map_err(failed)?;
    let version = server.rows("SHOW server_version").await;
    measure::print_machine(&[
        ("PostgreSQL", version[0].get(0)),
        ("tokio-postgres", measure::version("tokio-postgres")),
    ]);
    let plain = Arc::new(postgres::Connections::open(&server, POOL, TASKS).await?);
    let advisory = Arc::clone(&plain);
    let advisory = Side::new("`pg_advisory_lock`, `pg_advisory_unlock`", move |task, pairs| {
        let plain = Arc::clone(&advisory);
        async move {
            for _ in 0..pairs {
                plain.advisory_pair(task).await?;
            }
            Ok(())
        }
    });
    pairs::run(plain, Arc::new(server.store().await), vec![advisory]).await
}

pub(crate) async fn mariadb(_: &[&str]) -> Result<()> {
    println!("# MariaDB\n");
    // Commits wait for the disk.
    let server = mariadb::Server::start(&[]).await.map_err(failed)?;
    let version = server.rows("SELECT VERSION()").await;
    let version: String = version[0].get(0).unwrap_or_default();
    measure::print_machine(&[
        ("MariaDB", &version),
        ("mysql_async", measure::version("mysql_async")),
    ]);
    let store = Arc::new(server.store().await);
    let plain = Arc::new(mysql::Connections::open(&server, POOL, TASKS).await?);
    pairs::run(plain, store, Vec::new()).await
}

/// Converts a failure of the test tools.
fn failed(failure: leasehold_conformance::Failure) -> Error {
    Error::unexpected(format!("a server of the benchmark failed ({failure})"))
}
