//! The same work by plain statements, each on a connection of a pool.

use leasehold::{Error, LeaseId, Result};
use leasehold_mysql::mysql_async::prelude::Queryable as _;
use leasehold_mysql::mysql_async::{self, Conn, Row};
use leasehold_testkit::mysql::Server;
use leasehold_testkit::sql::SqlTestServer as _;
use tokio::sync::Mutex;

use super::Plain;
use crate::subjects::Keys;

/// Statements are prepared when first used.
pub(crate) struct Connections(Vec<Mutex<Conn>>);

const ACQUIRE: &str = "
    UPDATE leasehold.plain
    SET counter = LAST_INSERT_ID(GREATEST(counter + 1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))),
        id = ?, token = counter, expires = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + ?,
        granted_at = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), host = ?, pid = ?, program = ?
    WHERE `key` = ?
        AND (id IS NULL OR expires <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))";

const RELEASE: &str = "UPDATE leasehold.plain SET id = NULL WHERE `key` = ? AND id = ?";

/// The same for a key that may have no row.
const ACQUIRE_FRESH: &str = "
    INSERT INTO leasehold.plain (id, expires, host, pid, program, `key`, counter, token, granted_at)
    VALUES (?, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + ?, ?, ?, ?, ?,
        LAST_INSERT_ID(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))), LAST_INSERT_ID(),
        TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))
    ON DUPLICATE KEY UPDATE
        token = IF(id IS NULL OR expires <= VALUES(granted_at), LAST_INSERT_ID(GREATEST(counter + 1, VALUES(counter))), 0),
        id = IF(token = 0, id, VALUES(id)), counter = GREATEST(counter, token), expires = VALUES(expires),
        granted_at = VALUES(granted_at), host = VALUES(host), pid = VALUES(pid), program = VALUES(program)";

const RELEASE_FRESH: &str = "DELETE FROM leasehold.plain WHERE `key` = ? AND id = ?";

/// What the store sends for a lone caller.
const ACQUIRE_AS_STORE: &str = "CALL leasehold.leasehold_acquire_one(?, ?, ?, NULL, ?, ?, ?, NULL)";

const RELEASE_AS_STORE: &str = "CALL leasehold.leasehold_release_one(?, ?, ?)";

impl Connections {
    /// So many connections, and a table with a row for each of so many keys.
    pub(crate) async fn open(server: &Server, connections: usize, keys: usize) -> Result<Self> {
        server
            .run(
                "CREATE TABLE leasehold.plain (
                     `key` VARBINARY(255) PRIMARY KEY, counter BIGINT NOT NULL, id VARBINARY(255), token BIGINT,
                     expires BIGINT, granted_at BIGINT, host VARBINARY(255), pid BIGINT, program VARBINARY(255)
                 ) ENGINE = InnoDB",
            )
            .await;
        for key in 0..keys {
            server
                .run(&format!("INSERT INTO leasehold.plain (`key`, counter) VALUES ('k{key}', 1)"))
                .await;
        }
        let mut all = Vec::new();
        for _ in 0..connections {
            all.push(Mutex::new(server.connect().await.map_err(super::failed)?));
        }
        Ok(Self(all))
    }

    /// What the store sends for a lone caller, without the store.
    pub(crate) async fn pair_as_store(&self, task: usize, key: &str) -> Result<()> {
        let mut link = self.0[task % self.0.len()].lock().await;
        let id = LeaseId::mint()?.to_bytes().into_owned();
        let values = (key, &id, 30_000_000_i64, "host-1", 4711_i64, "bench");
        let row: Option<Row> = link.exec_first(ACQUIRE_AS_STORE, values).await.map_err(refused)?;
        let token: Option<i64> = row.and_then(|row| row.get("o_token"));
        let token = token.ok_or_else(|| Error::unexpected("a free key was not acquired"))?;
        link.exec_drop(RELEASE_AS_STORE, (key, &id, token)).await.map_err(refused)
    }
}

impl super::Server for Server {
    async fn fill(&self, leases: u32) {
        self.run(&format!(
            "INSERT INTO leasehold.leasehold_leases
                 (`key`, slot, counter, id, shared, state, token, expires, granted_at)
             SELECT CONCAT('old-', seq), 0, seq, UUID(), FALSE, 'h', seq, seq, 1 FROM leasehold.seq_1_to_{leases}"
        ))
        .await;
    }

    async fn size(&self) -> u64 {
        let sizes = "SELECT SUM(file_size) FROM information_schema.innodb_sys_tablespaces
                     WHERE name LIKE 'leasehold/leasehold\\_%'";
        self.rows(sizes).await[0].get(0).unwrap_or_default()
    }
}

impl Plain for Connections {
    async fn pair(&self, task: usize, key: &str, keys: Keys) -> Result<()> {
        let (acquire, release) = match keys {
            Keys::Known => (ACQUIRE, RELEASE),
            Keys::Fresh => (ACQUIRE_FRESH, RELEASE_FRESH),
        };
        let link = || self.0[task % self.0.len()].lock();
        let id = LeaseId::mint()?.to_bytes().into_owned();
        let mut one = link().await;
        let values = (&id, 30_000_000_i64, "host-1", 4711_i64, "bench", key);
        one.exec_drop(acquire, values).await.map_err(refused)?;
        if one.last_insert_id().is_none_or(|token| token == 0) {
            return Err(Error::unexpected("a free key was not acquired"));
        }
        drop(one);
        link().await.exec_drop(release, (key, &id)).await.map_err(refused)
    }
}

fn refused(error: mysql_async::Error) -> Error {
    Error::unexpected("a plain statement failed").with_source(error)
}
