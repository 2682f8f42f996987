//! The SQL stores: the store and the front end against the same work by plain statements.

mod mysql;
mod pairs;
mod peers;
mod postgres;
pub(crate) mod processes;
mod purge;
mod renewal;
mod size;
mod sqlite;

use std::sync::Arc;

use leasehold::{Error, Result, SqliteStore};
use leasehold_testkit::sql::SqlTestServer;
use leasehold_testkit::{mysql as mariadb, postgres as postgresql};

use crate::handover;
use crate::measure;
use crate::processor;
use crate::several;
use crate::sides::Side;
use crate::subjects::{self, Keys};

/// As many plain connections as a large pool has.
const POOL: usize = 64;

/// Where the store is among the sides.
const STORE: usize = 1;

/// Pairs whose processor time is measured, and how many tasks share them.
const PROCESSOR_PAIRS: usize = 12_800;
const PROCESSOR_TASKS: [usize; 4] = [1, 16, 64, 256];

/// The most tasks, each with a key.
const TASKS: usize = 256;

/// A server of the benchmark.
trait Server: SqlTestServer {
    /// A store with so many connections, through this port.
    fn store_at(
        &self,
        port: u16,
        connections: usize,
    ) -> impl Future<Output = Result<Self::Store>> + Send {
        let url = Self::plain_url_at(port, &format!("connections={connections}"));
        async move { Self::open(&url).await }
    }

    /// Adds so many expired leases, each with an old counter.
    fn fill(&self, leases: u32) -> impl Future<Output = ()> + Send;

    /// The size of the store's tables with their indexes, in bytes.
    fn size(&self) -> impl Future<Output = u64> + Send;
}

/// Acquire and release by plain statements on a pool of connections.
trait Plain: Send + Sync + 'static {
    /// A pair on the connection of this task.
    fn pair(&self, task: usize, key: &str, keys: Keys) -> impl Future<Output = Result<()>> + Send;
}

/// Measures these parts, or all.
pub(crate) async fn sqlite(parts: &[&str]) -> Result<()> {
    println!("# SQLite\n");
    measure::print_machine(&[("SQLite", rusqlite::version())]);
    let wanted = |part| parts.is_empty() || parts.contains(&part);
    if ["pairs", "fresh"].into_iter().any(wanted) {
        let folder = tempfile::tempdir().map_err(subjects::io)?;
        let path = folder.path().join("plain.db");
        let plain = Arc::new(sqlite::Connections::open(&path, POOL, TASKS)?);
        let store = Arc::new(SqliteStore::open(folder.path().join("store.db")).await?);
        if wanted("pairs") {
            pairs::run(&pairs::sides(&plain, &store, Keys::Known), &[]).await?;
        }
        if wanted("fresh") {
            pairs::fresh(&plain, &store).await?;
        }
    }
    if wanted("keys") {
        let folder = tempfile::tempdir().map_err(subjects::io)?;
        several::run(&SqliteStore::open(folder.path().join("keys.db")).await?).await?;
    }
    if wanted("processes") {
        processes::run().await?;
    }
    Ok(())
}

/// Measures these parts, or all.
pub(crate) async fn postgres(parts: &[&str]) -> Result<()> {
    println!("# PostgreSQL\n");
    // Commits wait for the disk.
    let server = postgresql::Server::start(MANY).await.map_err(failed)?;
    let version = server.rows("SHOW server_version").await;
    measure::print_machine(&[
        ("PostgreSQL", version[0].get(0)),
        ("tokio-postgres", measure::version("tokio-postgres")),
    ]);
    let store = Arc::new(server.store().await);
    let wanted = |part| parts.is_empty() || parts.contains(&part);
    if ["pairs", "fresh", "processor", "peers"].into_iter().any(wanted) {
        let plain = Arc::new(postgres::Connections::open(&server, POOL, TASKS).await?);
        let sides = pairs::sides(&plain, &store, Keys::Known);
        if wanted("pairs") {
            let as_store = alone(AS_STORE, &plain, |plain, task| async move {
                plain.pair_as_store(task, &format!("k{task}")).await
            });
            let advisory = alone(
                "`pg_advisory_lock`, `pg_advisory_unlock`",
                &plain,
                |plain, task| async move { plain.advisory_pair(task).await },
            );
            pairs::run(&sides, &[as_store, advisory]).await?;
        }
        if wanted("fresh") {
            pairs::fresh(&plain, &store).await?;
        }
        if wanted("processor") {
            processor::run(&server, PROCESSOR_PAIRS, &PROCESSOR_TASKS, &sides).await?;
        }
        if wanted("peers") {
            peers::run("postgres", &server.url(), &sides[STORE]).await?;
        }
    }
    if wanted("keys") {
        several::run(&*store).await?;
    }
    if wanted("handover") {
        handover::of_server(async |connections| server.store_at(server.port(), connections).await)
            .await?;
    }
    if wanted("renewal") {
        renewal::run(&server).await?;
    }
    if wanted("purge") {
        purge::run(&server).await?;
    }
    if wanted("size") {
        size::run(&postgresql::Server::start(&["fsync=off"]).await.map_err(failed)?).await?;
    }
    Ok(())
}

/// Enough connections for a hundred processes.
const MANY: &[&str] = &["max_connections=500"];

/// The name of a side that sends what the store sends for a lone caller, without the store.
const AS_STORE: &str = "the store's statements by the driver";

/// A side with a pair of its own on plain connections.
fn alone<P: Plain, F: Future<Output = Result<()>> + Send>(
    name: &str,
    plain: &Arc<P>,
    pair: impl Fn(Arc<P>, usize) -> F + Copy + Send + Sync + 'static,
) -> Side {
    let plain = Arc::clone(plain);
    Side::new(name, move |task, pairs| {
        let plain = Arc::clone(&plain);
        async move {
            for _ in 0..pairs {
                pair(Arc::clone(&plain), task).await?;
            }
            Ok(())
        }
    })
}

/// Measures these parts, or all.
pub(crate) async fn mariadb(parts: &[&str]) -> Result<()> {
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
    let wanted = |part| parts.is_empty() || parts.contains(&part);
    if ["pairs", "fresh", "processor", "peers"].into_iter().any(wanted) {
        let plain = Arc::new(mysql::Connections::open(&server, POOL, TASKS).await?);
        let sides = pairs::sides(&plain, &store, Keys::Known);
        if wanted("pairs") {
            let as_store = alone(AS_STORE, &plain, |plain, task| async move {
                plain.pair_as_store(task, &format!("k{task}")).await
            });
            pairs::run(&sides, &[as_store]).await?;
        }
        if wanted("fresh") {
            pairs::fresh(&plain, &store).await?;
        }
        if wanted("processor") {
            processor::run(&server, PROCESSOR_PAIRS, &PROCESSOR_TASKS, &sides).await?;
        }
        if wanted("peers") {
            peers::run("mysql", &server.url(), &sides[STORE]).await?;
        }
    }
    if wanted("keys") {
        several::run(&*store).await?;
    }
    if wanted("renewal") {
        renewal::run(&server).await?;
    }
    if wanted("purge") {
        purge::run(&server).await?;
    }
    if wanted("size") {
        let forgetful = ["--innodb-flush-log-at-trx-commit=0"];
        size::run(&mariadb::Server::start(&forgetful).await.map_err(failed)?).await?;
    }
    Ok(())
}

/// Converts a failure of the test tools.
pub(crate) fn failed(failure: leasehold_conformance::Failure) -> Error {
    Error::unexpected(format!("a server of the benchmark failed ({failure})"))
}
