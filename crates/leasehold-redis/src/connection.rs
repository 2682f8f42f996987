//! One connection to the server for everything: it is shared, pipelined, and made again when it breaks.

use std::fmt;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use leasehold_core::term::micros_up;
use leasehold_core::{Effect, Error, Result};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, Pipeline, PushInfo, PushKind, Value};
use tokio::runtime::Handle;

use crate::config::server_name;
use crate::scripts::Script;
use crate::wakeups::Listeners;
use crate::{error, health};

/// The way to the server.
#[derive(Clone)]
pub(crate) struct Connections(Arc<Inner>);

struct Inner {
    client: redis::Client,
    server: String,
    timeout: Duration,
    quarantine: Duration,
    /// The connection in use.
    current: Mutex<Option<Connected>>,
    /// Held by whoever makes a connection, so that of many one does.
    connecting: tokio::sync::Mutex<()>,
    /// Held by whoever changes what the server tells us, so that it follows `listeners`.
    ordering: tokio::sync::Mutex<()>,
    serial: AtomicU64,
    listeners: Arc<Listeners>,
}

/// One connection.
#[derive(Clone)]
struct Connected {
    link: MultiplexedConnection,
    serial: u64,
    /// The driver has told that it ended.
    ended: Arc<AtomicBool>,
    /// How long after its start the server grants nothing, in milliseconds.
    quarantine: u64,
}

impl Connected {
    /// One command; an answer that is an error is one here too.
    async fn send(&mut self, command: &Cmd) -> redis::RedisResult<Value> {
        self.link.send_packed_command(command).await?.extract_error()
    }
}

impl Connections {
    pub(crate) fn new(client: redis::Client, timeout: Duration, quarantine: Duration) -> Self {
        Self(Arc::new(Inner {
            server: server_name(&client),
            client,
            timeout,
            quarantine,
            current: Mutex::default(),
            connecting: tokio::sync::Mutex::default(),
            ordering: tokio::sync::Mutex::default(),
            serial: AtomicU64::new(0),
            listeners: Arc::default(),
        }))
    }

    /// The server's name in messages.
    pub(crate) fn server(&self) -> &str {
        &self.0.server
    }

    /// How long a server that has just started is asked to grant nothing.
    pub(crate) fn quarantine(&self) -> Duration {
        self.0.quarantine
    }

    pub(crate) fn listeners(&self) -> &Arc<Listeners> {
        &self.0.listeners
    }

    /// Makes the connection, if there is none.
    pub(crate) async fn connect(&self) -> Result<()> {
        self.exchange(async |_| Ok(Value::Nil)).await.map(drop)
    }

    /// Runs a script. `{quarantine}` among its arguments stands for that of the connection it goes through.
    pub(crate) async fn run(
        &self,
        script: &Script,
        keys: &[&str],
        arguments: &[Argument<'_>],
    ) -> Result<Value> {
        self.exchange(async |connected| {
            let quarantine = connected.quarantine;
            let bytes = keys.iter().map(|key| key.len()).chain(arguments.iter().map(Argument::len));
            let bytes = bytes.sum::<usize>() + Script::CALL;
            let command = |name: &str, which: &str| {
                let mut command = Cmd::with_capacity(keys.len() + arguments.len() + 3, bytes);
                command.arg(name).arg(which).arg(keys.len()).arg(keys);
                for argument in arguments {
                    match argument {
                        Argument::Bytes(bytes) => command.arg(&**bytes),
                        Argument::Number(number) => command.arg(*number),
                        Argument::Quarantine => command.arg(quarantine),
                    };
                }
                command
            };
            match connected.send(&command("EVALSHA", &script.hash)).await {
                Err(error) if error.code() == Some("NOSCRIPT") => {
                    connected.send(&command("EVAL", &script.text)).await
                }
                other => other,
            }
        })
        .await
    }

    /// Sends several commands at once; an answer that is an error is among the answers.
    pub(crate) async fn ask(&self, commands: Vec<Cmd>) -> Result<Vec<Value>> {
        let mut pipeline = Pipeline::with_capacity(commands.len());
        let count = commands.len();
        for command in commands {
            pipeline.add_command(command);
        }
        pipeline.ignore_errors();
        let reply = self
            .exchange(async |connected| {
                let sent = connected.link.send_packed_commands(&pipeline, 0, count).await;
                sent.map(Value::Array)
            })
            .await?;
        match reply {
            Value::Array(replies) if replies.len() == count => Ok(replies),
            _ => Err(self.odd("the number of answers")),
        }
    }

    /// One exchange, within the limit.
    async fn exchange(
        &self,
        send: impl AsyncFnOnce(&mut Connected) -> redis::RedisResult<Value>,
    ) -> Result<Value> {
        let inner = &self.0;
        let mut over = pin!(tokio::time::sleep(inner.timeout));
        let mut connected = tokio::select! {
            biased;
            connected = inner.connected() => connected?,
            () = &mut over => return Err(Error::unavailable(
                Effect::None,
                format!("no connection to {} could be made within {:?}", inner.server, inner.timeout),
            )),
        };
        let serial = connected.serial;
        let sent = tokio::select! {
            biased;
            sent = send(&mut connected) => sent,
            () = &mut over => {
                // A connection that says nothing for so long may be dead.
                inner.give_up(serial);
                return Err(Error::unavailable(
                    Effect::Unknown,
                    format!("{} did not answer within {:?}", inner.server, inner.timeout),
                ));
            }
        };
        sent.map_err(|failure| {
            if !is_answer(&failure) {
                inner.give_up(serial);
            }
            error::of(&inner.server, failure)
        })
    }

    /// Tells the server to tell us of these channels, and waits until it does.
    pub(crate) async fn listen(&self, channels: &[String]) -> Result<()> {
        let listened = self.exchange(async |connected| {
            let _turn = self.0.ordering.lock().await;
            connected.link.subscribe(channels).await.map(|()| Value::Nil)
        });
        listened.await.map(drop)
    }

    /// Tells the server to stop telling us of those of these channels that nobody listens to any more, in the
    /// background.
    pub(crate) fn stop_listening(&self, channels: Vec<String>) {
        // Without a runtime the connection has ended too.
        let Ok(runtime) = Handle::try_current() else { return };
        let this = self.clone();
        runtime.spawn(async move {
            let _turn = this.0.ordering.lock().await;
            let left = this.0.listeners.unheard(channels);
            let current = this.0.current();
            if let (false, Some(mut connected)) = (left.is_empty(), current) {
                // If it fails, hints come that nobody reads.
                let told = connected.link.unsubscribe(left);
                drop(tokio::time::timeout(this.0.timeout, told).await);
            }
        });
    }

    /// An answer that no script of ours gives.
    pub(crate) fn odd(&self, what: &str) -> Error {
        Error::unexpected(format!(
            "{} gave an answer that no script of ours gives: {what}",
            self.server()
        ))
        .with_effect(Effect::Unknown)
    }
}

impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.server)
    }
}

