//! The connection on which the server notifies this process, and who listens for which key.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use leasehold_core::{Effect, Error, Key, LeaseId, Result, Wakeups};
use leasehold_driver::{Listeners, outliving};
use leasehold_sql::{micros, unanswered};
use tokio::runtime::Handle;
use tokio::sync::{Mutex as AsyncMutex, oneshot};
use tokio_postgres::types::Type;
use tokio_postgres::{AsyncMessage, Client, SimpleQueryMessage};

use crate::call::{Call, names};
use crate::connect::connect;
use crate::error;
use crate::pool::Pool;
use crate::server::Server;
use crate::sql::Sql;
use crate::trace;

/// For how long the server keeps a listener that does not renew its row.
const REMEMBERED: Duration = Duration::from_secs(60);
/// How often the connection is checked: whether it lives, and its server is still the primary.
const LOOK_EVERY: Duration = Duration::from_millis(2_500);
/// After how many checks the rows are renewed.
const LOOKS: u32 = 4;
/// The bytes of a name that are its channel; the function `wake` knows it too.
const CHANNEL: usize = "leasehold_0".len();
/// How far apart those who are notified of the same release try, on average: tries that must fail leave the server time for
/// the next release.
const EACH: Duration = Duration::from_millis(3);
/// The pause before the next attempt to connect, while anyone listens.
const PAUSE: Duration = Duration::from_secs(1);
/// How long a new waiter does not try to listen after an attempt to connect has failed.
const CUT_OFF_FOR: Duration = Duration::from_secs(30);

/// The listeners of this process.
pub(crate) struct Listener {
    server: Server,
    pool: Pool,
    sql: Arc<Sql>,
    /// The name under which the server knows who listens.
    name: String,
    listeners: Listeners,
    /// The keys for which the last one has left, and the server may not know it yet.
    unsubscribed: Mutex<Vec<String>>,
    client: AsyncMutex<Option<Client>>,
    /// One change at a time is sent to the server.
    changes: AsyncMutex<()>,
    /// The last attempt to connect or to send a change failed.
    cut_off: AtomicBool,
    watched: AtomicBool,
    /// Its store was closed, and nobody has begun to listen since.
    closed: AtomicBool,
}

impl Listener {
    pub(crate) fn new(server: Server, pool: Pool, sql: Arc<Sql>) -> Arc<Self> {
        let id = LeaseId::mint().map_or_else(|_| String::new(), |id| id.to_string());
        Arc::new(Self {
            server,
            pool,
            sql,
            name: format!("leasehold_{}", id.replace('-', "")),
            listeners: Listeners::default(),
            unsubscribed: Mutex::default(),
            client: AsyncMutex::default(),
            changes: AsyncMutex::default(),
            cut_off: AtomicBool::new(false),
            watched: AtomicBool::new(false),
            closed: AtomicBool::new(false),
        })
    }

