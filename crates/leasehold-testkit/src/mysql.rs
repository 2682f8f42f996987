//! Real MariaDB and MySQL servers for tests.

#[cfg(feature = "nene")]
mod shared;

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use leasehold_conformance::{Failure, Process, Result, free_port, unprivileged};
use leasehold_mysql::mysql_async::prelude::Queryable as _;
use leasehold_mysql::mysql_async::{Conn, Opts, OptsBuilder, Row};
use leasehold_mysql::{MysqlStore, mysql_async};
use tempfile::TempDir;

#[cfg(feature = "nene")]
pub use shared::pool;

use crate::LONG;
use crate::authority::Authority;
use crate::data::{Data, put_certificate};
use crate::directory::new_directory;
use crate::waiting::starts;

/// Which server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Product {
    MariaDb,
    MySql,
}

/// A server with its own directory.
pub struct Server {
    product: Product,
    process: Mutex<Option<Process>>,
    directory: TempDir,
    port: u16,
    settings: Mutex<Vec<String>>,
    /// The directory of its certificate.
    certificates: Option<TempDir>,
}

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
    /// Starts a MariaDB server with these settings, such as `--sync-binlog=1`.
    pub async fn start(settings: &[&str]) -> Result<Self> {
        Self::start_product(Product::MariaDb, settings).await
    }

    pub async fn start_product(product: Product, settings: &[&str]) -> Result<Self> {
        let mut why = Failure::new("never tried");
        // Between finding a free port and listening on it another process may take it.
        for _ in 0..5 {
            let directory = new_directory()?;
            product.copy_data(directory.path())?;
            let server = Self {
                product,
                process: Mutex::new(None),
                directory,
                port: free_port()?,
                settings: Mutex::new(settings.iter().map(|&setting| setting.to_owned()).collect()),
                certificates: None,
            };
            match server.launch().await {
                Ok(()) => return Ok(server),
                Err(error) => why = error,
            }
        }
        Err(why)
    }

    async fn launch(&self) -> Result<()> {
        let mut command = unprivileged(self.directory.path())?;
        command.push(self.product.program()?.display().to_string());
        command.extend(OWN.iter().map(|&setting| setting.to_owned()));
        command.push(format!("--port={}", self.port));
        // A server that starts empties the directory of temporary files.
        let own = [
            ("datadir", "data"),
            ("tmpdir", ""),
            ("socket", "server.sock"),
            ("pid-file", "server.pid"),
        ];
        let path = |name: &str| self.directory.path().join(name).display().to_string();
        command.extend(own.map(|(option, name)| format!("--{option}={}", path(name))));
        command.extend(self.settings.lock().unwrap().clone());
        let process = Process::start(&command[0], &command[1..], self.directory.path())?;
        *self.process.lock().unwrap() = Some(process);
        if starts(async || self.connect().await.is_ok()).await {
            return Ok(());
        }
        let log = std::fs::read_to_string(self.directory.path().join("server.log"));
        Err(Failure::new(format!("the server does not answer: {}", log.unwrap_or_default())))
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The URL of its administrator.
    pub fn url(&self) -> String {
        url(self.port)
    }

    /// A connection past the store.
    pub async fn connect(&self) -> Result<Conn> {
        connect(self.port).await
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

    /// Kills it, as a crash would.
    pub fn kill(&self) {
        if let Some(process) = self.process.lock().unwrap().take() {
            process.kill();
        }
    }

    /// Starts it again in the same directory.
    pub async fn restart(&self) -> Result<()> {
        self.kill();
        self.launch().await
    }

    pub fn pause(&self) {
        self.process.lock().unwrap().as_ref().unwrap().pause().unwrap();
    }

    pub fn resume(&self) {
        self.process.lock().unwrap().as_ref().unwrap().resume().unwrap();
    }

    /// How long processors have worked for it.
    pub fn processor_time(&self) -> Duration {
        self.process.lock().unwrap().as_ref().unwrap().processor_time().unwrap()
    }

    /// A store on it, with its objects.
    pub async fn store(&self) -> MysqlStore {
        // On a busy machine many requests at once take longer than the default limit.
        let url = format!("{}?timeout={}s", self.url(), LONG.as_secs());
        let store = MysqlStore::connect(&url).await.unwrap();
        leasehold_core::Store::prepare(&store).await.unwrap();
        store
    }

    /// Starts a MariaDB server whose certificate is `NAME.pem` of this authority.
    pub async fn start_with_certificate(authority: &Authority, name: &str) -> Result<Self> {
        let shared = put_certificate(authority, name)?;
        let file = |part: &str| shared.path().join(format!("server.{part}")).display().to_string();
        let settings =
            [format!("--ssl-cert={}", file("pem")), format!("--ssl-key={}", file("key"))];
        let settings: Vec<_> = settings.iter().map(String::as_str).collect();
        let mut server = Self::start(&settings).await?;
        server.certificates = Some(shared);
        Ok(server)
    }

    /// Starts one that writes a binary log, for a replica.
    pub async fn primary() -> Result<Self> {
        Self::start(&["--server-id=1", "--log-bin", "--sync-binlog=1"]).await
    }

    /// A replica of this [`primary`](Self::primary), with all that it has. It is read-only.
    pub async fn replica(&self) -> Result<Self> {
        let replica = Self::start_product(self.product, &["--server-id=2", "--read-only"]).await?;
        let port = self.port;
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

/// The URL of the administrator of the server on this port.
pub fn url(port: u16) -> String {
    format!("mysql://root@127.0.0.1:{port}/leasehold")
}

/// A connection past the store.
pub async fn connect(port: u16) -> Result<Conn> {
    let opts: Opts = OptsBuilder::default()
        .ip_or_hostname("127.0.0.1")
        .tcp_port(port)
        .user(Some("root"))
        .prefer_socket(false)
        .into();
    Ok(mysql_async::Conn::new(opts).await?)
}

impl Product {
    /// The program of the server, on `PATH` or where Debian puts it.
    pub fn program(self) -> Result<PathBuf> {
        match self {
            Self::MariaDb => program("mariadbd"),
            // MariaDB brings a program of this name too.
            Self::MySql => program("mysqld").and_then(|found| {
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
        match self {
            Self::MariaDb => MARIADB.copy_to(directory, |data| {
                let words = [
                    "--no-defaults",
                    &format!("--datadir={data}"),
                    "--auth-root-authentication-method=normal",
                    "--skip-test-db",
                    "--innodb-log-file-size=8M",
                ];
                Ok((program("mariadb-install-db")?, words.map(str::to_owned).to_vec()))
            }),
            Self::MySql => MYSQL.copy_to(directory, |data| {
                let words =
                    ["--no-defaults", &format!("--datadir={data}"), "--initialize-insecure"];
                Ok((self.program()?, words.map(str::to_owned).to_vec()))
            }),
        }
    }
}

/// A program, on `PATH` or in the folder where Debian puts servers.
fn program(name: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    folders.push("/usr/sbin".into());
    let found = folders.into_iter().map(|folder| folder.join(name)).find(|file| file.is_file());
    found.ok_or_else(|| {
        Failure::new(format!("there is no {name}, which `cargo xtask servers` installs"))
    })
}
