//! One connection to a server: it is shared, pipelined, and made again when it breaks.

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

use crate::scripts::Script;
use crate::wakeups::Listeners;
use crate::way::Way;
use crate::{error, health};

/// The way to one server.
#[derive(Clone)]
pub(crate) struct Connections(Arc<Inner>);

/// How every server is asked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Manner {
    /// The most that one exchange takes.
    pub(crate) timeout: Duration,
    /// How long a server that has just started is asked to grant nothing.
    pub(crate) quarantine: Duration,
    /// How many replicas must have a lease before it counts.
    pub(crate) replicas: u64,
}

/// Told when something may have changed about who serves what.
pub(crate) type Alarm = Box<dyn Fn() + Send + Sync>;

struct Inner {
    way: Way,
    server: String,
    manner: Manner,
    alarm: Option<Alarm>,
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

/// What is sent around a script, at once with it.
#[derive(Clone, Copy)]
struct Around {
    asking: bool,
    /// How many replicas are waited for.
    replicas: u64,
    /// For how many milliseconds.
    patience: u64,
}

impl Connected {
    /// Sends a script: its answer, and how many replicas have what it wrote. An answer that is an error is one here too.
    async fn send(&mut self, script: Cmd, around: Around) -> redis::RedisResult<(Value, u64)> {
        if !around.asking && around.replicas == 0 {
            let answer = self.link.send_packed_command(&script).await?.extract_error()?;
            return Ok((answer, 0));
        }
        let mut pipeline = Pipeline::new();
        if around.asking {
            pipeline.cmd("ASKING").ignore();
        }
        pipeline.add_command(script);
        if around.replicas > 0 {
            pipeline.cmd("WAIT").arg(around.replicas).arg(around.patience);
        }
        pipeline.ignore_errors();
        let count = pipeline.len();
        let answers = self.link.send_packed_commands(&pipeline, 0, count).await?;
        let mut answers = answers.into_iter().skip(usize::from(around.asking));
        let answer = answers.next().unwrap_or(Value::Nil).extract_error()?;
        match answers.next().map(Value::extract_error).transpose()? {
            Some(copies) => Ok((answer, redis::from_redis_value(copies)?)),
            None => Ok((answer, 0)),
        }
    }
}

impl Connected {
    /// Changes which channels the server tells us of.
    async fn subscribe(&mut self, how: &str, channels: &[String]) -> redis::RedisResult<()> {
        if channels.is_empty() {
            return Ok(());
        }
        let mut pipeline = Pipeline::with_capacity(channels.len());
        for channel in channels {
            pipeline.cmd(how).arg(channel);
        }
        self.link.send_packed_commands(&pipeline, 0, channels.len()).await.map(drop)
    }
}

/// What became of a script.
#[derive(Debug)]
pub(crate) enum Ran {
    /// Its answer, and how many replicas have what it wrote.
    Answered(Value, u64),
    /// It did not run: its keys are elsewhere.
    Elsewhere(Redirect),
}

/// Where a node of a cluster says that a slot is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Redirect {
    pub(crate) slot: u16,
    /// `host:port`; without a host, that of the node which says so.
    pub(crate) address: String,
    /// Only this once: the slot is on its way there.
    pub(crate) once: bool,
}

impl Redirect {
    pub(crate) fn of(error: &redis::RedisError) -> Option<Self> {
        let (address, slot) = error.redirect_node()?;
        Some(Self { slot, address: address.to_owned(), once: error.code() == Some("ASK") })
    }
}

