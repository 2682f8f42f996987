//! Connections.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use deadpool_postgres::{
    Manager, ManagerConfig, Object, Pool, PoolError, RecyclingMethod, Runtime, TimeoutType,
};
use leasehold_core::{Effect, Error, LeaseId, Result};
use leasehold_driver::sql::Doubt;
use tokio::sync::{Semaphore, watch};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Config, Row};

use crate::call::Call;
use crate::connect::Connector;
use crate::error;
use crate::tls::Tls;

/// How long a request waits for a row that somebody else is changing while others wait behind it.
pub(crate) const PATIENCE: Duration = Duration::from_millis(20);

/// The connections of a store.
#[derive(Debug, Clone)]
pub(crate) struct Links {
    pool: Pool,
    /// The server, for messages.
    pub(crate) server: String,
    pub(crate) timeout: Duration,
    /// How many of them are reserved for what travels together, so that at least one is not.
    pub(crate) lanes: usize,
    /// Each connection is a session that the server began for us, so settings stay.
    pub(crate) direct: bool,
    /// Statements can be prepared.
    prepares: bool,
    /// The sessions' transactions are not READ COMMITTED by default.
    isolates: Arc<AtomicBool>,
    /// The connections for what travels together, while nothing travels.
    reserved: Arc<Mutex<Vec<Link>>>,
    kept: Arc<Kept>,
    retired: Retired,
    /// Whether their server may have been demoted.
    doubt: Doubt,
    /// The sessions are a caller's, who may have begun anything in them.
    are_callers: bool,
}

/// The connections of a caller's pool that never go back to it, so that its other users cannot take them all.
#[derive(Debug)]
struct Kept {
    most: usize,
    idle: Mutex<Vec<Object>>,
    /// As many permits as are idle.
    count: Semaphore,
}

/// The moment before which no session may have begun.
#[derive(Debug, Clone, Default)]
struct Retired(Arc<watch::Sender<Option<Instant>>>);

/// One connection, until it is dropped. It goes back to the pool only if what was begun on it has ended, outside a
/// transaction, and its session is not retired; otherwise it is closed.
#[derive(Debug)]
pub(crate) struct Link {
    /// Until the end.
    client: Option<Object>,
    prepares: bool,
    is_callers: bool,
    /// All that was begun on it has ended, and it is in no transaction.
    is_clean: bool,
    kept: Arc<Kept>,
    retired: Retired,
}

/// The fewest connections: one is reserved for what travels together.
pub(crate) const FEWEST: usize = 2;

/// How many connections of a caller's pool are kept for what does not travel together.
const KEPT: usize = 1;

/// Does nothing outside a transaction; in one it fails, and so does whatever follows there: only outside may a block
/// commit.
const OUTSIDE: &str = "DO 'BEGIN COMMIT; END'";

/// The most connections that are reserved, of our own.
const LANES: usize = 2;

impl Links {
    /// Connects to the server of this configuration.
    pub(crate) async fn connect(
        config: &Config,
        tls: &Tls,
        most: usize,
        server: String,
        timeout: Duration,
    ) -> Result<Self> {
        let build = |config: Config| -> Result<Self> {
            let fast = ManagerConfig { recycling_method: RecyclingMethod::Fast };
            let connector = Connector { tls: tls.clone(), limit: timeout };
            let pool = Pool::builder(Manager::from_connect(config, connector, fast))
                .max_size(most.max(FEWEST))
                .runtime(Runtime::Tokio1)
                .build()
                .map_err(|e| Error::unexpected("the pool cannot be built").with_source(e))?;
            Ok(Self {
                pool,
                server: server.clone(),
                timeout,
                lanes: LANES.min(most.max(FEWEST) - 1),
                direct: false,
                prepares: false,
                isolates: Arc::default(),
                reserved: Arc::default(),
                kept: Arc::new(Kept::at_most(0)),
                retired: Retired::default(),
                are_callers: false,
                doubt: Doubt::default(),
            })
        };
        // A pooler refuses these options, or ignores them: its connections are not sessions of ours.
        let sign = LeaseId::mint()?.to_string();
        let mut options = config.get_options().unwrap_or_default().to_owned();
        options.push_str(&format!(
            " -c leasehold.session={sign} -c lock_timeout={}",
            PATIENCE.as_millis()
        ));
        let mut signed = config.clone();
        signed.options(options);
        let mut links = build(signed)?;
        match links.session_sign().await {
            Ok(found) if found.as_deref() == Some(sign.as_str()) => {
                (links.direct, links.prepares) = (true, true);
                return Ok(links);
            }
            Ok(_) => {}
            Err(Failure::Server(e)) if is_of_options(&e) => {}
            Err(failure) => return Err(failure.into_error(&server)),
        }
        let links = build(config.clone())?;
        links.session_sign().await.map_err(|failure| failure.into_error(&server))?;
        Ok(links)
    }

