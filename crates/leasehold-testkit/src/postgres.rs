//! Real PostgreSQL servers for tests.

mod shared;

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::Command;

use leasehold_conformance::{Result, unprivileged};
use leasehold_postgres::tokio_postgres;
use leasehold_postgres::tokio_postgres::{Client, NoTls, Row};

pub use shared::pool;

use crate::data::{Data, run};
use crate::server_process::ServerProcess;
use crate::sql::SqlTestServer as _;
use crate::until;

/// A server with its own directory.
pub struct Server {
    process: ServerProcess,
    settings: Vec<String>,
}

/// What every test needs.
const OWN: &[&str] = &[
    "listen_addresses=127.0.0.1",
    "unix_socket_directories=",
    "max_connections=300",
    // In its own directory, which is removed after a crash too.
    "dynamic_shared_memory_type=mmap",
];

impl Server {
    /// The URL of its administrator.
    pub fn url(&self) -> String {
        url(self.port())
    }

    /// Runs statements past the store.
    pub async fn run(&self, text: &str) {
        self.connect().await.unwrap().batch_execute(text).await.unwrap();
    }

    /// Changes a setting while it runs.
    pub async fn set(&self, setting: &str, value: &str) {
        self.run(&format!("ALTER SYSTEM SET {setting} = '{value}'")).await;
        self.run("SELECT pg_reload_conf()").await;
        until(async || self.rows(&format!("SHOW {setting}")).await[0].get::<_, &str>(0) == value)
            .await;
    }

    /// Whether a session waits like this.
    pub async fn waits(&self, how: &str) -> bool {
        let waits = format!("'{how}' IN (wait_event_type, wait_event)");
        !self.rows(&format!("SELECT FROM pg_stat_activity WHERE {waits}")).await.is_empty()
    }

    /// Fills the schema `public` with another user's functions, operators, types and relations, named as the server's.
    pub async fn hostile(self) -> Result<Self> {
        self.connect().await?.batch_execute(include_str!("hostile.sql")).await?;
        Ok(self)
    }

    /// The rows of a statement past the store.
    pub async fn rows(&self, text: &str) -> Vec<Row> {
        self.connect().await.unwrap().query(text, &[]).await.unwrap()
    }
}

impl Deref for Server {
    type Target = ServerProcess;

    fn deref(&self) -> &ServerProcess {
        &self.process
    }
}

impl Drop for Server {
    /// A server that is killed leaves a segment of shared memory, of which the kernel allows 4,096.
    fn drop(&mut self) {
        self.kill();
        if let Some(segment) = segment(self.directory()) {
            // A test that panics already must not panic again: what stays is as much as after a crash.
            drop(Command::new("ipcrm").args(["-m", &segment]).status());
        }
    }
}

/// The shared memory of the server in this directory, as its file of the process names it: its key and its number.
fn segment(directory: &Path) -> Option<String> {
    let file = std::fs::read_to_string(directory.join("data/postmaster.pid")).ok()?;
    file.lines().nth(6)?.split_whitespace().nth(1).map(str::to_owned)
}

/// The URL of the administrator of the server on this port.
pub fn url(port: u16) -> String {
    Server::plain_url_at(port, "")
}

/// The URL of that administrator for sessions that find the schema `public` before the server's own names.
pub fn hostile_url(port: u16) -> String {
    format!("{}&options=-csearch_path%3Dpublic,pg_catalog", url(port))
}

/// A connection past the store.
pub async fn connect(url: &str) -> Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    #[expect(clippy::disallowed_methods, reason = "the test's own connection")]
    drop(tokio::spawn(connection));
    Ok(client)
}

/// The program, on `PATH` or where Debian puts those of the newest version.
pub fn program(name: &str) -> Result<PathBuf> {
    let versions = Path::new("/usr/lib/postgresql").read_dir().into_iter().flatten().flatten();
    let mut versions: Vec<_> = versions.map(|version| version.path()).collect();
    versions.sort_by_key(|version| {
        std::cmp::Reverse(version.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok()))
    });
    crate::program::program(name, versions.into_iter().map(|version| version.join("bin")))
}

/// Puts a new cluster into the folder `data` of this directory. The first is made, the others are its copies.
fn copy_cluster(directory: &Path) -> Result<()> {
    static FIRST: Data = Data::new();
    FIRST.copy_to(directory, |data| {
        let login = ["-D", data, "-U", "postgres", "-A", "trust"];
        // With a log of 1 MB, where 16 is usual: all others are copies.
        let form = ["-E", "UTF8", "--no-locale", "--no-sync", "--wal-segsize", "1"];
        Ok((program("initdb")?, login.into_iter().chain(form).map(str::to_owned).collect()))
    })
}

/// A pooler before a server, with one session of the server for many clients.
pub struct Pooler(ServerProcess);

impl Pooler {
    /// Starts one that gives a session of the server to each transaction.
    pub async fn before(server: &Server) -> Result<Self> {
        let pooler = Self(ServerProcess::new()?);
        let settings = format!(
            "[databases]
             * = host=127.0.0.1 port={} user=postgres
             [pgbouncer]
             listen_addr = 127.0.0.1
             listen_port = {}
             unix_socket_dir =
             auth_type = any
             pool_mode = transaction
             default_pool_size = 3
             max_client_conn = 200
            ",
            server.port(),
            pooler.0.port(),
        );
        let settings = settings.lines().map(str::trim).collect::<Vec<_>>().join("\n");
        let directory = pooler.0.directory();
        std::fs::write(directory.join("pooler.ini"), settings)?;
        let mut command = unprivileged(directory)?;
        command.extend(["pgbouncer", "pooler.ini"].map(str::to_owned));
        pooler.0.run(&command, async || connect(&pooler.url()).await.is_ok()).await?;
        Ok(pooler)
    }

    pub fn url(&self) -> String {
        url(self.0.port())
    }
}

impl Server {
    /// A standby of it, with asynchronous replication.
    pub async fn standby(&self) -> Result<Self> {
        let process = ServerProcess::new()?;
        let port = self.port().to_string();
        let words =
            ["-h", "127.0.0.1", "-p", &port, "-U", "postgres", "-D", "data", "-R", "-c", "fast"];
        run(process.directory(), &program("pg_basebackup")?, &words.map(str::to_owned))?;
        let standby = Self { process, settings: Vec::new() };
        standby.launch().await?;
        Ok(standby)
    }

    /// Waits until this standby has all that its primary has.
    pub async fn has_all_of(&self, primary: &Self) {
        let at = "SELECT pg_current_wal_flush_lsn()::text";
        let at: String = primary.rows(at).await[0].get(0);
        let has = format!("SELECT pg_last_wal_replay_lsn() >= '{at}'::pg_lsn");
        until(async || self.rows(&has).await[0].get(0)).await;
    }

    /// Makes a standby the primary; it accepts writes when this ends.
    pub async fn promote(&self) {
        let promoted: bool = self.rows("SELECT pg_promote()").await[0].get(0);
        assert!(promoted);
    }

    /// Makes every session read-only, those that there are too.
    pub async fn demote(&self) {
        self.set("default_transaction_read_only", "on").await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_server_that_is_killed_leaves_no_shared_memory() {
        let server = Server::start(&[]).await.unwrap();
        let segment = segment(server.directory()).unwrap();
        let exists = || {
            let all = std::fs::read_to_string("/proc/sysvipc/shm").unwrap();
            all.lines().any(|line| line.split_whitespace().nth(1) == Some(&segment))
        };
        assert!(exists());
        drop(server);
        assert!(!exists());
    }
}
