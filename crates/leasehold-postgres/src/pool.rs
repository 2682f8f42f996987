//! Connections.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use deadpool_postgres::{
    Manager, ManagerConfig, Object, PoolError, RecyclingMethod, Runtime, TimeoutType,
};
use leasehold_core::{Effect, Error, LeaseId, Result};
use leasehold_driver::Deadline;
use leasehold_sql::Doubt;
use tokio::sync::watch;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Config, Row};

use crate::call::Call;
use crate::connect::Connector;
use crate::connection::{BEGIN, Connection, Retired, within};
use crate::error;
use crate::kept::Kept;
use crate::row_waits::RowWaits;
use crate::tls::Tls;

/// How long a request waits for a row that somebody else is changing while others wait behind it.
pub(crate) const PATIENCE: Duration = Duration::from_millis(20);

/// The connections of a store.
#[derive(Debug, Clone)]
pub(crate) struct Pool {
    inner: deadpool_postgres::Pool,
    /// The server, for messages.
    pub(crate) server: String,
    pub(crate) timeout: Duration,
    /// How many of them are reserved for batches, so that at least one is not.
    pub(crate) lanes: usize,
    /// Each connection is a session that the server began for us, so settings stay.
    pub(crate) direct: bool,
    /// Statements can be prepared.
    pub(crate) prepares: bool,
    /// The sessions' transactions are not READ COMMITTED by default.
    isolates: Arc<AtomicBool>,
    /// The connections for batches, while none is under way.
    reserved: Arc<Mutex<Vec<Connection>>>,
    pub(crate) kept: Arc<Kept>,
    pub(crate) retired: Retired,
    /// Whether their server may have been demoted.
    doubt: Doubt,
    /// Who may wait for a row.
    pub(crate) row_waits: RowWaits,
    /// Has a receiver for each connection of our own that has not ended.
    open: Arc<watch::Sender<()>>,
    /// The sessions are a caller's, who may have begun anything in them.
    pub(crate) are_callers: bool,
}

/// The fewest connections: one is reserved for batches.
pub(crate) const FEWEST: usize = 2;

/// How many connections of a caller's pool are kept for what goes in no batch.
const KEPT: usize = 1;

/// How often to close what has come back meanwhile: no event reports that a connection is idle.
const SOON: Duration = Duration::from_millis(10);

/// The most connections that are reserved, of our own.
const LANES: usize = 2;