impl Connections {
    pub(crate) fn new(way: Way, manner: Manner, alarm: Option<Alarm>) -> Self {
        Self(Arc::new(Inner {
            server: way.to_string(),
            way,
            manner,
            alarm,
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

    /// How the server is asked.
    pub(crate) fn manner(&self) -> Manner {
        self.0.manner
    }

    /// Whether the server is one that Sentinel chose, and may choose otherwise.
    pub(crate) fn is_chosen(&self) -> bool {
        matches!(self.0.way, Way::Sentinel(_))
    }

    pub(crate) fn listeners(&self) -> &Arc<Listeners> {
        &self.0.listeners
    }

    /// Makes the connection, if there is none.
    pub(crate) async fn connect(&self) -> Result<()> {
        self.exchange(async |_| Ok(())).await
    }

    /// Runs a script, unless the server says that the keys are elsewhere. `asking` is for keys that are on their way to
    /// this server.
    pub(crate) async fn run(
        &self,
        script: &Script,
        keys: &[&str],
        arguments: &[Argument<'_>],
        asking: bool,
    ) -> Result<Ran> {
        let replicas = if script.makes_leases { self.0.manner.replicas } else { 0 };
        // Half of the limit, so that the answer still comes within it.
        let patience = u64::try_from(self.0.manner.timeout.as_millis() / 2).unwrap_or(u64::MAX);
        let ran = self.exchange(async |connected| {
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
            let around = Around { asking, replicas, patience };
            let sent = match connected.send(command("EVALSHA", &script.hash), around).await {
                Err(error) if error.code() == Some("NOSCRIPT") => {
                    connected.send(command("EVAL", &script.text), around).await
                }
                other => other,
            };
            match sent {
                Err(error) => Redirect::of(&error).map(Ran::Elsewhere).ok_or(error),
                Ok((value, copies)) => Ok(Ran::Answered(value, copies)),
            }
        });
        match ran.await? {
            Ran::Answered(_, copies) if copies < replicas => Err(Error::unavailable(
                Effect::Unknown,
                format!(
                    "only {copies} of the {replicas} replicas that `replicas` asks for have what {} wrote",
                    self.server()
                ),
            )),
            ran => Ok(ran),
        }
    }

    /// Sends several commands at once; an answer that is an error is among the answers.
    pub(crate) async fn ask(&self, commands: Vec<Cmd>) -> Result<Vec<Value>> {
        let mut pipeline = Pipeline::with_capacity(commands.len());
        let count = commands.len();
        for command in commands {
            pipeline.add_command(command);
        }
        pipeline.ignore_errors();
        let replies = self
            .exchange(async |connected| {
                connected.link.send_packed_commands(&pipeline, 0, count).await
            })
            .await?;
        if replies.len() == count {
            Ok(replies)
        } else {
            Err(error::odd(self.server(), "the number of answers"))
        }
    }

    /// One exchange, within the limit.
    async fn exchange<T>(
        &self,
        send: impl AsyncFnOnce(&mut Connected) -> redis::RedisResult<T>,
    ) -> Result<T> {
        let inner = &self.0;
        let mut over = pin!(tokio::time::sleep(inner.manner.timeout));
        let mut connected = tokio::select! {
            biased;
            connected = inner.connected() => connected?,
            () = &mut over => return Err(Error::unavailable(
                Effect::None,
                format!("no connection to {} could be made within {:?}", inner.server, inner.manner.timeout),
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
                    format!("{} did not answer within {:?}", inner.server, inner.manner.timeout),
                ));
            }
        };
        sent.map_err(|failure| {
            // A replica that was a master: whoever is one now is found by connecting again.
            if !is_answer(&failure) || failure.code() == Some("READONLY") {
                inner.give_up(serial);
            }
            error::of(&inner.server, failure)
        })
    }

    /// Tells the server to tell us of these channels, and waits until it does.
    pub(crate) async fn listen(&self, channels: &[String]) -> Result<()> {
        self.exchange(async |connected| {
            let _turn = self.0.ordering.lock().await;
            connected.subscribe("SSUBSCRIBE", channels).await
        })
        .await
    }

    /// The listener of this number hears of these channels no more. Of those that nobody listens to any more the server
    /// is told in the background.
    pub(crate) fn leave(&self, number: u64, channels: &[String]) {
        let unheard = self.0.listeners.leave(number, channels);
        if !unheard.is_empty() {
            self.stop_listening(unheard);
        }
    }

    fn stop_listening(&self, channels: Vec<String>) {
        // Without a runtime the connection has ended too.
        let Ok(runtime) = Handle::try_current() else { return };
        let this = self.clone();
        runtime.spawn(async move {
            let _turn = this.0.ordering.lock().await;
            let left = this.0.listeners.unheard(channels);
            let current = this.0.current();
            if let (false, Some(mut connected)) = (left.is_empty(), current) {
                // If it fails, hints come that nobody reads.
                let told = connected.subscribe("SUNSUBSCRIBE", &left);
                drop(tokio::time::timeout(this.0.manner.timeout, told).await);
            }
        });
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
                    PushKind::SMessage => inner.listeners.hint(&push.data),
                    // Also when nobody asked: the channel's slot has gone elsewhere.
                    PushKind::SUnsubscribe if inner.listeners.is_heard(&push.data) => inner.alarm(),
                    PushKind::Disconnection => {
                        ends.store(true, Ordering::Release);
                        inner.give_up(serial);
                    }
                    _ => {}
                }
                Ok(())
            });
        let client = self.way.client(self.manner.timeout).await?;
        let mut link = client.get_multiplexed_async_connection_with_config(&config).await?;
        let mut quarantine = micros_up(self.manner.quarantine).div_ceil(1_000);
        if quarantine > 0 && health::is_durable(&mut link).await? {
            quarantine = 0;
        }
        let mut connected = Connected { link, serial, ended, quarantine };
        connected.subscribe("SSUBSCRIBE", &self.listeners.channels()).await?;
        Ok(connected)
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
        self.alarm();
        if let (false, Ok(runtime)) = (self.listeners.is_empty(), Handle::try_current()) {
            runtime.spawn(heal(Arc::downgrade(self)));
        }
    }

    fn alarm(&self) {
        if let Some(alarm) = &self.alarm {
            alarm();
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
            tokio::time::timeout(inner.manner.timeout, inner.connected()).await;
        match healed {
            Ok(Ok(_)) => return,
            Ok(Err(error)) => tracing::debug!(%error, "no wake-ups come until the server is back"),
            Err(_) => {}
        }
        inner.alarm();
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
