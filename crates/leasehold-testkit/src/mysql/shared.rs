//! MariaDB and MySQL in the tests that SQL servers share.

use std::time::Duration;

use leasehold_conformance::{Failure, Result, unprivileged};
use leasehold_mysql::mysql_async::prelude::Queryable as _;
use leasehold_mysql::mysql_async::{Conn, Pool, PoolConstraints, PoolOpts, Row, Value};
use leasehold_mysql::{MysqlConfig, MysqlStore};

use super::{OWN, Product, Server, opts};
use crate::sql::clocked::ClockedServer;
use crate::sql::nene::NeneServer;
use crate::sql::{SqlTestServer, Values};

/// A pool of the application's, of this size.
pub fn pool(port: u16, most: usize) -> Pool {
    let pool = PoolOpts::new().with_constraints(PoolConstraints::new(most, most).unwrap());
    Pool::new(opts(port).pool_opts(pool))
}

impl SqlTestServer for Server {
    type Store = MysqlStore;
    type Client = Conn;
    type Pool = Pool;
    type Pooled = Conn;

    const UNSYNCED: &'static [&'static str] =
        &["--innodb-flush-log-at-trx-commit=2", "--skip-log-bin"];
    const ADMINISTRATOR: &'static str = "root";
    const TLS: [&'static str; 3] = ["ssl-mode=required", "ssl-mode=verify_identity", "ssl-ca"];
    const CERTIFICATE: &'static [&'static str] = &["--ssl-cert={certificate}", "--ssl-key={key}"];
    const PLAIN: &'static str = "";
    const LEASES: &'static str = "leasehold.leasehold_leases";
    const KEY: &'static str = "`key`";
    const HIGH_WATER_MARK: &'static str =
        "SELECT COALESCE(MAX(value), 0) FROM leasehold.leasehold_mark";
    const SET_THE_MARK: &'static str =
        "INSERT INTO leasehold.leasehold_mark (value) VALUES ({mark})";
    const VERSION: &'static str = "leasehold.leasehold_version";
    const CALLS: &'static str = "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS
                                 WHERE VARIABLE_NAME = 'COM_STMT_EXECUTE'";
    // The lease whose row is held is tried again and again, for the server cannot end a wait for a row in time.
    const CALLS_WHILE_HELD: u64 = 180;
    const LOGGED_ERROR: &'static str = "[ERROR]";
    const REFUSE_K3: &'static str =
        "CREATE TRIGGER leasehold.no BEFORE INSERT ON leasehold.leasehold_leases FOR EACH ROW
         IF NEW.`key` = 'k3' THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'not this one'; END IF";
    const FREE: &'static str = "state = 'f'";
    const DAMAGES: &'static [&'static str] =
        &["state = 'x'", "id = NULL", "shared = NULL", "token = NULL", "host = UNHEX('ff')"];
    const ISOLATION_LEVELS: &'static [(&'static [&'static str], &'static str)] = &[
        (&["--transaction-isolation=READ-UNCOMMITTED"], ""),
        (&["--transaction-isolation=SERIALIZABLE"], ""),
    ];

    async fn start(settings: &[&str]) -> Result<Self> {
        Self::start_product(Product::MariaDb, settings).await
    }

    async fn launch(&self) -> Result<()> {
        let mut command = unprivileged(self.directory())?;
        command.push(self.product.program()?.display().to_string());
        command.extend(OWN.iter().map(|&setting| setting.to_owned()));
        command.push(format!("--port={}", self.port()));
        // A server that starts empties the directory of temporary files.
        let own = [
            ("datadir", "data"),
            ("tmpdir", ""),
            ("socket", "server.sock"),
            ("pid-file", "server.pid"),
        ];
        let path = |name: &str| self.directory().join(name).display().to_string();
        command.extend(own.map(|(option, name)| format!("--{option}={}", path(name))));
        command.extend(self.settings.clone());
        self.process.run(&command, async || self.connect().await.is_ok()).await
    }

    fn url_at(host: &str, port: u16, options: &str) -> String {
        format!("mysql://root@{host}:{port}/leasehold?{options}")
    }

    async fn open(url: &str) -> leasehold_core::Result<MysqlStore> {
        MysqlStore::connect(url).await
    }

    fn pool(&self, most: usize) -> Pool {
        pool(self.port(), most)
    }

    async fn pooled(pool: &Pool) -> Conn {
        pool.get_conn().await.unwrap()
    }

    fn client(pooled: &mut Conn) -> &mut Conn {
        pooled
    }

    async fn open_on(&self, pool: Pool) -> MysqlStore {
        MysqlConfig::pool(pool, "leasehold").connect().await.unwrap()
    }

    async fn connect(&self) -> Result<Conn> {
        Ok(Conn::new(opts(self.port())).await?)
    }

    async fn query(client: &mut Conn, text: &str) -> Result<Vec<Values>> {
        let value = |value| match value {
            Value::NULL => Ok(None),
            Value::Bytes(bytes) => Ok(Some(String::from_utf8(bytes)?)),
            other => Err(Failure::new(format!("not a text: {other:?}"))),
        };
        let rows = client.query::<Row, _>(text).await?;
        rows.into_iter().map(|row| row.unwrap().into_iter().map(value).collect()).collect()
    }
}