    /// The connections of a caller's pool. Those that are reserved, so many of them for what travels together, are taken
    /// now.
    pub(crate) async fn of_pool(
        pool: Pool,
        prepares: bool,
        timeout: Duration,
        lanes: usize,
    ) -> Result<Self> {
        let (most, reserved) = (pool.status().max_size, lanes + KEPT);
        if most <= reserved {
            return Err(Error::invalid_input(format!(
                "the pool has at most {most} connections; it must have {} or more, because the store keeps {reserved} of \
                 them",
                reserved + 1
            )));
        }
        let links = Self {
            pool,
            server: "the pool's server".to_owned(),
            timeout,
            lanes,
            direct: false,
            prepares,
            isolates: Arc::default(),
            reserved: Arc::default(),
            kept: Arc::new(Kept::at_most(KEPT)),
            retired: Retired::default(),
            are_callers: true,
            doubt: Doubt::default(),
        };
        let mut taken = Vec::new();
        for _ in 0..reserved {
            taken.push(links.get().await?);
        }
        links.reserved.lock().unwrap_or_else(PoisonError::into_inner).extend(taken.drain(KEPT..));
        Ok(links)
    }

    /// Ends the idle connections that are ours.
    pub(crate) fn close(&self) {
        if self.direct {
            drop(self.pool.retain(|_, _| false));
        }
    }

    async fn session_sign(&self) -> Result<Option<String>, Failure> {
        let text = "SELECT pg_catalog.current_setting('leasehold.session', true)";
        let mut link = self.link().await?;
        let rows = link.rows(&Call::new(text, []), false).await.map_err(Failure::Server)?;
        Ok(rows.first().and_then(|row| row.try_get(0).ok()).flatten())
    }

    /// A connection.
    pub(crate) async fn get(&self) -> Result<Link> {
        self.link().await.map_err(|failure| failure.into_error(&self.server))
    }

    async fn link(&self) -> Result<Link, Failure> {
        let got = async {
            loop {
                self.doubt.settle(self.is_writable()).await.map_err(Failure::Doubtful)?;
                tokio::select! {
                    biased;
                    link = self.fresh() => return link.map_err(|e| self.failure(e)),
                    // Who waits for a connection meanwhile makes none.
                    () = self.doubt.raised() => {}
                }
            }
        };
        let got = tokio::time::timeout(self.timeout, got).await;
        got.unwrap_or_else(|_| Err(self.none_free(self.timeout)))
    }

    fn failure(&self, error: PoolError) -> Failure {
        match error {
            PoolError::Backend(e) => Failure::Server(e),
            // A caller's pool has limits of its own.
            PoolError::Timeout(TimeoutType::Wait) => {
                self.none_free(self.pool.timeouts().wait.unwrap_or(self.timeout))
            }
            other => Failure::Pool(other),
        }
    }

    /// A session has answered as one does whose server may have been demoted: all that there are end, and a fresh one asks
    /// before others are used.
    pub(crate) fn doubt(&self) {
        self.doubt.raise();
        self.retire();
    }

    /// Asks a session whether its server is writable. Others begin after it if it is not.
    async fn is_writable(&self) -> Result<()> {
        let text = "SELECT pg_catalog.current_setting('transaction_read_only')::boolean, pg_catalog.pg_is_in_recovery()";
        let asked = async {
            let mut link = self.fresh().await.map_err(|e| self.failure(e))?;
            link.rows(&Call::new(text, []), false).await.map_err(Failure::Server)
        };
        let rows = asked.await.map_err(|failure| failure.into_error(&self.server))?;
        let is = |column| rows.first().is_some_and(|row| row.try_get(column).unwrap_or(false));
        if is(0) {
            self.retire();
            return Err(error::read_only(&self.server, is(1)));
        }
        Ok(())
    }

    /// Changes at every [`retire`](Self::retire).
    pub(crate) fn retirements(&self) -> watch::Receiver<Option<Instant>> {
        self.retired.0.subscribe()
    }

    fn none_free(&self, limit: Duration) -> Failure {
        let status = self.pool.status();
        let all_in_use = (status.size >= status.max_size).then_some(status.max_size);
        Failure::NoneFree { all_in_use, limit }
    }

