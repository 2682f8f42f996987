//! One connection to a server: it is shared, pipelined, and made again when it breaks.

use std::collections::HashSet;
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

use crate::argument::Argument;
use crate::endpoint::Endpoint;
use crate::listeners::Listeners;
use crate::names::Name;
use crate::scripts::Script;
use crate::{error, health};

/// The way to one server.
#[derive(Clone)]
pub(crate) struct Connections(Arc<Inner>);

/// How every server is asked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConnectionOptions {
    /// The most that one exchange takes.
    pub(crate) timeout: Duration,
    /// How long a server that has just started is asked to grant nothing.
    pub(crate) quarantine: Duration,
    /// How many replicas must have a lease before it counts.
    pub(crate) replicas: u64,
    /// Whether it is a node of a cluster.
    pub(crate) in_cluster: bool,
}

/// Told when something may have changed about who serves what.
pub(crate) type Alarm = Box<dyn Fn() + Send + Sync>;

struct Inner {
    endpoint: Endpoint,
    server: String,
    options: ConnectionOptions,
    alarm: Option<Alarm>,
    /// The connection in use.
    current: Mutex<Option<Connected>>,
    /// Held by whoever makes a connection, so that of many one does.
    connecting: tokio::sync::Mutex<()>,
    /// Held by whoever changes what the server tells us, so that it follows `listeners`.
    ordering: tokio::sync::Mutex<()>,
    serial: AtomicU64,
    listeners: Arc<Listeners>,
    /// Channels of which the server may tell us no more, until it is told again to.
    lost: Mutex<HashSet<String>>,
    /// Held by whoever heals, so that of many one does, and let go of also by a task that ends with its runtime.
    healing: Arc<tokio::sync::Mutex<()>>,
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

/// How many replicas have what a script wrote, if they were asked.
type Copies = std::result::Result<u64, String>;

impl Connected {
    /// Sends a script. An answer that is an error is one here too.
    async fn send(&mut self, script: &Cmd) -> redis::RedisResult<Value> {
        self.link.send_packed_command(script).await?.extract_error()
    }

    /// Sends a script whose keys are on their way here.
    async fn send_asking(&mut self, script: Cmd) -> redis::RedisResult<Value> {
        let mut pipeline = Pipeline::with_capacity(2);
        pipeline.cmd("ASKING").add_command(script);
        let answers = self.link.send_packed_commands(&pipeline, 0, 2).await?;
        answers.into_iter().next_back().unwrap_or(Value::Nil).extract_error()
    }

    /// How many of so many replicas have all that was written here until now. That it cannot be told is not the script's
    /// failure, which has acted.
    async fn copies(&mut self, wanted: u64, patience: Duration) -> redis::RedisResult<Copies> {
        // 0 would be for ever.
        let patience = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX).max(1);
        let mut wait = redis::cmd("WAIT");
        wait.arg(wanted).arg(patience);
        Ok(match self.link.send_packed_command(&wait).await? {
            Value::ServerError(refused) => {
                Err(format!("{} {}", refused.code(), refused.details().unwrap_or("")))
            }
            copies => redis::from_redis_value(copies).map_err(|error| error.to_string()),
        })
    }

    /// Changes which channels the server tells us of.
    async fn subscribe(&mut self, how: &str, channels: &[String]) -> redis::RedisResult<()> {
        if channels.is_empty() {
            return Ok(());
        }
        let mut pipeline = Pipeline::with_capacity(channels.len());
        for channel in channels {
            pipeline.cmd(how).arg(channel);
        }
        let answers = self.link.send_packed_commands(&pipeline, 0, channels.len()).await?;
        answers.into_iter().try_for_each(|answer| answer.extract_error().map(drop))
    }
}

/// Whether somebody may believe in a lease because of this answer of a script.
fn makes_a_lease(answer: &Value) -> bool {
    let says = |parts: &[Value], word: &[u8]| matches!(parts.first(), Some(Value::BulkString(said)) if said == word);
    let Value::Array(parts) = answer else { return false };
    says(parts, b"granted")
        || parts.iter().any(|part| matches!(part, Value::Array(of) if says(of, b"held")))
}

