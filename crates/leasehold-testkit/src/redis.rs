//! Real Redis servers for tests.

use std::ops::Deref;
use std::time::Duration;

use leasehold_conformance::{Failure, Process, Result, ServerClock, WallStep, free_port};
use leasehold_core::{Health, Store as _};
use leasehold_redis::RedisStore;
use leasehold_redis::redis::aio::MultiplexedConnection;
use leasehold_redis::redis::{self, AsyncConnectionConfig, Value};

use crate::LONG;
use crate::authority::Authority;
use crate::server_process::{ServerProcess, start_at_a_free_port};

pub mod cluster;
pub mod sentinel;

/// A server with its own directory.
pub struct Server {
    process: ServerProcess,
    program: String,
    settings: Vec<String>,
    clock: Option<ServerClock>,
}

/// The program of servers, unless a test names another: `redis-server`, or what this variable names.
pub const PROGRAM: &str = "LEASEHOLD_TEST_REDIS_PROGRAM";

/// Writes reach the disk before they are answered.
pub const DURABLE: &[&str] = &["--appendonly", "yes", "--appendfsync", "always"];

impl Server {
    /// Starts one with these settings, in addition to what every test needs.
    pub async fn start(settings: &[&str]) -> Result<Self> {
        Self::start_on(None, settings).await
    }

    /// Starts one that reads this clock.
    pub async fn start_on(clock: Option<ServerClock>, settings: &[&str]) -> Result<Self> {
        let program = std::env::var(PROGRAM).unwrap_or_else(|_| "redis-server".to_owned());
        Self::start_program(&program, clock, settings).await
    }

    /// Starts one of this program.
    pub async fn start_program(
        program: &str,
        clock: Option<ServerClock>,
        settings: &[&str],
    ) -> Result<Self> {
        start_at_a_free_port(async |process| {
            let settings = settings.iter().map(|&setting| setting.to_owned()).collect();
            let server =
                Self { process, program: program.to_owned(), settings, clock: clock.clone() };
            server.launch().await?;
            Ok(server)
        })
        .await
    }

    async fn launch(&self) -> Result<()> {
        let port = self.port().to_string();
        let own =
            ["--port", &port, "--bind", "127.0.0.1", "--save", "", "--unixsocket", "redis.sock"];
        let mut command = match &self.clock {
            None => vec![self.program.clone()],
            Some(clock) => clock.command(&self.program),
        };
        command.extend(own.map(str::to_owned));
        command.extend(self.settings.iter().cloned());
        if self.clock.is_some() {
            // It waits on the wall clock, which does not move, and would never stop.
            command.extend(["--jemalloc-bg-thread", "no"].map(str::to_owned));
        }
        let answers = async || matches!(self.ask(&["PING"]).await, Ok(Value::SimpleString(_)));
        self.process.run(&command, answers).await?;
        match &self.clock {
            Some(clock) if self.micros().await? != clock.wall_micros() => {
                Err(Failure::new("libfaketime, which `cargo xtask servers` installs, is not there"))
            }
            _ => Ok(()),
        }
    }

    /// The time by its clock.
    pub async fn micros(&self) -> Result<u64> {
        let time: [u64; 2] = redis::from_redis_value(self.ask(&["TIME"]).await?)?;
        Ok(time[0] * 1_000_000 + time[1])
    }