    /// A connection whose session is not retired.
    async fn fresh(&self) -> Result<Link, PoolError> {
        loop {
            let asked = self.retired.at();
            let client = tokio::select! {
                biased;
                Some(kept) = self.kept.take() => kept,
                client = self.pool.get() => client?,
            };
            let is_new = Object::metrics(&client).recycle_count == 0;
            let link = Link {
                client: Some(client),
                prepares: self.prepares,
                is_callers: self.are_callers,
                kept: Arc::clone(&self.kept),
                // A session that was being made may have begun before.
                is_clean: !is_new || asked == self.retired.at(),
                retired: self.retired.clone(),
            };
            if link.is_usable() {
                return Ok(link);
            }
        }
    }

    /// A connection for what travels together.
    pub(crate) async fn reserved(&self) -> Result<Link> {
        let reserved = self.reserved.lock().unwrap_or_else(PoisonError::into_inner).pop();
        match reserved.filter(Link::is_usable) {
            Some(link) => Ok(link),
            None => self.get().await,
        }
    }

    /// Keeps it for what travels together next.
    pub(crate) fn reserve(&self, link: Link) {
        let mut reserved = self.reserved.lock().unwrap_or_else(PoisonError::into_inner);
        if reserved.len() < self.lanes {
            reserved.push(link);
        }
    }

    /// Closes every session that began before now: the idle ones at once, those in use when they come back. The next
    /// ones choose their host afresh.
    pub(crate) fn retire(&self) {
        self.retired.set();
        self.reserved.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.kept.clear();
        self.pool.retain(|_, metrics| !self.retired.is(metrics.created));
    }

    /// How long a statement that has others behind it waits for a row; `None` if the session knows it.
    pub(crate) fn patience(&self) -> Option<String> {
        (!self.direct).then(|| PATIENCE.as_millis().to_string())
    }

    /// The rows that a call returns within `limit`, in one exchange, and the connection if it can be used again.
    pub(crate) async fn ask(
        &self,
        mut link: Link,
        limit: Duration,
        call: &Call<'_>,
    ) -> (Option<Link>, Result<Vec<Row>, Unanswered>) {
        let exchange = async {
            let isolates = self.isolates.load(Ordering::Relaxed);
            match link.rows(call, isolates).await {
                Err(e) if error::is_isolation(&e) => {
                    self.isolates.store(true, Ordering::Relaxed);
                    link.rows(call, true).await
                }
                rows => rows,
            }
        };
        match tokio::time::timeout(limit, exchange).await {
            Ok(Ok(rows)) => (Some(link), Ok(rows)),
            Ok(Err(e)) => {
                // Of a session that is retired it is known.
                if error::casts_doubt(&e) && !link.is_retired() {
                    self.doubt();
                }
                (Some(link).filter(Link::is_usable), Err(Unanswered::Server(e)))
            }
            // What was sent there may still act, so this one is closed. The others may be as dead.
            Err(_) => {
                self.retire();
                (None, Err(Unanswered::Late(limit)))
            }
        }
    }
}

impl Kept {
    fn at_most(most: usize) -> Self {
        Self { most, idle: Mutex::default(), count: Semaphore::new(0) }
    }

    /// One, when it is idle.
    async fn take(&self) -> Option<Object> {
        self.count.acquire().await.ok()?.forget();
        self.idle().pop()
    }

    /// Gives one back; to the pool if there are enough here.
    fn give(&self, client: Object) {
        let mut idle = self.idle();
        if idle.len() < self.most {
            idle.push(client);
            self.count.add_permits(1);
        }
    }

