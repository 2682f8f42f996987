//! One open connection.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, Pipeline, Value};

use super::drive::{self, Driver};

/// One connection.
#[derive(Clone)]
pub(crate) struct Connected {
    connection: MultiplexedConnection,
    pub(crate) serial: u64,
    /// The driver has reported its end.
    pub(crate) ended: Arc<AtomicBool>,
    /// Ends with the last clone.
    driver: Arc<Driver>,
}

/// How many replicas have what a script wrote, if that was asked.
pub(crate) type Copies = std::result::Result<u64, String>;

impl Connected {
    pub(super) async fn open(
        client: &Client,
        config: &AsyncConnectionConfig,
        serial: u64,
        ended: Arc<AtomicBool>,
    ) -> redis::RedisResult<Self> {
        let (connection, driver) = drive::open(client, config).await?;
        Ok(Self { connection, serial, ended, driver: Arc::new(driver) })
    }

    /// Sends a command; an error is one of the replies.
    pub(crate) async fn ask(&mut self, command: &Cmd) -> redis::RedisResult<Value> {
        let _under_way = self.driver.request();
        self.connection.send_packed_command(command).await
    }

    /// Sends several commands at once.
    pub(crate) async fn ask_all(
        &mut self,
        commands: &Pipeline,
        count: usize,
    ) -> redis::RedisResult<Vec<Value>> {
        let _under_way = self.driver.request();
        self.connection.send_packed_commands(commands, 0, count).await
    }

    /// Sends a script, `asking` if its keys are being moved to this node. A reply that is an error is returned as one.
    pub(crate) async fn send(&mut self, script: Cmd, asking: bool) -> redis::RedisResult<Value> {
        if asking {
            return Box::pin(self.send_asking(script)).await;
        }
        self.ask(&script).await?.extract_error()
    }

    async fn send_asking(&mut self, script: Cmd) -> redis::RedisResult<Value> {
        let mut pipeline = Pipeline::with_capacity(2);
        pipeline.cmd("ASKING").add_command(script);
        let answers = self.ask_all(&pipeline, 2).await?;
        answers.into_iter().next_back().unwrap_or(Value::Nil).extract_error()
    }

    /// How many of `replicas` have everything written on this connection so far. A failure to find out is not a
    /// failure of the script, which has acted.
    pub(crate) async fn copies(
        &mut self,
        wanted: u64,
        patience: Duration,
    ) -> redis::RedisResult<Copies> {
        // 0 would wait for ever.
        let patience = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX).max(1);
        let mut wait = redis::cmd("WAIT");
        wait.arg(wanted).arg(patience);
        Ok(match self.ask(&wait).await? {
            Value::ServerError(refused) => {
                Err(format!("{} {}", refused.code(), refused.details().unwrap_or("")))
            }
            copies => redis::from_redis_value(copies).map_err(|error| error.to_string()),
        })
    }

    /// Subscribes to channels or unsubscribes from them.
    pub(crate) async fn subscribe(
        &mut self,
        how: &str,
        channels: &[String],
    ) -> redis::RedisResult<()> {
        if channels.is_empty() {
            return Ok(());
        }
        let mut pipeline = Pipeline::with_capacity(channels.len());
        for channel in channels {
            pipeline.cmd(how).arg(channel);
        }
        let answers = self.ask_all(&pipeline, channels.len()).await?;
        answers.into_iter().try_for_each(|answer| answer.extract_error().map(drop))
    }
}

/// True if the server reported the failure, and the connection is as good as before.
pub(crate) fn is_answer(failure: &redis::RedisError) -> bool {
    matches!(failure.kind(), redis::ErrorKind::Server(_) | redis::ErrorKind::Extension)
}