impl Pool {
    /// Connects to the server of this configuration.
    pub(crate) async fn connect(
        config: &Config,
        tls: &Tls,
        most: usize,
        server: String,
        timeout: Duration,
    ) -> Result<Self> {
        let most = most.max(FEWEST);
        let lanes = if most > LANES + 1 { LANES } else { 1 };
        let build = |config: Config| -> Result<Self> {
            let fast = ManagerConfig { recycling_method: RecyclingMethod::Fast };
            let open = Arc::new(watch::Sender::new(()));
            let connector = Connector { tls: tls.clone(), limit: timeout, open: Arc::clone(&open) };
            let pool =
                deadpool_postgres::Pool::builder(Manager::from_connect(config, connector, fast))
                    .max_size(most)
                    .runtime(Runtime::Tokio1)
                    .build()
                    .map_err(|e| Error::unexpected("the pool cannot be built").with_source(e))?;
            Ok(Self {
                inner: pool,
                server: server.clone(),
                timeout,
                lanes,
                direct: false,
                prepares: false,
                isolates: Arc::default(),
                reserved: Arc::default(),
                kept: Arc::new(Kept::at_most(0)),
                retired: Retired::default(),
                row_waits: RowWaits::new(most - lanes, most - lanes - 1),
                are_callers: false,
                open,
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
        let mut connected = build(signed)?;
        match connected.session_sign().await {
            Ok(found) if found.as_deref() == Some(sign.as_str()) => {
                (connected.direct, connected.prepares) = (true, true);
                return Ok(connected);
            }
            Ok(_) => {}
            Err(Failure::Server(e)) if is_of_options(&e) => {}
            Err(failure) => return Err(failure.into_error(&server)),
        }
        let connected = build(config.clone())?;
        connected.session_sign().await.map_err(|failure| failure.into_error(&server))?;
        Ok(connected)
    }

    /// The connections of a caller's pool. Those that are reserved, so many of them for batches, are taken
    /// now.
    pub(crate) async fn of_pool(
        pool: deadpool_postgres::Pool,
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
        let ours = Self {
            inner: pool,
            server: "the pool's server".to_owned(),
            timeout,
            lanes,
            direct: false,
            prepares,
            isolates: Arc::default(),
            reserved: Arc::default(),
            kept: Arc::new(Kept::at_most(KEPT)),
            retired: Retired::default(),
            // The application may have all the others.
            row_waits: RowWaits::new(most - lanes, 0),
            are_callers: true,
            open: Arc::default(),
            doubt: Doubt::default(),
        };
        let (mut taken, until) = (Vec::new(), ours.deadline());
        for _ in 0..reserved {
            taken.push(ours.get(until).await?);
        }
        ours.reserved.lock().unwrap_or_else(PoisonError::into_inner).extend(taken.drain(KEPT..));
        Ok(ours)
    }

    /// Ends the connections that are ours, each with a farewell, the idle ones at once; a caller's go back to their pool.
    pub(crate) async fn close(&self, until: Deadline) {
        if self.are_callers {
            self.reserved.lock().unwrap_or_else(PoisonError::into_inner).clear();
            return;
        }
        let all_end = async {
            // What is under way still connects, and gives its connections back. Were they retired while they are made, it
            // would make others for as long as that takes longer than a pause here.
            loop {
                self.end_idle();
                tokio::select! {
                    biased;
                    () = self.open.closed() => return,
                    () = tokio::time::sleep(SOON) => {}
                }
            }
        };
        // What does not end in time stays behind.
        until.bound(all_end).await;
    }

    /// Until it is dropped, [`close`](Self::close) waits.
    pub(crate) fn open(&self) -> watch::Receiver<()> {
        self.open.subscribe()
    }

    async fn session_sign(&self) -> Result<Option<String>, Failure> {
        let text = "SELECT pg_catalog.current_setting('leasehold.session', true)";
        let until = self.deadline();
        let mut connection = self.connection(until).await?;
        let call = Call::new(text, []);
        let rows =
            until.bound(connection.rows(&call, None)).await.ok_or(Failure::Late(until.limit()))?;
        let rows = rows.map_err(Failure::Server)?;
        Ok(rows.first().and_then(|row| row.try_get(0).ok()).flatten())
    }

    /// When an operation that begins now must have ended.
    pub(crate) fn deadline(&self) -> Deadline {
        Deadline::after(self.timeout)
    }

    /// A connection.
    pub(crate) async fn get(&self, until: Deadline) -> Result<Connection> {
        self.connection(until).await.map_err(|failure| failure.into_error(&self.server))
    }

    async fn connection(&self, until: Deadline) -> Result<Connection, Failure> {
        // Boxed, as every exchange, for the driver's futures are large and each operation has them several times over.
        let got = Box::pin(async {
            loop {
                self.doubt.settle(self.is_writable()).await.map_err(Failure::Doubtful)?;
                tokio::select! {
                    biased;
                    // Who waits for a connection meanwhile makes none.
                    () = self.doubt.raised() => {}
                    connection = self.fresh() => return connection.map_err(|e| self.failure(e)),
                }
            }
        });
        let were_all_in_use = self.are_all_in_use();
        until.bound(got).await.unwrap_or_else(|| match were_all_in_use {
            true => Err(self.all_in_use(until.limit())),
            false => Err(Failure::Late(until.limit())),
        })
    }

    fn failure(&self, error: PoolError) -> Failure {
        match error {
            PoolError::Backend(e) => Failure::Server(e),
            // A caller's pool has limits of its own.
            PoolError::Timeout(TimeoutType::Wait) => {
                self.all_in_use(self.inner.timeouts().wait.unwrap_or(self.timeout))
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
            let mut connection = self.fresh().await.map_err(|e| self.failure(e))?;
            connection.rows(&Call::new(text, []), None).await.map_err(Failure::Server)
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
        self.retired.watched()
    }

    fn are_all_in_use(&self) -> bool {
        let status = self.inner.status();
        status.size >= status.max_size && status.available == 0
    }

    fn all_in_use(&self, limit: Duration) -> Failure {
        Failure::AllInUse(self.inner.status().max_size, limit)
    }

    /// The error of an acquire that had no turn to use a connection.
    pub(crate) fn no_turn(&self, until: Deadline) -> Error {
        let (server, limit) = (&self.server, until.limit());
        Error::unavailable(
            Effect::NotApplied,
            format!(
                "other acquires kept all connections to {server} that acquires may use for {limit:?}"
            ),
        )
    }

    /// A connection whose session is not retired.
    async fn fresh(&self) -> Result<Connection, PoolError> {
        loop {
            let asked = self.retired.at();
            let client = tokio::select! {
                biased;
                Some(kept) = self.kept.take() => kept,
                client = self.inner.get() => client?,
            };
            let is_new = Object::metrics(&client).recycle_count == 0;
            // A session that was being made may have begun before.
            let connection = Connection::new(client, self, !is_new || asked == self.retired.at());
            if connection.is_usable() {
                return Ok(connection);
            }
        }
    }

    /// A connection for batches.
    pub(crate) async fn reserved(&self, until: Deadline) -> Result<Connection> {
        let reserved = self.reserved.lock().unwrap_or_else(PoisonError::into_inner).pop();
        match reserved.filter(Connection::is_usable) {
            Some(connection) => Ok(connection),
            None => self.get(until).await,
        }
    }

    /// Keeps it for batches next.
    pub(crate) fn reserve(&self, connection: Connection) {
        let mut reserved = self.reserved.lock().unwrap_or_else(PoisonError::into_inner);
        if reserved.len() < self.lanes {
            reserved.push(connection);
        }
    }

    /// Closes every session that began before now: the idle ones at once, those in use when they come back. The next
    /// ones choose their host afresh.
    pub(crate) fn retire(&self) {
        self.retired.set();
        self.end_idle();
    }

    fn end_idle(&self) {
        self.reserved.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.kept.clear();
        self.inner.retain(|_, _| false);
    }

    /// How long a statement that has others behind it waits for a row; `None` if the session knows it.
    pub(crate) fn patience(&self) -> Option<String> {
        (!self.direct).then(|| PATIENCE.as_millis().to_string())
    }

    /// The rows that a call returns, in one exchange, and the connection if it can be used again.
    pub(crate) async fn query(
        &self,
        connection: Connection,
        until: Deadline,
        call: &Call<'_>,
    ) -> (Option<Connection>, Result<Vec<Row>, Unanswered>) {
        let isolates = self.isolates.load(Ordering::Relaxed);
        self.exchange(connection, until, async |connection| {
            match connection.rows(call, isolates.then_some(BEGIN)).await {
                Err(e) if error::is_isolation(&e) => {
                    self.isolates.store(true, Ordering::Relaxed);
                    connection.rows(call, Some(BEGIN)).await
                }
                rows => rows,
            }
        })
        .await
    }

    /// As [`query`](Self::query), for a call that may wait for rows: the server gives it up after `patience`, so that the
    /// outcome is known. `None` if it did.
    pub(crate) async fn query_patiently(
        &self,
        connection: Connection,
        until: Deadline,
        patience: Duration,
        call: &Call<'_>,
    ) -> Result<Option<Vec<Row>>, Unanswered> {
        let (began, begin) = (self.deadline(), within(patience));
        let rows = self.exchange(connection, until, async |connection| {
            connection.rows(call, Some(&begin)).await
        });
        match rows.await.1 {
            Ok(rows) => Ok(Some(rows)),
            Err(Unanswered::Server(e)) if error::is_locked(&e) => Ok(None),
            // A shorter limit is the session's own.
            Err(Unanswered::Server(e))
                if error::is_cancelled(&e) && began.limit() - began.left() >= patience =>
            {
                Ok(None)
            }
            Err(failure) => Err(failure),
        }
    }

    /// How a transaction ended; `None` if it did not until then.
    pub(crate) fn ended(
        &self,
        outcome: Option<Result<(), tokio_postgres::Error>>,
        until: Deadline,
    ) -> Result<()> {
        match outcome {
            Some(outcome) => outcome.map_err(|e| error::of(&self.server, e)),
            None => Err(error::unanswered(&self.server, until.limit())),
        }
    }

    async fn exchange(
        &self,
        mut connection: Connection,
        until: Deadline,
        exchange: impl AsyncFnOnce(&mut Connection) -> Result<Vec<Row>, tokio_postgres::Error>,
    ) -> (Option<Connection>, Result<Vec<Row>, Unanswered>) {
        match until.bound(Box::pin(exchange(&mut connection))).await {
            Some(Ok(rows)) => (Some(connection), Ok(rows)),
            Some(Err(e)) => {
                // Of a session that is retired it is known.
                if error::casts_doubt(&e) && !connection.is_retired() {
                    self.doubt();
                }
                (Some(connection).filter(Connection::is_usable), Err(Unanswered::Server(e)))
            }
            // What was sent there may still act, so this one is closed. The others may be as dead.
            None => {
                self.retire();
                (None, Err(Unanswered::Late(until.limit())))
            }
        }
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

/// Why there is no connection.
enum Failure {
    Server(tokio_postgres::Error),
    AllInUse(usize, Duration),
    Late(Duration),
    Pool(PoolError),
    /// Nothing can be written there, or nobody knows.
    Doubtful(Error),
}

impl Failure {
    fn into_error(self, server: &str) -> Error {
        match self {
            Self::Server(e) => error::of_connecting(server, e),
            Self::AllInUse(all, limit) => Error::unavailable(
                Effect::NotApplied,
                format!(
                    "all {all} connections of the pool to {server} were in use for {limit:?}; raise their number, or give \
                     them back sooner"
                ),
            ),
            Self::Late(limit) => Error::unavailable(
                Effect::NotApplied,
                format!("no connection to {server} could be made within {limit:?}"),
            ),
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