    /// Closes those that are idle.
    fn clear(&self) {
        let idle = std::mem::take(&mut *self.idle());
        self.count.forget_permits(idle.len());
        idle.into_iter().for_each(|client| drop(Object::take(client)));
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Object>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Retired {
    fn at(&self) -> Option<Instant> {
        *self.0.borrow()
    }

    #[expect(clippy::disallowed_methods, reason = "the pool's own metrics count on this clock")]
    fn set(&self) {
        self.0.send_replace(Some(Instant::now()));
    }

    fn is(&self, created: Instant) -> bool {
        self.at().is_some_and(|at| created <= at)
    }
}

/// Why an exchange has no rows.
#[derive(Debug)]
pub(crate) enum Unanswered {
    Server(tokio_postgres::Error),
    Late(Duration),
}

impl Unanswered {
    pub(crate) fn into_error(self, server: &str) -> Error {
        match self {
            Self::Server(e) => error::of(server, e),
            Self::Late(limit) => error::unanswered(server, limit),
        }
    }
}

impl Link {
    /// Whether it may still be used, as far as is known.
    fn is_usable(&self) -> bool {
        self.is_clean
            && !self.is_retired()
            && self.client.as_ref().is_some_and(|client| !client.is_closed())
    }

    fn is_retired(&self) -> bool {
        self.client.as_ref().is_some_and(|client| self.retired.is(Object::metrics(client).created))
    }

    fn client(&self) -> &Object {
        self.client.as_ref().expect("it has not ended")
    }

    /// The rows that a call returns; with `isolates` in a transaction that states its isolation, for a session whose
    /// default is another. All statements are sent together.
    async fn rows(
        &mut self,
        call: &Call<'_>,
        isolates: bool,
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        self.is_clean = false;
        let run = async |needed: bool, text| if needed { self.run(text).await } else { Ok(()) };
        let send = async {
            match isolates {
                true => self.client().query_typed(call.text, &call.values).await,
                false => self.send(call).await,
            }
        };
        let (outside, begun, rows, ended) = tokio::join!(
            run(self.is_callers, OUTSIDE),
            run(isolates, "BEGIN ISOLATION LEVEL READ COMMITTED"),
            send,
            run(isolates, "COMMIT"),
        );
        self.is_clean = [&outside, &begun, &ended].iter().all(|done| done.is_ok())
            && rows.as_ref().err().is_none_or(error::leaves_the_session);
        outside?;
        begun?;
        let rows = rows?;
        ended?;
        Ok(rows)
    }

    /// The rows that a call returns, as a part of a transaction.
    pub(crate) async fn send(&self, call: &Call<'_>) -> Result<Vec<Row>, tokio_postgres::Error> {
        if !self.prepares {
            // A pooler may run the next statement in another session, which knows no prepared one.
            return self.client().query_typed(call.text, &call.values).await;
        }
        let types: Vec<_> = call.values.iter().map(|(_, kind)| kind.clone()).collect();
        let statement = self.client().prepare_typed_cached(call.text, &types).await?;
        let values: Vec<_> = call.values.iter().map(|(value, _)| *value).collect();
        self.client().query(&statement, &values).await
    }

    /// Runs statements without values, as a part of a transaction.
    pub(crate) async fn run(&self, text: &str) -> Result<(), tokio_postgres::Error> {
        self.client().batch_execute(text).await
    }

    /// Runs a transaction: the statements that begin it, and what `then` sends. The connection is closed unless the server
    /// has said that the transaction was committed.
    pub(crate) async fn transaction(
        mut self,
        first: &str,
        then: impl AsyncFnOnce(&Self) -> Result<(), tokio_postgres::Error>,
    ) -> Result<(), tokio_postgres::Error> {
        self.is_clean = false;
        if self.is_callers {
            self.run(OUTSIDE).await?;
        }
        self.run(first).await?;
        then(&self).await?;
        self.run("COMMIT").await?;
        self.is_clean = true;
        Ok(())
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let is_usable = self.is_usable();
        match self.client.take() {
            Some(client) if is_usable => self.kept.give(client),
            Some(client) => drop(Object::take(client)),
            None => {}
        }
    }
}

/// Why there is no connection.
enum Failure {
    Server(tokio_postgres::Error),
    NoneFree {
        all_in_use: Option<usize>,
        limit: Duration,
    },
    Pool(PoolError),
    /// Nothing can be written there, or nobody knows.
    Doubtful(Error),
}

impl Failure {
    fn into_error(self, server: &str) -> Error {
        match self {
            Self::Server(e) => error::of_connecting(server, e),
            Self::NoneFree { all_in_use, limit } => {
                let message = match all_in_use {
                    Some(all) => format!(
                        "all {all} connections of the pool to {server} were in use for {limit:?}; raise their number, or \
                         give them back sooner"
                    ),
                    None => format!("no connection to {server} could be made within {limit:?}"),
                };
                Error::unavailable(Effect::NotApplied, message)
            }
            Self::Doubtful(error) => error,
            Self::Pool(e) => Error::unavailable(
                Effect::NotApplied,
                format!("the pool has no connection to {server} ({e})"),
            )
            .with_source(e),
        }
    }
}

/// The server or a pooler answered, and not about the login: without the options it may accept the connection.
fn is_of_options(error: &tokio_postgres::Error) -> bool {
    error.code().is_some_and(|code| {
        *code == SqlState::PROTOCOL_VIOLATION
            || *code == SqlState::FEATURE_NOT_SUPPORTED
            || *code == SqlState::INVALID_PARAMETER_VALUE
            || *code == SqlState::CONNECTION_EXCEPTION
    })
}