    /// Whether anyone here listens for one of these keys.
    pub(crate) fn is_subscribed<'a>(&self, keys: impl Iterator<Item = &'a Key>) -> bool {
        self.listeners.has_any(keys.map(Key::as_str))
    }

    /// Removes the listeners that have left, and ends the connection as the protocol requires.
    pub(crate) async fn close(&self) {
        let _turn = self.changes.lock().await;
        self.forget().await;
        self.closed.store(true, Ordering::SeqCst);
        *self.client.lock().await = None;
    }

    /// Whether no notification can arrive at the moment.
    pub(crate) fn is_cut_off(&self) -> bool {
        self.cut_off.load(Ordering::Relaxed)
    }

    /// Hints for these keys, from the moment that this ends.
    pub(crate) async fn listen(self: &Arc<Self>, keys: &[Key]) -> Result<Wakeups> {
        let until = self.pool.deadline();
        let late = |effect| unanswered(&self.server.name, until.limit(), effect);
        self.closed.store(false, Ordering::SeqCst);
        // Nobody is registered before.
        let connected = until.bound(self.connected()).await;
        connected.unwrap_or_else(|| Err(late(Effect::NotApplied)))?;
        let registered = until.bound(self.registered(keys)).await;
        registered.unwrap_or_else(|| Err(late(Effect::Unknown)))
    }

    async fn registered(self: &Arc<Self>, keys: &[Key]) -> Result<Wakeups> {
        let left_keys: Vec<_> = keys.iter().map(|key| key.as_str().to_owned()).collect();
        let left = Arc::clone(self);
        let leave = move |subscription| left.leave(subscription, &left_keys);
        let (listeners, wakeups) = leasehold_driver::Listener::subscribe(keys, leave);
        for (key, listener) in keys.iter().zip(listeners) {
            self.listeners.add(key.as_str(), vec![listener]);
        }
        // The tries that follow lock the row: they see every release that does not see this.
        self.register(names(keys)).await?;
        self.watch();
        Ok(wakeups)
    }

    /// Ends the hints of this subscription.
    fn leave(self: &Arc<Self>, subscription: u64, keys: &[String]) {
        let unsubscribed = self.listeners.leave(subscription, keys);
        // Without a runtime, the server forgets it after a while.
        if let (false, Ok(runtime)) = (unsubscribed.is_empty(), Handle::try_current()) {
            self.unsubscribed().extend(unsubscribed);
            let listener = Arc::clone(self);
            runtime.spawn(async move {
                let _turn = listener.changes.lock().await;
                listener.forget().await;
            });
        }
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    fn unsubscribed(&self) -> MutexGuard<'_, Vec<String>> {
        self.unsubscribed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The channel of this process and of others whose names begin alike: there are 16, so that the server sees as many texts.
    fn channel(&self) -> &str {
        self.name.get(..CHANNEL).unwrap_or(&self.name)
    }

    /// Connects unless a connection lives. Completes even if its requester leaves, because the server would log an incomplete
    /// handshake.
    fn connected(self: &Arc<Self>) -> impl Future<Output = Result<()>> + use<> {
        let listener = Arc::clone(self);
        outliving(async move {
            let mut client = listener.client.lock().await;
            if client.as_ref().is_some_and(|client| !client.is_closed()) {
                return Ok(());
            }
            if listener.is_closed() {
                return Err(Error::unavailable(Effect::NotApplied, "the store was closed"));
            }
            let limit = listener.pool.timeout();
            let connected = tokio::time::timeout(limit, listener.connect()).await;
            let connected = connected.unwrap_or_else(|_| {
                Err(unanswered(&listener.server.name, limit, Effect::NotApplied))
            });
            listener.cut_off.store(connected.is_err(), Ordering::Relaxed);
            if connected.is_err() {
                listener.try_again_later();
            }
            *client = Some(connected?);
            Ok(())
        })
    }

    /// Lets new waiters try to listen again after a pause.
    fn try_again_later(self: &Arc<Self>) {
        let listener = Arc::downgrade(self);
        #[expect(clippy::disallowed_methods, reason = "ends with the pause")]
        drop(tokio::spawn(async move {
            tokio::time::sleep(CUT_OFF_FOR).await;
            listener.upgrade().inspect(|listener| listener.cut_off.store(false, Ordering::Relaxed));
        }));
    }

    async fn connect(self: &Arc<Self>) -> Result<Client> {
        // Not while the store's server is in doubt.
        drop(self.pool.get(self.pool.deadline()).await?);
        let Server { config, tls, name } = &self.server;
        let failed = |e| error::of_connecting(name, e);
        let connected = connect(config, tls, self.pool.timeout()).await;
        let (client, mut connection) = connected.map_err(failed)?;
        let (notified, is_open) = (Arc::downgrade(self), self.pool.open());
        let (ready, is_ready) = oneshot::channel();
        let mut ready = Some(ready);
        #[expect(clippy::disallowed_methods, reason = "the listeners' own connection")]
        drop(tokio::spawn(async move {
            let _is_open = is_open;
            loop {
                let message = poll_fn(|context| connection.poll_message(context)).await;
                match (message, notified.upgrade()) {
                    (Some(Ok(AsyncMessage::Notification(notification))), Some(listener)) => {
                        if notification.payload().is_empty() {
                            if let Some(ready) = ready.take() {
                                // The one who waits may have given up.
                                ready.send(()).unwrap_or_default();
                            }
                        } else {
                            listener.hint(notification.payload());
                        }
                    }
                    (Some(Ok(_)), _) => {}
                    (Some(Err(_)) | None, listener) => {
                        return listener.iter().for_each(|listener| listener.lost());
                    }
                }
            }
        }));
        client.batch_execute(&format!("LISTEN {}", self.channel())).await.map_err(failed)?;
        // From another connection: a pooler passes nothing on to a client that sends nothing.
        // As in the function `wake`: the commit may have to wait for others that notify.
        let text =
            "SELECT pg_catalog.set_config('lock_timeout', '0', true), pg_catalog.pg_notify($1, '')";
        self.query(Call::new(text).with(Type::TEXT, self.channel())).await?;
        is_ready.await.map_err(|_| {
            let message = format!("the connection to {name} for wake-ups ended");
            Error::unavailable(Effect::NotApplied, message)
        })?;
        Ok(client)
    }

    /// Registers who listens for these keys at the server.
    async fn register(&self, keys: Vec<&str>) -> Result<()> {
        let _turn = self.changes.lock().await;
        let listen = Call::new(&self.sql.listen)
            .with(Type::TEXT_ARRAY, keys)
            .with(Type::TEXT, &*self.name)
            .with(Type::INT8, micros(REMEMBERED));
        self.query(listen).await
    }

    /// Removes the rows of keys that have no listener any more.
    async fn forget(&self) {
        let keys = std::mem::take(&mut *self.unsubscribed());
        let keys = self.listeners.without_listener(keys);
        // Nobody connects for this: the server forgets it after a while.
        if keys.is_empty() || self.is_closed() {
            return;
        }
        // If it fails, hints arrive that nobody reads.
        let leave = Call::new(&self.sql.leave).with(Type::TEXT_ARRAY, keys);
        drop(self.query(leave.with(Type::TEXT, &*self.name)).await);
    }

    async fn query(&self, call: Call<'_>) -> Result<()> {
        let until = self.pool.deadline();
        let connection = self.pool.get(until).await?;
        let (_, asked) = self.pool.query(connection, until, call).await;
        asked.map(drop).map_err(|failure| self.pool.error(failure))
    }

    /// Passes on a notification: how many listeners it has, and the key.
    fn hint(&self, payload: &str) {
        let Some((listeners, key)) = payload.split_once(' ') else { return };
        let listeners: u32 = listeners.parse().unwrap_or(1);
        let within = EACH.saturating_mul(listeners.saturating_sub(1));
        self.listeners.hint(key, within);
    }

    /// The connection has ended: notifications are lost until there is another.
    fn lost(&self) {
        self.cut_off.store(true, Ordering::Relaxed);
        self.listeners.hint_at_once(&self.listeners.names());
    }

    /// In the background, while anyone listens: renews the rows, and replaces a connection that has ended or is
    /// dead on one side.
    fn watch(self: &Arc<Self>) {
        let Ok(runtime) = Handle::try_current() else { return };
        if !self.watched.swap(true, Ordering::SeqCst) {
            runtime.spawn(watch(Watch(Arc::downgrade(self))));
        }
    }

    /// Whether all is well. Renews the rows if `renews`, and after notifications may have been lost.
    async fn look(self: &Arc<Self>, renews: bool) -> Result<()> {
        let was_cut_off = self.cut_off.load(Ordering::Relaxed);
        let mut client = self.client.lock().await;
        if let Some(known) = &*client {
            let asked = known.simple_query("SHOW transaction_read_only");
            let is_on = |message: &_| matches!(message, SimpleQueryMessage::Row(row) if row.get(0) == Some("on"));
            let fails = match tokio::time::timeout(self.pool.timeout(), asked).await {
                Ok(Ok(answer)) => {
                    answer.iter().any(is_on).then_some("has a server that is read-only now")
                }
                _ => Some("is dead"),
            };
            if let Some(why) = fails {
                *client = None;
                let message = format!("the connection for wake-ups {why}");
                return Err(Error::unavailable(Effect::NotApplied, message));
            }
        }
        drop(client);
        self.connected().await?;
        if renews || was_cut_off {
            let keys = self.listeners.names();
            self.register(keys.iter().map(String::as_str).collect()).await?;
        }
        if was_cut_off {
            self.lost();
            self.cut_off.store(false, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Lets another task watch when this one ends, with its runtime too.
struct Watch(Weak<Listener>);

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(listener) = self.0.upgrade() {
            listener.watched.store(false, Ordering::SeqCst);
        }
    }
}

async fn watch(watch: Watch) {
    let Some(mut retirements) = watch.0.upgrade().map(|listener| listener.pool.retirements())
    else {
        return;
    };
    let mut pause = LOOK_EVERY;
    for look in 1u32.. {
        // What has shown that the other sessions are useless may be true of this one.
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            Ok(()) = retirements.changed(), if pause == LOOK_EVERY => {}
        }
        let Some(listener) = watch.0.upgrade() else { return };
        if listener.listeners.is_empty() || listener.is_closed() {
            return;
        }
        pause = LOOK_EVERY;
        if let Err(error) = listener.look(look % LOOKS == 0).await {
            listener.lost();
            trace::no_wakeups(&error);
            pause = PAUSE;
        }
    }
}
