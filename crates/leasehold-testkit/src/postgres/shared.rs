//! PostgreSQL in the tests that SQL servers share.

use std::time::Duration;

use leasehold_conformance::{Result, unprivileged};
use leasehold_postgres::deadpool_postgres::{Manager, Object, Pool};
use leasehold_postgres::tokio_postgres::{Client, NoTls, SimpleQueryMessage};
use leasehold_postgres::{PostgresConfig, PostgresStore};

use super::{OWN, Server, connect, copy_cluster, hostile_url, program};
use crate::server_process::start_at_a_free_port;
use crate::sql::clocked::ClockedServer;
use crate::sql::nene::NeneServer;
use crate::sql::{SqlTestServer, Values};

/// A pool of the application's, of this size.
pub fn pool(url: &str, most: usize) -> Pool {
    let manager = Manager::new(url.parse().unwrap(), NoTls);
    Pool::builder(manager).max_size(most).build().unwrap()
}

impl SqlTestServer for Server {
    type Store = PostgresStore;
    type Client = Client;
    type Pool = Pool;
    type Pooled = Object;

    const UNSYNCED: &'static [&'static str] = &["fsync=off"];
    const ADMINISTRATOR: &'static str = "postgres";
    const TLS: [&'static str; 3] = ["sslmode=require", "sslmode=verify-full", "sslrootcert"];
    const CERTIFICATE: &'static [&'static str] =
        &["ssl=on", "ssl_cert_file={certificate}", "ssl_key_file={key}"];
    const PLAIN: &'static str = "sslmode=disable";
    const LEASES: &'static str = "leasehold.leases";
    const KEY: &'static str = "key";
    const HIGH_WATER_MARK: &'static str = "SELECT last_value FROM leasehold.mark";
    const SET_THE_MARK: &'static str = "SELECT setval('leasehold.mark', {mark})";
    const VERSION: &'static str = "leasehold.version";
    // Each transaction that writes has a number, this one too.
    const CALLS: &'static str = "SELECT pg_current_xact_id()";
    const CALLS_WHILE_HELD: u64 = 20;
    const LOGGED_ERROR: &'static str = "ERROR:";
    const REFUSE_K3: &'static str =
        "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not this one'; END $$;
         CREATE TRIGGER no BEFORE INSERT OR UPDATE ON leasehold.leases FOR EACH ROW WHEN (NEW.key = 'k3') EXECUTE FUNCTION no()";
    const FREE: &'static str = "id = NULL";
    const DAMAGES: &'static [&'static str] =
        &["state = NULL", "shared = NULL", "token = NULL", "host = repeat('x', 300)"];
    const ISOLATION_LEVELS: &'static [(&'static [&'static str], &'static str)] = &[
        (&[], "ALTER ROLE postgres SET default_transaction_isolation = 'repeatable read'"),
        (&[], "ALTER ROLE postgres SET default_transaction_isolation = 'serializable'"),
    ];

    async fn start(settings: &[&str]) -> Result<Self> {
        start_at_a_free_port(async |process| {
            copy_cluster(process.directory())?;
            let settings = settings.iter().map(|&setting| setting.to_owned()).collect();
            let server = Self { process, settings };
            server.launch().await?;
            Ok(server)
        })
        .await
    }

    async fn launch(&self) -> Result<()> {
        let mut command = unprivileged(self.directory())?;
        command.push(program("postgres")?.display().to_string());
        command.extend(["-D", "data", "-p"].map(str::to_owned));
        command.push(self.port().to_string());
        let settings = OWN.iter().map(|&setting| setting.to_owned()).chain(self.settings.clone());
        command.extend(settings.flat_map(|setting| ["-c".to_owned(), setting]));
        self.process.run(&command, async || self.connect().await.is_ok()).await
    }

    fn url_at(host: &str, port: u16, options: &str) -> String {
        format!("postgres://postgres@{host}:{port}/postgres?{options}")
    }

    async fn open(url: &str) -> leasehold_core::Result<PostgresStore> {
        PostgresStore::connect(url).await
    }

    fn pool(&self, most: usize) -> Pool {
        pool(&self.url(), most)
    }

    async fn pooled(pool: &Pool) -> Object {
        pool.get().await.unwrap()
    }

    fn client(pooled: &mut Object) -> &mut Client {
        pooled
    }

    async fn open_on(&self, pool: Pool) -> PostgresStore {
        let config = PostgresConfig::pool(pool).wakeups_at(&self.url()).unwrap();
        config.connect().await.unwrap()
    }

    async fn connect(&self) -> Result<Client> {
        connect(&self.url()).await
    }

    async fn query(client: &mut Client, text: &str) -> Result<Vec<Values>> {
        let mut rows = Vec::new();
        for message in client.simple_query(text).await? {
            if let SimpleQueryMessage::Row(row) = message {
                rows.push((0..row.len()).map(|at| row.get(at).map(str::to_owned)).collect());
            }
        }
        Ok(rows)
    }
}

impl NeneServer for Server {
    type Config = PostgresConfig;

    const DATABASE: &'static str = "";
    const ADD_UNREADABLE: &'static str =
        "INSERT INTO distributed_locks VALUES ('r', 'php', 'infinity', '2000-01-01')";
    const WAITING: &'static str = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    const DSN: &'static str = "pgsql:host=127.0.0.1;port={port};dbname=postgres";
    const WORKER: &'static str = "CREATE ROLE worker LOGIN";
    const GRANT: &'static str = "GRANT {privileges} ON distributed_locks TO worker";
    const DENIED: &'static str = "distributed_locks";

    fn config(url: &str) -> leasehold_core::Result<PostgresConfig> {
        PostgresConfig::parse(url)
    }

    fn pool_config(&self, timeout: Duration) -> PostgresConfig {
        PostgresConfig::pool(self.pool(4)).timeout(timeout)
    }
}

impl ClockedServer for Server {
    // All requests hold this lock shared while their transactions read the clock.
    const CLOCK: &'static str = "
        CREATE SCHEMA IF NOT EXISTS {schema};
        CREATE TABLE {schema}.test_clock (now bigint NOT NULL);
        INSERT INTO {schema}.test_clock VALUES ({now});
        CREATE OR REPLACE FUNCTION {schema}.now_us() RETURNS bigint LANGUAGE sql VOLATILE AS $$
            SELECT pg_catalog.pg_advisory_xact_lock_shared(1);
            SELECT now FROM {schema}.test_clock;
        $$";
    // The store's own function of the time has the same name.
    const KEEPS_THE_CLOCK: bool = false;
    const STOPS: [&'static str; 2] = ["BEGIN; SELECT pg_advisory_xact_lock(1)", "COMMIT"];
    const TABLE: &'static str = "leases";
    const IS_FREE: &'static str = "id IS NULL";
    const HEX_OF_ID: &'static str = "encode(id, 'hex')";
    const MARK: &'static str = "SELECT greatest(last_value, (SELECT max(counter) FROM {schema}.leases)) FROM {schema}.mark";
    const NENE_END: &'static str = "extract(epoch FROM expires_at)::bigint * 1000000";

    fn clocked(port: u16, schema: &str, timeout: Duration) -> Result<PostgresConfig> {
        let config = PostgresConfig::parse(&hostile_url(port))?.schema(schema).timeout(timeout);
        Ok(config.clock("{schema}.now_us()"))
    }

    async fn connect_with(config: PostgresConfig) -> Result<PostgresStore> {
        Ok(config.connect().await?)
    }
}
