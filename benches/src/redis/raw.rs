//! What a careful user would write by hand: scripts on one multiplexed connection of the driver.

use std::time::Duration;

use leasehold::{Error, LeaseId, Result};
use leasehold_redis::redis::aio::MultiplexedConnection;
use leasehold_redis::redis::{self, AsyncConnectionConfig, Cmd, IntoConnectionInfo as _, Value};

use crate::subjects::TTL;

/// A connection without a time limit.
pub(crate) async fn connect(url: &str) -> Result<MultiplexedConnection> {
    connected(url, None).await
}

/// A connection with this limit for every answer.
pub(crate) async fn connected(url: &str, limit: Option<Duration>) -> Result<MultiplexedConnection> {
    let info = format!("{url}?protocol=resp3").into_connection_info().map_err(failed)?;
    let tcp = info.tcp_settings().clone().set_nodelay(true);
    let client = redis::Client::open(info.set_tcp_settings(tcp)).map_err(failed)?;
    let config = AsyncConnectionConfig::new().set_response_timeout(limit);
    client.get_multiplexed_async_connection_with_config(&config).await.map_err(failed)
}

pub(crate) async fn send(link: &mut MultiplexedConnection, command: &Cmd) -> Result<Value> {
    link.send_packed_command(command).await.and_then(Value::extract_error).map_err(failed)
}

/// A section of the server's INFO.
pub(crate) async fn info(link: &mut MultiplexedConnection, section: &str) -> Result<String> {
    let reply = send(link, redis::cmd("INFO").arg(section)).await?;
    redis::from_redis_value(reply).map_err(|e| failed(e.into()))
}

/// The value of a field in such a section.
pub(crate) fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
}

/// How many times clients have called these commands; a script counts as one.
pub(crate) async fn calls(link: &mut MultiplexedConnection, commands: &[&str]) -> Result<u64> {
    statistics(link, commands, "calls").await
}

/// The sum of a value that the server counts for each command, of these commands.
pub(crate) async fn statistics(
    link: &mut MultiplexedConnection,
    commands: &[&str],
    value: &str,
) -> Result<u64> {
    let info = info(link, "commandstats").await?;
    let values = commands.iter().filter_map(|command| {
        let stats = field(&info, &format!("cmdstat_{command}"))?;
        let value = stats.split(',').find_map(|one| one.strip_prefix(value)?.strip_prefix('='));
        value?.parse::<u64>().ok()
    });
    Ok(values.sum())
}

/// The scripts of an acquire and a release, as the server knows them.
#[derive(Clone)]
pub(crate) struct Scripts {
    acquire: String,
    release: String,
    forms: Forms,
}

/// Which scripts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Forms {
    /// Those of the store.
    Same,
    /// `SET NX PX`, which is a command, and compare-and-delete.
    Least,
}

/// A script of the store: for the usual case, and for every case.
macro_rules! script {
    ($flags:literal, $name:literal) => {
        concat!(
            "#!lua",
            $flags,
            "\n",
            include_str!(concat!(
                "../../../crates/leasehold-redis/src/scripts/",
                $name,
                ".fast.lua"
            )),
            include_str!("../../../crates/leasehold-redis/src/scripts/common.lua"),
            include_str!(concat!("../../../crates/leasehold-redis/src/scripts/", $name, ".lua")),
        )
    };
}
const DELETE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

impl Scripts {
    pub(crate) async fn load(link: &mut MultiplexedConnection, forms: Forms) -> Result<Self> {
        let mut load = async |text: &str| {
            let hash = send(link, redis::cmd("SCRIPT").arg("LOAD").arg(text)).await?;
            redis::from_redis_value::<String>(hash).map_err(|e| failed(e.into()))
        };
        Ok(match forms {
            Forms::Same => Self {
                acquire: load(script!("", "acquire")).await?,
                release: load(script!(" flags=allow-oom", "release")).await?,
                forms,
            },
            Forms::Least => Self { acquire: String::new(), release: load(DELETE).await?, forms },
        })
    }

    pub(crate) fn acquire(&self, key: &str, id: &str) -> Cmd {
        let mut command = Cmd::new();
        match self.forms {
            Forms::Same => command
                .arg("EVALSHA")
                .arg(&self.acquire)
                .arg(3)
                .arg(key)
                .arg(format!("lh:lock:{{{key}}}:{key}"))
                .arg("lh:token")
                .arg(id)
                .arg(TTL.as_millis())
                .arg(TTL.as_millis() + 3_600_001)
                .arg(NOTE),
            Forms::Least => {
                command.arg("SET").arg(key).arg(id).arg("NX").arg("PX").arg(TTL.as_millis())
            }
        };
        command
    }

    pub(crate) fn release(&self, key: &str, id: &str) -> Cmd {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&self.release);
        match self.forms {
            Forms::Same => command.arg(2).arg(key).arg(format!("lh:lock:{{{key}}}:{key}")).arg(id),
            Forms::Least => command.arg(1).arg(key).arg(id),
        };
        command
    }

    /// Acquires and releases.
    pub(crate) async fn pair(&self, link: &mut MultiplexedConnection, key: &str) -> Result<()> {
        let id = LeaseId::mint()?.to_string();
        send(link, &self.acquire(key, &id)).await?;
        send(link, &self.release(key, &id)).await?;
        Ok(())
    }
}

/// As long as the front end's note.
const NOTE: &str = r#"{"host":"some-host","pid":12345,"program":"leasehold-benches"}"#;
pub(crate) fn failed(error: redis::RedisError) -> Error {
    Error::unexpected("a raw call failed").with_source(error)
}
