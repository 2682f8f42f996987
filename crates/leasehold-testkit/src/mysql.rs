//! Real MariaDB and MySQL servers for tests.

mod shared;

use std::ops::Deref;
use std::path::{Path, PathBuf};

use leasehold_conformance::{Failure, Result};
use leasehold_mysql::mysql_async::prelude::Queryable as _;
use leasehold_mysql::mysql_async::{OptsBuilder, Row};

pub use shared::pool;

use crate::LONG;
use crate::data::Data;
use crate::program::program;
use crate::server_process::{ServerProcess, start_at_a_free_port};
use crate::sql::SqlTestServer as _;

/// Which server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Product {
    MariaDb,
    MySql,
}

/// A server with its own directory.
pub struct Server {
    product: Product,
    process: ServerProcess,
    settings: Vec<String>,
}

/// Where Debian puts servers.
const SBIN: [&str; 1] = ["/usr/sbin"];

/// What every test needs: little memory and small files.
const OWN: &[&str] = &[
    "--no-defaults",
    "--bind-address=127.0.0.1",
    "--max-connections=300",
    "--innodb-buffer-pool-size=32M",
    // As its data was made; otherwise each start would write 96 MB.
    "--loose-innodb-log-file-size=8M",
];

impl Server {
    pub async fn start_product(product: Product, settings: &[&str]) -> Result<Self> {
        start_at_a_free_port(async |process| {
            product.copy_data(process.directory())?;
            let settings = settings.iter().map(|&setting| setting.to_owned()).collect();
            let server = Self { product, process, settings };
            server.launch().await?;
            Ok(server)
        })
        .await
    }

    /// The URL of its administrator.
    pub fn url(&self) -> String {
        url(self.port())
    }

    /// Runs a statement past the store.
    pub async fn run(&self, text: &str) {
        let mut conn = self.connect().await.unwrap();
        conn.query_drop(text).await.unwrap();
        conn.disconnect().await.unwrap();
    }

    /// The rows of a statement past the store.
    pub async fn rows(&self, text: &str) -> Vec<Row> {
        let mut conn = self.connect().await.unwrap();
        let rows = conn.query(text).await.unwrap();
        conn.disconnect().await.unwrap();
        rows
    }

    /// One of its counts, by its name.
    pub async fn status(&self, name: &str) -> u64 {
        let rows = self.rows(&format!("SHOW GLOBAL STATUS LIKE '{name}'")).await;
        rows[0].get::<String, _>(1).unwrap().parse().unwrap()
    }

    /// Starts one that writes a binary log, for a replica.
    pub async fn primary() -> Result<Self> {
        Self::start(&["--server-id=1", "--log-bin", "--sync-binlog=1"]).await
    }

    /// A replica of this [`primary`](Self::primary), with all that it has. It is read-only.
    pub async fn replica(&self) -> Result<Self> {
        let replica = Self::start_product(self.product, &["--server-id=2", "--read-only"]).await?;
        let port = self.port();
        let source =
            format!("MASTER_HOST = '127.0.0.1', MASTER_PORT = {port}, MASTER_USER = 'root'");
        replica.run(&format!("CHANGE MASTER TO {source}, MASTER_CONNECT_RETRY = 1")).await;
        replica.run("START SLAVE").await;
        replica.has_all_of(self).await;
        Ok(replica)
    }

    /// Waits until this replica has all that its primary has.
    pub async fn has_all_of(&self, primary: &Self) {
        let at = primary.rows("SHOW MASTER STATUS").await.remove(0);
        let (file, position): (String, u64) = (at.get(0).unwrap(), at.get(1).unwrap());
        let limit = LONG.as_secs();
        let waits = format!("SELECT MASTER_POS_WAIT('{file}', {position}, {limit}) >= 0");
        let has = self.rows(&waits).await[0].get::<Option<bool>, _>(0).unwrap();
        assert_eq!(has, Some(true), "the replica does not follow");
    }

    /// Makes a replica the primary; it accepts writes when this ends.
    pub async fn promote(&self) {
        self.run("STOP SLAVE").await;
        self.run("SET GLOBAL read_only = OFF").await;
    }

    /// Makes it read-only; its sessions stay.
    pub async fn demote(&self) {
        self.run("SET GLOBAL read_only = ON").await;
    }
}

impl Deref for Server {
    type Target = ServerProcess;

    fn deref(&self) -> &ServerProcess {
        &self.process
    }
}

/// The URL of the administrator of the server on this port.
pub fn url(port: u16) -> String {
    Server::plain_url_at(port, "")
}

/// The administrator of the server on this port.
fn opts(port: u16) -> OptsBuilder {
    let opts = OptsBuilder::default().ip_or_hostname("127.0.0.1").tcp_port(port);
    opts.user(Some("root")).prefer_socket(false)
}

impl Product {
    /// The program of the server, on `PATH` or where Debian puts it.
    pub fn program(self) -> Result<PathBuf> {
        match self {
            Self::MariaDb => program("mariadbd", SBIN),
            // MariaDB brings a program of this name too.
            Self::MySql => program("mysqld", SBIN).and_then(|found| {
                let real = found.canonicalize()?;
                if real.file_name().is_some_and(|name| name == "mysqld") {
                    return Ok(real);
                }
                Err(Failure::new("the program mysqld here is MariaDB's"))
            }),
        }
    }

    /// Puts the data of a new server into the folder `data` of this directory.
    fn copy_data(self, directory: &Path) -> Result<()> {
        static MARIADB: Data = Data::new();
        static MYSQL: Data = Data::new();
        let mariadb =
            "--auth-root-authentication-method=normal --skip-test-db --innodb-log-file-size=8M";
        let (copies, program, words) = match self {
            Self::MariaDb => (&MARIADB, program("mariadb-install-db", SBIN), mariadb),
            Self::MySql => (&MYSQL, self.program(), "--initialize-insecure"),
        };
        copies.copy_to(directory, |data| {
            let own = ["--no-defaults".to_owned(), format!("--datadir={data}")];
            Ok((program?, own.into_iter().chain(words.split(' ').map(str::to_owned)).collect()))
        })
    }
}
