//! Real PostgreSQL servers for tests.

#[cfg(feature = "nene")]
mod shared;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

use leasehold_conformance::{Failure, Process, Result, free_port, unprivileged};
use leasehold_postgres::tokio_postgres::{Client, NoTls, Row};
use leasehold_postgres::{PostgresStore, tokio_postgres};
use tempfile::TempDir;

use crate::authority::Authority;
use crate::data::{Data, put_certificate};
use crate::directory::new_directory;
use crate::waiting::{LONG, starts, until};

/// A server with its own directory.
pub struct Server {
    process: Mutex<Option<Process>>,
    directory: TempDir,
    port: u16,
    settings: Vec<String>,
    /// The directory of its certificate.
    certificates: Option<TempDir>,
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
    /// Starts one with these settings, such as `fsync=off`.
    pub async fn start(settings: &[&str]) -> Result<Self> {
        let mut why = Failure::new("never tried");
        // Between finding a free port and listening on it another process may take it.
        for _ in 0..5 {
            let directory = new_directory()?;
            copy_cluster(directory.path())?;
            let server = Self {
                process: Mutex::new(None),
                directory,
                port: free_port()?,
                settings: settings.iter().map(|&setting| setting.to_owned()).collect(),
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
        command.push(program("postgres")?.display().to_string());
        command.extend(["-D", "data", "-p"].map(str::to_owned));
        command.push(self.port.to_string());
        let settings = OWN.iter().map(|&setting| setting.to_owned()).chain(self.settings.clone());
        command.extend(settings.flat_map(|setting| ["-c".to_owned(), setting]));
        let process = Process::start(&command[0], &command[1..], self.directory.path())?;
        *self.process.lock().unwrap() = Some(process);
        self.until_ready().await
    }

    async fn until_ready(&self) -> Result<()> {
        if starts(async || self.connect().await.is_ok()).await {
            return Ok(());
        }
        let log = std::fs::read_to_string(self.directory.path().join("server.log"));
        Err(Failure::new(format!("postgres does not answer: {}", log.unwrap_or_default())))
    }

    /// What it has logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("server.log")).unwrap()
    }

    /// The lines of its log that tell of an error.
    pub fn logged_errors(&self) -> Vec<String> {
        self.log().lines().filter(|line| line.contains("ERROR:")).map(str::to_owned).collect()
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
    pub async fn connect(&self) -> Result<Client> {
        connect(&self.url()).await
    }

    /// Runs statements past the store.
    pub async fn run(&self, text: &str) {
        self.connect().await.unwrap().batch_execute(text).await.unwrap();
    }

    /// Fills the schema `public` with another user's functions, operators, types and relations, named as the server's.
    pub async fn hostile(self) -> Result<Self> {
        self.connect().await?.batch_execute(include_str!("hostile.sql")).await?;
        Ok(self)
    }

    /// The URL of its administrator whose sessions find the schema `public` before the server's own names.
    pub fn hostile_url(&self) -> String {
        hostile_url(self.port)
    }

    /// The rows of a statement past the store.
    pub async fn rows(&self, text: &str) -> Vec<Row> {
        self.connect().await.unwrap().query(text, &[]).await.unwrap()
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

    /// A store on it, with its schema.
    pub async fn store(&self) -> PostgresStore {
        // On a busy machine many requests at once take longer than the default limit.
        let url = format!("{}&timeout={}s", self.url(), LONG.as_secs());
        let store = PostgresStore::connect(&url).await.unwrap();
        leasehold_core::Store::prepare(&store).await.unwrap();
        store
    }
}

impl Drop for Server {
    /// A server that is killed leaves a segment of shared memory, of which the kernel allows 4,096.
    fn drop(&mut self) {
        self.kill();
        if let Some(segment) = segment(self.directory.path()) {
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
    format!("postgres://postgres@127.0.0.1:{port}/postgres?sslmode=disable")
}

/// The same, for sessions that find the schema `public` before the server's own names.
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
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    if let Ok(versions) = Path::new("/usr/lib/postgresql").read_dir() {
        let mut versions: Vec<_> = versions.flatten().map(|version| version.path()).collect();
        versions.sort_by_key(|version| {
            version.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok())
        });
        folders.extend(versions.into_iter().rev().map(|version| version.join("bin")));
    }
    let found = folders.into_iter().map(|folder| folder.join(name)).find(|file| file.is_file());
    found.ok_or_else(|| {
        Failure::new(format!("there is no {name}, which `cargo xtask servers` installs"))
    })
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
pub struct Pooler {
    _process: Process,
    _directory: TempDir,
    port: u16,
}

impl Pooler {
    /// Starts one that gives a session of the server to each transaction.
    pub async fn before(server: &Server) -> Result<Self> {
        let (directory, port) = (new_directory()?, free_port()?);
        let settings = format!(
            "[databases]
             * = host=127.0.0.1 port={} user=postgres
             [pgbouncer]
             listen_addr = 127.0.0.1
             listen_port = {port}
             unix_socket_dir =
             auth_type = any
             pool_mode = transaction
             default_pool_size = 3
             max_client_conn = 200
            ",
            server.port()
        );
        let settings = settings.lines().map(str::trim).collect::<Vec<_>>().join("\n");
        std::fs::write(directory.path().join("pooler.ini"), settings)?;
        let mut command = unprivileged(directory.path())?;
        command.extend(["pgbouncer", "pooler.ini"].map(str::to_owned));
        let process = Process::start(&command[0], &command[1..], directory.path())?;
        let pooler = Self { _process: process, _directory: directory, port };
        if starts(async || connect(&pooler.url()).await.is_ok()).await {
            return Ok(pooler);
        }
        Err(Failure::new("pgbouncer, which `cargo xtask servers` installs, does not answer"))
    }

    pub fn url(&self) -> String {
        url(self.port)
    }
}

impl Server {
    /// Starts one whose certificate is `NAME.pem` of this authority.
    pub async fn start_with_certificate(authority: &Authority, name: &str) -> Result<Self> {
        let shared = put_certificate(authority, name)?;
        let file = |part: &str| shared.path().join(format!("server.{part}")).display().to_string();
        let settings = [
            "ssl=on".to_owned(),
            format!("ssl_cert_file={}", file("pem")),
            format!("ssl_key_file={}", file("key")),
        ];
        let settings: Vec<_> = settings.iter().map(String::as_str).collect();
        let mut server = Self::start(&settings).await?;
        server.certificates = Some(shared);
        Ok(server)
    }

    /// A standby of it, with asynchronous replication.
    pub async fn standby(&self) -> Result<Self> {
        let directory = new_directory()?;
        let mut command = unprivileged(directory.path())?;
        command.push(program("pg_basebackup")?.display().to_string());
        let port = self.port.to_string();
        let words =
            ["-h", "127.0.0.1", "-p", &port, "-U", "postgres", "-D", "data", "-R", "-c", "fast"];
        command.extend(words.map(str::to_owned));
        let copied =
            Command::new(&command[0]).args(&command[1..]).current_dir(directory.path()).output()?;
        if !copied.status.success() {
            let printed = String::from_utf8_lossy(&copied.stderr).into_owned();
            return Err(Failure::new(format!("pg_basebackup: {printed}")));
        }
        let (process, certificates) = (Mutex::new(None), None);
        let standby =
            Self { process, directory, port: free_port()?, settings: Vec::new(), certificates };
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
        self.run("ALTER SYSTEM SET default_transaction_read_only = on").await;
        self.run("SELECT pg_reload_conf()").await;
        let is_demoted = "SELECT current_setting('transaction_read_only') = 'on'";
        until(async || self.rows(is_demoted).await[0].get(0)).await;
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