impl Inner {
    fn slot(&self) -> MutexGuard<'_, Option<Connected>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn current(&self) -> Option<Connected> {
        self.slot().clone()
    }

    async fn connected(self: &Arc<Self>) -> Result<Connected> {
        if let Some(connected) = self.current() {
            return Ok(connected);
        }
        let _turn = self.connecting.lock().await;
        if let Some(connected) = self.current() {
            return Ok(connected);
        }
        let connected =
            self.connect().await.map_err(|failure| error::of_connecting(&self.server, failure))?;
        *self.slot() = Some(connected.clone());
        if connected.ended.load(Ordering::Acquire) {
            // That was told before there was anything to give up.
            self.give_up(connected.serial);
        }
        self.listeners.hint_all();
        Ok(connected)
    }

    async fn connect(self: &Arc<Self>) -> redis::RedisResult<Connected> {
        let serial = self.serial.fetch_add(1, Ordering::Relaxed);
        let inner = Arc::downgrade(self);
        let ended = Arc::<AtomicBool>::default();
        let ends = Arc::clone(&ended);
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_push_sender(move |push: PushInfo| {
                let Some(inner) = inner.upgrade() else { return Err(()) };
                match push.kind {
                    PushKind::Message => inner.listeners.hint(&push.data),
                    PushKind::Disconnection => {
                        ends.store(true, Ordering::Release);
                        inner.give_up(serial);
                    }
                    _ => {}
                }
                Ok(())
            });
        let mut link = self.client.get_multiplexed_async_connection_with_config(&config).await?;
        let mut quarantine = micros_up(self.quarantine).div_ceil(1_000);
        if quarantine > 0 && health::is_durable(&mut link).await? {
            quarantine = 0;
        }
        let channels = self.listeners.channels();
        if !channels.is_empty() {
            link.subscribe(channels).await?;
        }
        Ok(Connected { link, serial, ended, quarantine })
    }

    /// Uses this connection no more.
    fn give_up(self: &Arc<Self>, serial: u64) {
        {
            let mut slot = self.slot();
            if slot.as_ref().is_none_or(|current| current.serial != serial) {
                return;
            }
            *slot = None;
        }
        if let (false, Ok(runtime)) = (self.listeners.is_empty(), Handle::try_current()) {
            runtime.spawn(heal(Arc::downgrade(self)));
        }
    }
}

/// Connects again as long as somebody waits to be woken.
async fn heal(inner: Weak<Inner>) {
    let mut pause = FIRST_PAUSE;
    loop {
        let Some(inner) = inner.upgrade() else { return };
        if inner.listeners.is_empty() {
            return;
        }
        let healed: Result<Result<_>, _> =
            tokio::time::timeout(inner.timeout, inner.connected()).await;
        match healed {
            Ok(Ok(_)) => return,
            Ok(Err(error)) => tracing::debug!(%error, "no wake-ups come until the server is back"),
            Err(_) => {}
        }
        drop(inner);
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// True if the server said so, and the connection is as good as before.
fn is_answer(failure: &redis::RedisError) -> bool {
    matches!(failure.kind(), redis::ErrorKind::Server(_) | redis::ErrorKind::Extension)
}

/// What a script is given.
#[derive(Debug)]
pub(crate) enum Argument<'a> {
    Bytes(std::borrow::Cow<'a, [u8]>),
    Number(u64),
    /// That of the connection which the script goes through.
    Quarantine,
}

impl Argument<'_> {
    /// How many bytes it has at most.
    fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Number(_) | Self::Quarantine => 20,
        }
    }
}

impl<'a> From<&'a str> for Argument<'a> {
    fn from(text: &'a str) -> Self {
        Self::Bytes(text.as_bytes().into())
    }
}

impl From<String> for Argument<'_> {
    fn from(text: String) -> Self {
        Self::Bytes(text.into_bytes().into())
    }
}

impl From<u64> for Argument<'_> {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl<'a> From<&'a leasehold_core::LeaseId> for Argument<'a> {
    fn from(id: &'a leasehold_core::LeaseId) -> Self {
        Self::Bytes(id.to_bytes())
    }
}