/// What became of a script.
#[derive(Debug)]
pub(crate) enum ScriptReply {
    /// Its answer.
    Answered(Value),
    /// It did not run: its keys are elsewhere.
    Elsewhere(Redirect),
}

/// Where a node of a cluster says that the slot of the keys is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Redirect {
    /// `host:port`; without a host, that of the node which says so.
    pub(crate) address: String,
    /// Only this once: the slot is on its way there.
    pub(crate) once: bool,
}

impl Redirect {
    pub(crate) fn of(error: &redis::RedisError) -> Option<Self> {
        let (address, _) = error.redirect_node()?;
        Some(Self { address: address.to_owned(), once: error.code() == Some("ASK") })
    }
}

impl Connections {
    pub(crate) fn new(
        endpoint: Endpoint,
        options: ConnectionOptions,
        alarm: Option<Alarm>,
    ) -> Self {
        Self(Arc::new(Inner {
            server: endpoint.to_string(),
            endpoint,
            options,
            alarm,
            current: Mutex::default(),
            connecting: tokio::sync::Mutex::default(),
            ordering: tokio::sync::Mutex::default(),
            serial: AtomicU64::new(0),
            listeners: Arc::default(),
            lost: Mutex::default(),
            healing: Arc::default(),
        }))
    }

    /// The server's name in messages.
    pub(crate) fn server(&self) -> &str {
        &self.0.server
    }

    /// How the server is asked.
    pub(crate) fn options(&self) -> ConnectionOptions {
        self.0.options
    }

