//! The same work by plain statements, each on a connection of a pool.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold::{Error, LeaseId, Result};
use rusqlite::{Connection, params};

use super::Plain;
use crate::subjects::Keys;

pub(crate) struct Connections(Arc<Vec<Mutex<Connection>>>);

const ACQUIRE: &str = "
    UPDATE plain
    SET counter = counter + 1, id = ?2, token = counter + 1, expires = unixepoch() + 30, host = ?3, pid = ?4,
        program = ?5
    WHERE key = ?1 AND (id IS NULL OR expires <= unixepoch())
    RETURNING token, expires";

const RELEASE: &str = "UPDATE plain SET id = NULL WHERE key = ?1 AND id = ?2";

/// The same for a key that may have no row.
const ACQUIRE_FRESH: &str = "
    INSERT INTO plain (key, counter, id, token, expires, host, pid, program)
    VALUES (?1, 1, ?2, 1, unixepoch() + 30, ?3, ?4, ?5)
    ON CONFLICT DO UPDATE
    SET counter = counter + 1, id = excluded.id, token = counter + 1, expires = excluded.expires, host = excluded.host,
        pid = excluded.pid, program = excluded.program
    WHERE id IS NULL OR expires <= unixepoch()
    RETURNING token, expires";

const RELEASE_FRESH: &str = "DELETE FROM plain WHERE key = ?1 AND id = ?2";

impl Connections {
    /// So many connections, and a table with a row for each of so many keys.
    pub(crate) fn open(path: &Path, connections: usize, keys: usize) -> Result<Self> {
        let first = connection(path)?;
        let filled = || {
            first.execute_batch(
                "CREATE TABLE plain (
                     key TEXT PRIMARY KEY, counter INTEGER NOT NULL, id BLOB, token INTEGER, expires INTEGER,
                     host TEXT, pid INTEGER, program TEXT
                 ) STRICT",
            )?;
            for key in 0..keys {
                first.execute(
                    "INSERT INTO plain (key, counter) VALUES (?1, 1)",
                    [format!("k{key}")],
                )?;
            }
            Ok(())
        };
        filled().map_err(failed)?;
        let all = (0..connections).map(|_| connection(path).map(Mutex::new));
        Ok(Self(Arc::new(all.collect::<Result<_>>()?)))
    }
}

/// Its commits wait for the disk.
fn connection(path: &Path) -> Result<Connection> {
    let open = || {
        let connection = Connection::open(path)?;
        connection.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))?;
        connection.execute_batch("PRAGMA synchronous = FULL")?;
        connection.busy_timeout(Duration::from_secs(60))?;
        Ok(connection)
    };
    open().map_err(failed)
}

impl Plain for Connections {
    async fn pair(&self, task: usize, key: &str, keys: Keys) -> Result<()> {
        let (acquire, release) = match keys {
            Keys::Known => (ACQUIRE, RELEASE),
            Keys::Fresh => (ACQUIRE_FRESH, RELEASE_FRESH),
        };
        let id = LeaseId::mint()?.to_bytes().into_owned();
        let acquired = self.on(task, {
            let (key, id) = (key.to_owned(), id.clone());
            move |connection| {
                let mut acquire = connection.prepare_cached(acquire)?;
                let row = params![key, id, "host-1", 4711, "bench"];
                acquire.query_row(row, |row| row.get::<_, i64>(0))
            }
        });
        acquired.await?;
        let key = key.to_owned();
        let released = self.on(task, move |connection| {
            connection.prepare_cached(release)?.execute(params![key, id])
        });
        released.await.map(drop)
    }
}

impl Connections {
    async fn on<T: Send + 'static>(
        &self,
        task: usize,
        act: impl FnOnce(MutexGuard<'_, Connection>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T> {
        let all = Arc::clone(&self.0);
        let acted = tokio::task::spawn_blocking(move || {
            act(all[task % all.len()].lock().unwrap_or_else(PoisonError::into_inner))
        });
        acted.await.expect("a statement does not panic").map_err(failed)
    }
}

fn failed(error: rusqlite::Error) -> Error {
    Error::unexpected("a plain statement failed").with_source(error)
}