    /// The value of one of its settings.
    pub fn setting(&self, name: &str) -> &str {
        let at = self.settings.iter().position(|setting| setting == name).unwrap();
        &self.settings[at + 1]
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port())
    }

    /// True if it has always written durably.
    pub fn is_durable(&self) -> bool {
        self.settings.windows(DURABLE.len()).any(|settings| settings == DURABLE)
    }

    /// The URL of a store on it, which states what its operator knows.
    pub fn store_url(&self) -> String {
        let options = if self.is_durable() { "?durable=1" } else { "" };
        format!("{}{options}", self.url())
    }

    /// Sends one command past the store, on its own connection.
    pub async fn ask(&self, words: &[&str]) -> Result<Value> {
        ask(&self.url(), words).await
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

/// Sends one command on its own connection.
pub async fn ask(url: &str, words: &[&str]) -> Result<Value> {
    let mut command = redis::cmd(words[0]);
    command.arg(&words[1..]);
    Ok(connect(url).await?.send_packed_command(&command).await?.extract_error()?)
}

/// Connects past the store. A busy machine can exceed the driver's own limits.
pub async fn connect(url: &str) -> Result<MultiplexedConnection> {
    let limits = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(LONG))
        .set_response_timeout(Some(LONG));
    Ok(redis::Client::open(url)?.get_multiplexed_async_connection_with_config(&limits).await?)
}

impl Server {
    /// A store on it.
    pub async fn store(&self) -> RedisStore {
        RedisStore::connect(&self.store_url()).await.unwrap()
    }

    /// A checked store on it, as `Locker::connect` makes, with these options in its URL.
    pub async fn checked(&self, options: &str) -> leasehold_core::Result<(RedisStore, Health)> {
        let store = RedisStore::connect(&format!("{}?{options}", self.url())).await?;
        let health = store.check().await?;
        Ok((store, health))
    }

    /// Creates the user that the manual of the store lists, and adds `more` to its rights.
    pub async fn add_locker(&self, more: &str) {
        let page = include_str!("../../leasehold-redis/MANUAL.md");
        let rule = page.lines().find(|line| line.starts_with("ACL SETUSER ")).unwrap();
        let words: Vec<_> = rule.split(' ').chain(more.split_whitespace()).collect();
        self.ask(&words).await.unwrap();
    }

    /// Sends one command whose answer is text or nothing.
    pub async fn text(&self, words: &[&str]) -> Option<String> {
        self.try_text(words).await.unwrap()
    }

    /// As [`text`](Self::text), of a server that may end the connection.
    pub async fn try_text(&self, words: &[&str]) -> Result<Option<String>> {
        Ok(redis::from_redis_value(self.ask(words).await?)?)
    }

    /// Sends one command whose answer is a number.
    pub async fn number(&self, words: &[&str]) -> i64 {
        redis::from_redis_value(self.ask(words).await.unwrap()).unwrap()
    }

    /// How many times a command ran.
    pub async fn calls(&self, command: &str) -> u64 {
        let stats = self.text(&["INFO", "commandstats"]).await.unwrap();
        let line = format!("cmdstat_{command}:calls=");
        let calls = stats.lines().find_map(|stat| stat.strip_prefix(&line)?.split(',').next());
        calls.map_or(0, |calls| calls.parse().unwrap())
    }

    /// Whether CLIENT LIST has this text.
    pub async fn has_client(&self, text: &str) -> bool {
        self.text(&["CLIENT", "LIST"]).await.unwrap().contains(text)
    }

    /// How many connections listen to a sharded channel.
    pub async fn subscribers(&self, channel: &str) -> u64 {
        let counted = self.ask(&["PUBSUB", "SHARDNUMSUB", channel]).await.unwrap();
        let (_, subscribers): (String, u64) = redis::from_redis_value(counted).unwrap();
        subscribers
    }
}

impl Authority {
    /// A server with the certificate that was signed for `server`, and its port for TLS.
    pub async fn server(&self) -> (Server, u16) {
        let port = free_port().unwrap();
        let file = |name: &str| self.file(name).to_str().unwrap().to_owned();
        let settings = [
            ("--tls-port", port.to_string()),
            ("--tls-cert-file", file("server.pem")),
            ("--tls-key-file", file("server.key")),
            ("--tls-ca-cert-file", file("ca.pem")),
        ];
        let settings: Vec<_> =
            settings.iter().flat_map(|(name, value)| [*name, value.as_str()]).collect();
        (Server::start(&settings).await.unwrap(), port)
    }
}