    /// Whether the server is one that Sentinel chose, and may choose otherwise.
    pub(crate) fn is_chosen(&self) -> bool {
        matches!(self.0.endpoint, Endpoint::Sentinel(_))
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
        names: &[Name],
        arguments: &[Argument<'_>],
        asking: bool,
    ) -> Result<ScriptReply> {
        let ConnectionOptions { replicas, timeout, .. } = self.0.options;
        let ran = self.exchange(async |connected| {
            let quarantine = connected.quarantine;
            let bytes = names.iter().map(Name::len).chain(arguments.iter().map(Argument::len));
            let bytes = bytes.sum::<usize>() + Script::CALL;
            let command = |name: &str, which: &str| {
                let mut command = Cmd::with_capacity(2 * names.len() + arguments.len() + 3, bytes);
                command.arg(name).arg(which).arg(2 * names.len());
                for name in names {
                    command.arg(name.plain()).arg(name.metadata());
                }
                for argument in arguments {
                    match argument {
                        Argument::Bytes(bytes) => command.arg(&**bytes),
                        Argument::Number(number) => command.arg(*number),
                        Argument::Quarantine => command.arg(quarantine),
                    };
                }
                command
            };
            let sent = if asking {
                connected.send_asking(command("EVALSHA", &script.hash)).await
            } else {
                connected.send(&command("EVALSHA", &script.hash)).await
            };
            let sent = match sent {
                Err(error) if error.code() == Some("NOSCRIPT") => {
                    let whole = command("EVAL", &script.text);
                    if asking {
                        connected.send_asking(whole).await
                    } else {
                        connected.send(&whole).await
                    }
                }
                other => other,
            };
            let value = match sent {
                Err(error) => {
                    let elsewhere = Redirect::of(&error).map(ScriptReply::Elsewhere);
                    return elsewhere.map(|ran| (ran, Ok(replicas))).ok_or(error);
                }
                Ok(value) => value,
            };
            // On the connection that wrote, within half of the limit, so that the answer still comes within it.
            let copies = match replicas {
                1.. if makes_a_lease(&value) => connected.copies(replicas, timeout / 2).await?,
                _ => Ok(replicas),
            };
            Ok((ScriptReply::Answered(value), copies))
        });
        let (ran, copies) = ran.await?;
        let why = match copies {
            Ok(copies) if copies >= replicas => return Ok(ran),
            Ok(copies) => format!("only {copies} have"),
            Err(said) => format!("the server said: {said}"),
        };
        Err(Error::unavailable(
            Effect::Unknown,
            format!(
                "not all of the {replicas} replicas that are asked for have what {} wrote; {why}",
                self.server()
            ),
        ))
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
        let mut over = pin!(tokio::time::sleep(inner.options.timeout));
        let mut connected = tokio::select! {
            biased;
            connected = inner.connected() => connected?,
            () = &mut over => return Err(Error::unavailable(
                Effect::NotApplied,
                format!("no connection to {} could be made within {:?}", inner.server, inner.options.timeout),
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
                    format!("{} did not answer within {:?}", inner.server, inner.options.timeout),
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
            connected.subscribe("SSUBSCRIBE", &self.0.listeners.heard(channels)).await
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
                drop(tokio::time::timeout(this.0.options.timeout, told).await);
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

    fn lost(&self) -> MutexGuard<'_, HashSet<String>> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner)
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
            .set_push_sender(move |notifications: PushInfo| {
                let Some(inner) = inner.upgrade() else { return Err(()) };
                match notifications.kind {
                    PushKind::SMessage => inner.listeners.hint(&notifications.data),
                    // Also when nobody asked: the channel's slot has gone elsewhere.
                    PushKind::SUnsubscribe if inner.options.in_cluster => {
                        if let Some(channel) = inner.listeners.heard_at(&notifications.data) {
                            Connections(inner).heal(vec![channel]);
                        }
                    }
                    PushKind::Disconnection => {
                        ends.store(true, Ordering::Release);
                        inner.give_up(serial);
                    }
                    _ => {}
                }
                Ok(())
            });
        let client = self.endpoint.client(self.options.timeout).await?;
        let mut link = client.get_multiplexed_async_connection_with_config(&config).await?;
        // What a node tells unasked when a slot moves would be taken for an answer here: wake-ups come the same way.
        if !self.options.in_cluster && health::is_in_cluster(&mut link).await? {
            return Err(redis::make_extension_error(error::IN_CLUSTER.to_owned(), None));
        }
        let mut quarantine = micros_up(self.options.quarantine).div_ceil(1_000);
        if quarantine > 0 && health::is_durable(&mut link).await? {
            quarantine = 0;
        }
        let mut connected = Connected { link, serial, ended, quarantine };
        let channels = self.listeners.channels();
        match connected.subscribe("SSUBSCRIBE", &channels).await {
            // Who listens is told when it asks; what has moved is elsewhere soon.
            Err(refused) if is_answer(&refused) => Connections(Arc::clone(self)).heal(channels),
            subscribed => subscribed?,
        }
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
        if !self.listeners.is_empty() {
            Connections(Arc::clone(self)).heal(Vec::new());
        }
    }

    fn alarm(&self) {
        if let Some(alarm) = &self.alarm {
            alarm();
        }
    }
}

impl Connections {
    /// In the background, as long as somebody waits to be woken: connects, and listens again to what is lost.
    pub(crate) fn heal(&self, lost: Vec<String>) {
        self.0.lost().extend(lost);
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(heal(Arc::downgrade(&self.0)));
        }
    }
}

async fn heal(inner: Weak<Inner>) {
    let mut pause = FIRST_PAUSE;
    loop {
        let Some(this) = inner.upgrade().map(Connections) else { return };
        let is_well = this.0.current().is_some() && this.0.lost().is_empty();
        if is_well || this.listeners().is_empty() {
            return;
        }
        // Whoever has the turn looks again after it.
        let Ok(_turn) = Arc::clone(&this.0.healing).try_lock_owned() else { return };
        let lost: Vec<_> = this.0.lost().drain().collect();
        match this.listen(&lost).await {
            // Anything may have happened meanwhile.
            Ok(()) => this.listeners().hint_at(&lost),
            Err(error) => {
                tracing::debug!(%error, "no wake-ups come until the server tells us of them again");
                this.0.lost().extend(lost);
                this.0.alarm();
            }
        }
        drop(this);
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
