//! The conformance suite on a real Redis server, each case with one for itself.

mod server;

use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold_conformance::{
    Backing, Failure, Forgets, Observation, Restarted, Result, Row, ServerClock, Subject, Tells,
    Time, WallStep,
};
use leasehold_core::{Clock as _, FencingToken, Key, LeaseId, ManualClock, Mode, Owner, table};
use leasehold_redis::redis::{self, Value};
use leasehold_redis::{RedisConfig, RedisStore};
use server::Server;
use tempfile::TempDir;

fn main() -> ExitCode {
    leasehold_conformance::main(Redis::default())
}

/// Every write is in the file before it is answered, so that a killed process loses none; a power cut is not tried here.
/// With `everysec` a server postpones writes as long as the disk is busy.
const WRITTEN: &[&str] = &["--appendonly", "yes", "--appendfsync", "no"];

/// Servers that no case uses now.
#[derive(Default)]
struct Redis(Arc<Mutex<Vec<Clocked>>>);

/// A server and the clock that it reads.
struct Clocked {
    server: Server,
    clock: ManualClock,
    /// Where the clock's file is.
    _directory: TempDir,
}

impl Clocked {
    async fn start() -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let clock = ServerClock::new(directory.path().join("time"))?;
        let manual = clock.manual();
        let server = Server::start_on(Some(clock), WRITTEN).await?;
        Ok(Self { server, clock: manual, _directory: directory })
    }
}

/// A server that one case has for itself.
struct State {
    server: Option<Clocked>,
    idle: Arc<Mutex<Vec<Clocked>>>,
    forget_after: Duration,
}

impl State {
    fn clocked(&self) -> &Clocked {
        self.server.as_ref().expect("it is given back when the case is over")
    }

    fn server(&self) -> &Server {
        &self.clocked().server
    }
}

impl Drop for State {
    fn drop(&mut self) {
        let server = self.server.take();
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).extend(server);
    }
}

impl Redis {
    async fn state(&self, forget_after: Duration) -> Result<State> {
        let idle = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let clocked = match idle {
            Some(clocked) => clocked,
            None => Clocked::start().await?,
        };
        clocked.server.ask(&["FLUSHALL"]).await?;
        Ok(State { server: Some(clocked), idle: Arc::clone(&self.0), forget_after })
    }
}

impl Subject for Redis {
    type Backing = State;

    fn name(&self) -> &'static str {
        "redis"
    }

    async fn open(&self) -> Result<State> {
        self.state(table::FORGET_AFTER).await
    }

    async fn open_forgetting(&self, forget_after: Duration) -> Result<Forgets<State>> {
        Ok(Forgets::After(self.state(forget_after).await?))
    }

    fn tells(&self) -> Tells {
        let mut tells = Tells::all();
        tells.forgotten = false;
        tells.own_clock = false;
        tells.unit = Duration::from_millis(1);
        tells
    }

    fn oracle_operations(&self, _: &Time) -> usize {
        20_000
    }
}

impl Backing for State {
    type Store = RedisStore;

    async fn client(&self) -> Result<RedisStore> {
        let config = RedisConfig::from_url(&self.server().url())?
            .timeout(Duration::from_secs(30))
            .forget_after(Some(self.forget_after));
        Ok(config.open().await?)
    }

    fn time(&self) -> Time {
        Time::Manual(self.clocked().clock.clone())
    }

    async fn advance(&self, by: Duration) {
        Server::advance(&[self.server()], by).expect("the server runs");
    }

    async fn step_wall(&self, step: WallStep) -> Result<bool> {
        Server::step_wall(&[self.server()], step)?;
        Ok(true)
    }

