//! The connection to a server: shared, pipelined, and replaced when it breaks.

mod drive;
pub(crate) mod exchange;
pub(crate) mod fit;
mod open;
mod order;
pub(crate) mod script;
pub(crate) mod subscriber;

use std::collections::HashSet;
use std::fmt;
use std::iter::once;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::Result;
use leasehold_driver::Listeners;
use redis::{AsyncConnectionConfig, PushInfo, PushKind};
use tokio::time::Instant;

use crate::credentials::Credentials;
use crate::durability::Statement;
use crate::endpoint::Endpoint;
use crate::error;
use open::{Connected, is_answer};
use order::Order;

/// The shared connection to one server.
#[derive(Clone)]
pub(crate) struct Connections(pub(crate) Arc<Inner>);

/// The options of every exchange.
#[derive(Clone)]
pub(crate) struct ConnectionOptions {
    /// The name of each connection, in `CLIENT LIST`.
    pub(crate) client_name: Option<Arc<str>>,
    pub(crate) credentials: Credentials,
    /// The limit of one exchange.
    pub(crate) timeout: Duration,
    /// What the caller stated about the server's durability.
    pub(crate) statement: Statement,
    /// How many replicas must have a lease before it counts.
    pub(crate) replicas: u64,
    /// Whether a server that may evict locks is accepted.
    pub(crate) allow_eviction: bool,
    /// Whether it is a node of a cluster.
    pub(crate) in_cluster: bool,
    /// Whether each new connection checks that locks are safe on the server.
    pub(crate) is_checked: bool,
}

/// Called when the topology may have changed.
pub(crate) type Alarm = Box<dyn Fn() + Send + Sync>;

pub(crate) struct Inner {
    pub(crate) endpoint: Endpoint,
    pub(crate) server: String,
    pub(crate) options: ConnectionOptions,
    alarm: Option<Alarm>,
    /// The present connection.
    current: Mutex<Option<Connected>>,
    pub(crate) order: Order,
    /// When a connection that stalled was last left.
    pub(crate) passed: Mutex<Option<Instant>>,
    /// Held while connecting, so that one caller connects for all.
    connecting: tokio::sync::Mutex<()>,
    /// Held while changing the server's subscriptions, so that they follow `listeners`.
    pub(crate) ordering: tokio::sync::Mutex<()>,
    serial: AtomicU64,
    pub(crate) listeners: Arc<Listeners>,
    /// Channels that were subscribed to, also on an earlier connection.
    subscribed: Mutex<HashSet<String>>,
    /// Channels that the server may no longer notify, until they are subscribed to again.
    lost: Mutex<HashSet<String>>,
    /// Held while a task watches the connection for those who listen.
    pub(crate) watching: Arc<tokio::sync::Mutex<()>>,
    /// Held while restoring subscriptions, so that one task does; also freed by a task that ends with its runtime.
    pub(crate) healing: Arc<tokio::sync::Mutex<()>>,
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
            order: Order::default(),
            passed: Mutex::default(),
            connecting: tokio::sync::Mutex::default(),
            ordering: tokio::sync::Mutex::default(),
            serial: AtomicU64::new(0),
            listeners: Arc::default(),
            subscribed: Mutex::default(),
            lost: Mutex::default(),
            watching: Arc::default(),
            healing: Arc::default(),
        }))
    }

    /// The server's name in messages.
    pub(crate) fn server(&self) -> &str {
        &self.0.server
    }

    /// The options of every exchange.
    pub(crate) fn options(&self) -> &ConnectionOptions {
        &self.0.options
    }

    /// Whether Sentinel chose the server, and may choose another.
    pub(crate) fn is_chosen(&self) -> bool {
        matches!(self.0.endpoint, Endpoint::Sentinel(_))
    }

    pub(crate) fn listeners(&self) -> &Arc<Listeners> {
        &self.0.listeners
    }

    /// Ends the connection, once what was sent on it is answered. If anyone listens, another follows.
    pub(crate) fn close(&self) {
        drop(self.0.slot().take());
        if !self.0.listeners.is_empty() {
            self.heal(Vec::new());
        }
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

    pub(crate) fn current(&self) -> Option<Connected> {
        self.slot().clone()
    }

    pub(crate) fn lost(&self) -> MutexGuard<'_, HashSet<String>> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn subscribed(&self) -> MutexGuard<'_, HashSet<String>> {
        self.subscribed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) async fn connected(self: &Arc<Self>) -> Result<Connected> {
        if let Some(connected) = self.current() {
            return Ok(connected);
        }
        let _turn = self.connecting.lock().await;
        if let Some(connected) = self.current() {
            return Ok(connected);
        }
        let failed = |failure| error::of_connecting(&self.server, failure);
        let (mut connected, again) = self.connect().await.map_err(failed)?;
        if self.options.is_checked {
            fit::fit(&mut connected, &self.server, &self.options).await.map_err(failed)??;
        }
        *self.slot() = Some(connected.clone());
        if connected.ended.load(Ordering::Acquire) {
            // The message came before there was a connection to give up.
            self.give_up(connected.serial);
        }
        // Anything may have happened meanwhile.
        self.listeners.hint_at_once(&again);
        Ok(connected)
    }

    /// A new connection, and the channels that an earlier one was subscribed to.
    async fn connect(self: &Arc<Self>) -> redis::RedisResult<(Connected, Vec<String>)> {
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
                    PushKind::SMessage => subscriber::hint(&inner.listeners, &notifications.data),
                    // Also without a request: the channel's slot has moved.
                    PushKind::SUnsubscribe if inner.options.in_cluster => {
                        let channel = subscriber::channel_of(&notifications.data);
                        let channel = channel.filter(|of| inner.listeners.has_any(once(*of)));
                        if let Some(channel) = channel.map(str::to_owned) {
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
        let ConnectionOptions { timeout, credentials, .. } = &self.options;
        let config = credentials.applied(config);
        let client = self.endpoint.client(*timeout, credentials).await?;
        let mut connected = Connected::open(&client, &config, serial, ended).await?;
        if let Some(name) = &self.options.client_name {
            let mut set = redis::cmd("CLIENT");
            set.arg("SETNAME").arg(&**name);
            connected.ask(&set).await?.extract_error()?;
        }
        // Pushed messages arrive on this connection too: what a node pushes when a slot moves would count as a
        // reply.
        if !self.options.in_cluster && fit::is_in_cluster(&mut connected).await? {
            return Err(redis::make_extension_error(error::IN_CLUSTER.to_owned(), None));
        }
        let channels = {
            let mut subscribed = self.subscribed();
            subscribed.retain(|channel| self.listeners.has_any(once(channel.as_str())));
            subscribed.iter().cloned().collect::<Vec<_>>()
        };
        match connected.subscribe("SSUBSCRIBE", &channels).await {
            // The caller that listens learns it on its next request; the slot is elsewhere soon.
            Err(refused) if is_answer(&refused) => {
                Connections(Arc::clone(self)).heal(channels.clone());
            }
            subscribed => subscribed?,
        }
        Ok((connected, channels))
    }

    /// Whether new requests use this connection.
    pub(crate) fn is_current(&self, serial: u64) -> bool {
        self.slot().as_ref().is_some_and(|current| current.serial == serial)
    }

    /// Stops using this connection.
    pub(crate) fn give_up(self: &Arc<Self>, serial: u64) {
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

    pub(crate) fn alarm(&self) {
        if let Some(alarm) = &self.alarm {
            alarm();
        }
    }
}