impl NeneServer for Server {
    type Config = MysqlConfig;

    const DATABASE: &'static str = "CREATE DATABASE leasehold";
    // What PHP writes where a date is out of range and the mode is not strict.
    const ADD_UNREADABLE: &'static str =
        "SET STATEMENT sql_mode = '' FOR INSERT INTO leasehold.distributed_locks
         VALUES ('r', 'php', '0000-00-00', '0000-00-00')";
    const WAITING: &'static str =
        "SELECT 1 FROM information_schema.PROCESSLIST WHERE INFO LIKE 'UPDATE%'";
    const DSN: &'static str = "mysql:host=127.0.0.1;port={port};dbname=leasehold;charset=utf8mb4";
    const WORKER: &'static str = "CREATE USER worker@localhost; CREATE USER worker@'127.0.0.1'";
    const GRANT: &'static str =
        "GRANT {privileges} ON leasehold.distributed_locks TO worker@'127.0.0.1'";
    const DENIED: &'static str = "INSERT";

    fn config(url: &str) -> leasehold_core::Result<MysqlConfig> {
        MysqlConfig::parse(url)
    }

    fn pool_config(&self, timeout: Duration) -> MysqlConfig {
        MysqlConfig::pool(self.pool(4), "leasehold").timeout(timeout)
    }
}

impl ClockedServer for Server {
    // A reader holds the table until its transaction ends.
    const CLOCK: &'static str = "
        CREATE DATABASE {schema};
        CREATE TABLE {schema}.test_clock (now BIGINT NOT NULL) ENGINE = MyISAM;
        INSERT INTO {schema}.test_clock VALUES ({now})";
    const KEEPS_THE_CLOCK: bool = true;
    const STOPS: [&'static str; 2] = ["LOCK TABLES {schema}.test_clock WRITE", "UNLOCK TABLES"];
    const TABLE: &'static str = "leasehold_leases";
    const IS_FREE: &'static str = "state = 'f'";
    const HEX_OF_ID: &'static str = "HEX(id)";
    const MARK: &'static str =
        "SELECT GREATEST(COALESCE(MAX(value), 0), (SELECT COALESCE(MAX(counter), 0) FROM {schema}.leasehold_leases))
         FROM {schema}.leasehold_mark";
    const NENE_END: &'static str = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', expires_at)";

    /// Each statement reads the clock of its schema.
    fn clocked(port: u16, schema: &str, timeout: Duration) -> Result<MysqlConfig> {
        let url = format!("mysql://root@127.0.0.1:{port}/{schema}");
        let clock = "(SELECT now FROM {schema}.test_clock)";
        Ok(MysqlConfig::parse(&url)?.timeout(timeout).clock(clock))
    }

    async fn connect_with(config: MysqlConfig) -> Result<MysqlStore> {
        Ok(config.connect().await?)
    }
}