    async fn observe(&self) -> Result<Observation> {
        let client = redis::Client::open(self.server().url())?;
        let mut link = client.get_multiplexed_async_connection().await?;
        let text = |value: Value| redis::from_redis_value::<Vec<u8>>(value).map_err(Failure::from);
        let mut ask = async |words: &[&[u8]]| -> Result<Value> {
            let mut command = redis::Cmd::new();
            command.arg(words);
            Ok(link.send_packed_command(&command).await?)
        };
        let now = self.clocked().clock.wall_micros() / 1_000;
        let Value::Array(names) = ask(&[b"KEYS", b"*"]).await? else {
            return Err(Failure::new("no names"));
        };
        let (mut rows, mut counters) = (Vec::new(), Vec::new());
        for name in names {
            let name = text(name)?;
            let Some(at) = name
                .strip_prefix(b"lh:lock:{")
                .map(|rest| rest.windows(2).position(|two| two == b"}:").expect("a tag ends"))
            else {
                continue;
            };
            let plain = &name[b"lh:lock:{".len() + at + 2..];
            let key = Key::try_from(plain)?;
            let value: Option<Vec<u8>> = redis::from_redis_value(ask(&[b"GET", plain]).await?)?;
            let ends: i64 = redis::from_redis_value(ask(&[b"PEXPIRETIME", plain]).await?)?;
            // The server itself has it until a millisecond later.
            let value = value.filter(|_| u64::try_from(ends).map_or(true, |ends| ends > now));
            let fields: Vec<Vec<u8>> = redis::from_redis_value(ask(&[b"HGETALL", &name]).await?)?;
            let fields: Vec<_> = fields.chunks(2).map(|pair| (&pair[0], &pair[1])).collect();
            let mark = fields.iter().find(|(name, _)| *name == b"mark").map(|(_, mark)| *mark);
            for (name, field) in &fields {
                if *name == b"token" {
                    counters.push((key.clone(), String::from_utf8((*field).clone())?.parse()?));
                }
                let Some(id) = name.strip_prefix(b"=") else { continue };
                rows.push(row(&key, id, field, value.as_ref(), mark, now)?);
            }
        }
        Ok(Observation::new(rows, counters))
    }

    async fn restart(&self) -> Result<Restarted> {
        self.server().restart().await?;
        Ok(Restarted::Persisted)
    }
}

/// A holder as it is written; see docs/stores/redis.md.
fn row(
    key: &Key,
    id: &[u8],
    field: &[u8],
    value: Option<&Vec<u8>>,
    mark: Option<&Vec<u8>>,
    now: u64,
) -> Result<Row> {
    let text = String::from_utf8(field.to_vec())?;
    let mut parts = text.splitn(6, ' ');
    let mut next = || parts.next().ok_or_else(|| Failure::new("a short record"));
    let kind = next()?.to_owned();
    let ends: u64 = next()?.parse()?;
    let token: u64 = next()?.parse()?;
    let (_, _) = (next()?, next()?);
    let json: serde_json::Value = serde_json::from_str(next()?)?;
    let live = match (kind.as_str(), value) {
        (_, None) | ("xe" | "se", _) => false,
        (_, value) if value == mark => ends == 0 || ends > now,
        ("xh", Some(value)) => value == id,
        _ => false,
    };
    let mode = if kind.starts_with('s') { Mode::SHARED } else { Mode::Exclusive };
    let mut row = Row::new(key.clone(), Some(LeaseId::foreign(id)?), mode, live);
    row.token = FencingToken::new(token).ok();
    let part = |name: &str| json.get(name).and_then(|value| value.as_str());
    row.owner = part("owner").map(Owner::new).transpose()?;
    if let Some(host) = part("host") {
        row.note = row.note.with_host(host)?;
    }
    if let Some(pid) = json.get("pid").and_then(serde_json::Value::as_u64) {
        row.note = row.note.with_pid(pid.try_into()?);
    }
    if let Some(program) = part("program") {
        row.note = row.note.with_program(program)?;
    }
    if let Some(comment) = part("comment") {
        row.note = row.note.with_comment(comment)?;
    }
    Ok(row)
}
