//! The same work by plain statements, each on a connection of a pool.

use leasehold::{Error, LeaseId, Result};
use leasehold_postgres::tokio_postgres::{self, Client, Statement};
use leasehold_testkit::postgres::{Server, connect};
use tokio::sync::Mutex;

use super::Plain;
use crate::subjects::Keys;

/// Each with the two statements prepared.
pub(crate) struct Connections(Vec<Mutex<Link>>);

struct Link {
    client: Client,
    /// Of known keys, and of fresh ones.
    acquire: [Statement; 2],
    release: [Statement; 2],
    acquire_as_store: Statement,
    release_as_store: Statement,
}

const ACQUIRE: &str = "
    UPDATE plain
    SET counter = greatest(counter + 1, (date_part('epoch', clock_timestamp()) * 1000000)::bigint), id = $2,
        token = greatest(counter + 1, (date_part('epoch', clock_timestamp()) * 1000000)::bigint),
        expires = (date_part('epoch', clock_timestamp()) * 1000000)::bigint + $3,
        granted_at = (date_part('epoch', clock_timestamp()) * 1000000)::bigint, host = $4, pid = $5, program = $6
    WHERE key = $1 AND (id IS NULL OR expires <= (date_part('epoch', clock_timestamp()) * 1000000)::bigint)
    RETURNING token, expires";

const RELEASE: &str = "UPDATE plain SET id = NULL WHERE key = $1 AND id = $2";

/// The same for a key that may have no row.
const ACQUIRE_FRESH: &str = "
    INSERT INTO plain AS old (key, counter, id, token, expires, granted_at, host, pid, program)
    SELECT $1, n, $2, n, n + $3, n, $4, $5, $6
    FROM (SELECT (date_part('epoch', clock_timestamp()) * 1000000)::bigint AS n) AS clock
    ON CONFLICT (key) DO UPDATE
    SET counter = greatest(old.counter + 1, excluded.counter), id = excluded.id,
        token = greatest(old.counter + 1, excluded.counter), expires = excluded.expires, granted_at = excluded.granted_at,
        host = excluded.host, pid = excluded.pid, program = excluded.program
    WHERE old.id IS NULL OR old.expires <= excluded.granted_at
    RETURNING token, expires";

const RELEASE_FRESH: &str = "DELETE FROM plain WHERE key = $1 AND id = $2";

/// What the store sends for a lone caller.
const ACQUIRE_AS_STORE: &str =
    "SELECT * FROM leasehold.acquire_one(NULL, $1, $2, $3, NULL, $4, $5, $6, NULL)";

const RELEASE_AS_STORE: &str = "SELECT * FROM leasehold.release_one(NULL, $1, $2, $3, false)";

impl Connections {
    /// So many connections, and a table with a row for each of so many keys. The server has the store's objects.
    pub(crate) async fn open(server: &Server, links: usize, keys: usize) -> Result<Self> {
        let schema = format!(
            "DROP TABLE IF EXISTS plain;
             CREATE TABLE plain (
                 key text COLLATE \"C\" PRIMARY KEY, counter bigint NOT NULL, id bytea, token bigint, expires bigint,
                 granted_at bigint, host text, pid bigint, program text
             ) WITH (fillfactor = 50);
             INSERT INTO plain (key, counter) SELECT 'k' || n, 1 FROM generate_series(0, {keys}) AS n"
        );
        server.run(&schema).await;
        let mut all = Vec::new();
        for _ in 0..links {
            let client = connect(&server.url()).await.map_err(super::failed)?;
            let prepare = async |text| client.prepare(text).await.map_err(refused);
            let acquire = [prepare(ACQUIRE).await?, prepare(ACQUIRE_FRESH).await?];
            let release = [prepare(RELEASE).await?, prepare(RELEASE_FRESH).await?];
            let acquire_as_store = prepare(ACQUIRE_AS_STORE).await?;
            let release_as_store = prepare(RELEASE_AS_STORE).await?;
            let link = Link { client, acquire, release, acquire_as_store, release_as_store };
            all.push(Mutex::new(link));
        }
        Ok(Self(all))
    }

    /// What the store sends for a lone caller, without the store.
    pub(crate) async fn pair_as_store(&self, task: usize, key: &str) -> Result<()> {
        let link = self.0[task % self.0.len()].lock().await;
        let id = LeaseId::mint()?.to_bytes().into_owned();
        let (term, host, pid, program) = (30_000_000_i64, "host-1", 4711_i64, "bench");
        let row = link
            .client
            .query_one(&link.acquire_as_store, &[&key, &id, &term, &host, &pid, &program])
            .await
            .map_err(refused)?;
        let token: i64 = row.try_get("o_token").map_err(refused)?;
        link.client
            .query_one(&link.release_as_store, &[&key, &id, &token])
            .await
            .map_err(refused)?;
        Ok(())
    }

    /// An advisory lock and its end.
    pub(crate) async fn advisory_pair(&self, task: usize) -> Result<()> {
        let link = self.0[task % self.0.len()].lock().await;
        let task = i64::try_from(task).unwrap_or(0);
        link.client.query("SELECT pg_advisory_lock($1)", &[&task]).await.map_err(refused)?;
        link.client.query("SELECT pg_advisory_unlock($1)", &[&task]).await.map_err(refused)?;
        Ok(())
    }
}

impl super::Server for Server {
    async fn fill(&self, leases: u32) {
        self.run(&format!(
            "INSERT INTO leasehold.leases (key, slot, counter, id, shared, state, token, expires, granted_at)
             SELECT 'old-' || n, 0, n, convert_to(gen_random_uuid()::text, 'UTF8'), false, 'h', n, n, 1
             FROM generate_series(1, {leases}) AS n"
        ))
        .await;
    }

    async fn size(&self) -> u64 {
        let sizes = "SELECT sum(pg_total_relation_size(oid))::bigint FROM pg_class
                     WHERE relnamespace = 'leasehold'::regnamespace AND relkind = 'r'";
        self.rows(sizes).await[0].get::<_, i64>(0).unsigned_abs()
    }
}

impl Plain for Connections {
    async fn pair(&self, task: usize, key: &str, keys: Keys) -> Result<()> {
        let link = || self.0[task % self.0.len()].lock();
        let id = LeaseId::mint()?.to_bytes().into_owned();
        let (term, host, pid, program) = (30_000_000_i64, "host-1", 4711_i64, "bench");
        let one = link().await;
        let rows = one
            .client
            .query(&one.acquire[keys as usize], &[&key, &id, &term, &host, &pid, &program])
            .await
            .map_err(refused)?;
        drop(one);
        if rows.len() != 1 {
            return Err(Error::unexpected("a free key was not acquired"));
        }
        let one = link().await;
        one.client.execute(&one.release[keys as usize], &[&key, &id]).await.map_err(refused)?;
        Ok(())
    }
}

fn refused(error: tokio_postgres::Error) -> Error {
    Error::unexpected("a plain statement failed").with_source(error)
}
