//! Connections.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use deadpool::managed::{self, Manager, Metrics, RecycleError, RecycleResult};
use leasehold_core::{Effect, Error, Result};
use leasehold_driver::Deadline;
use leasehold_sql::{Doubt, locked};
use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Opts, OptsBuilder, Params, Row};

use crate::call::Call;
use crate::connection::{Connection, Kept, Source, Use, Uses, is_outside, now, part};
use crate::error;
use crate::sql::{self, READ_ONLY, Sql};

/// What the sessions of our own connections have: the only statement that may wait, on MySQL, for another client that
/// uses a key for the first time, waits for a second, which is the shortest time; each commits by itself; an idle
/// connection stays; statements, texts and times mean the same whatever the server has.
const SESSION: &str = "SET NAMES utf8mb4, SESSION innodb_lock_wait_timeout = 1, \
     SESSION autocommit = 1, SESSION wait_timeout = 2147483, SESSION sql_mode = 'STRICT_ALL_TABLES', \
     SESSION time_zone = '+00:00'";

/// The variable has another name in each product.
const ISOLATION: &str = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED";

/// The fewest connections: one is reserved for batches.
pub(crate) const FEWEST: usize = 2;

/// The most connections that are reserved, of our own.
const LANES: usize = 2;

/// How many connections of a caller's pool are kept for what goes in no batch.
const KEPT: usize = 1;

/// A connection that was idle for longer may have ended, and is tried before it is used.
const IDLE: Duration = Duration::from_secs(1);

/// The longest time for the answer to a ping.
const LONGEST_PING: Duration = Duration::from_millis(250);

/// The connections of a store.
#[derive(Debug)]
pub(crate) struct Pool {
    origin: Origin,
    /// The server, for messages.
    pub(crate) server: String,
    pub(crate) timeout: Duration,
    /// How many of them are reserved for batches, so that at least one is not.
    pub(crate) lanes: usize,
    /// The server is MariaDB, whatever version it reports.
    pub(crate) is_mariadb: bool,
    /// Its clock can be read during a statement.
    has_live_clock: bool,
    /// The connections for batches, with their last uses.
    reserved: Mutex<Vec<(Connection, tokio::time::Instant)>>,
    uses: Arc<Uses>,
    /// Whether their server may have been demoted.
    doubt: Doubt,
}

#[derive(Debug)]
enum Origin {
    Ours(managed::Pool<Sessions>),
    Callers { pool: mysql_async::Pool, most: usize, kept: Arc<Kept> },
}

/// Begins sessions.
#[derive(Debug)]
pub(crate) struct Sessions {
    opts: Opts,
    /// How long the answer to a ping may take.
    patience: Duration,
    /// When one did not come: connections that were made before are not tried, for they may be as dead.
    silence: Mutex<Option<Instant>>,
}

impl Manager for Sessions {
    type Type = Conn;
    type Error = mysql_async::Error;

    async fn create(&self) -> Result<Conn, mysql_async::Error> {
        let mut conn = Conn::new(self.opts.clone()).await?;
        conn.query_drop(SESSION).await?;
        conn.query_drop(ISOLATION).await?;
        Ok(conn)
    }

    async fn recycle(
        &self,
        conn: &mut Conn,
        metrics: &Metrics,
    ) -> RecycleResult<mysql_async::Error> {
        // What failed or was interrupted does not come back.
        if metrics.last_used() <= IDLE {
            return Ok(());
        }
        let silence = *self.silence.lock().unwrap_or_else(PoisonError::into_inner);
        if silence.is_some_and(|since| metrics.created <= since) {
            return Err(RecycleError::message("it may be dead"));
        }
        match tokio::time::timeout(self.patience, conn.ping()).await {
            Ok(answer) => Ok(answer?),
            Err(_) => {
                #[expect(clippy::disallowed_methods, reason = "the pool's metrics count on it")]
                let now = Instant::now();
                *self.silence.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
                Err(RecycleError::message("it did not answer"))
            }
        }
    }
}

/// How long the answer to a ping may take, where an operation may take `timeout`.
fn patience(timeout: Duration) -> Duration {
    (timeout / 20).min(LONGEST_PING)
}

/// Why an exchange has no rows.
#[derive(Debug)]
pub(crate) enum Unanswered {
    /// It was rolled back because of another transaction; the server's code.
    Conflict(
        #[cfg_attr(not(feature = "nene"), expect(dead_code, reason = "the PHP table reads it"))]
        u16,
    ),
    Failed(Error),
}

impl Unanswered {
    pub(crate) fn into_error(self, server: &str) -> Error {
        match self {
            Self::Conflict(_) => locked(server),
            Self::Failed(error) => error,
        }
    }
}

impl Pool {
    /// At most so many connections to the server of these options.
    pub(crate) async fn open(
        opts: Opts,
        most: usize,
        server: String,
        timeout: Duration,
    ) -> Result<Self> {
        let opts = OptsBuilder::from_opts(opts).tcp_nodelay(true).into();
        let pool = managed::Pool::builder(Sessions {
            opts,
            patience: patience(timeout),
            silence: Mutex::default(),
        })
        .max_size(most.max(FEWEST))
        .build()
        .map_err(|e| Error::unexpected("the pool cannot be built").with_source(e))?;
        let lanes = LANES.min(pool.status().max_size - 1);
        Self::new(Origin::Ours(pool), server, timeout, lanes).able(Deadline::after(timeout)).await
    }

    /// The connections of a caller's pool. Those that are reserved, so many of them for batches, are taken
    /// now.
    pub(crate) async fn of_pool(
        pool: mysql_async::Pool,
        timeout: Duration,
        lanes: usize,
    ) -> Result<Self> {
        let server = "the pool's server".to_owned();
        let deadline = Deadline::after(timeout);
        let first = deadline.bound(pool.get_conn()).await;
        let first = first.ok_or_else(|| none_free("the pool", None, timeout))?;
        let first = first.map_err(|e| error::of_connecting(&server, e))?;
        let (most, reserved) = (first.opts().pool_opts().constraints().max(), lanes + KEPT);
        drop(first);
        if most <= reserved {
            return Err(Error::invalid_input(format!(
                "the pool has at most {most} connections; it must have {} or more, because the store keeps {reserved} of \
                 them",
                reserved + 1
            )));
        }
        let origin = Origin::Callers { pool, most, kept: Kept::at_most(KEPT) };
        let ours = Self::new(origin, server, timeout, lanes).able(deadline).await?;
        let mut taken = Vec::new();
        for _ in 0..reserved {
            taken.push(ours.get(deadline).await?);
        }
        ours.reserves().extend(taken.drain(KEPT..).map(|connection| (connection, now())));
        Ok(ours)
    }

    fn new(origin: Origin, server: String, timeout: Duration, lanes: usize) -> Self {
        Self {
            origin,
            server,
            timeout,
            lanes,
            is_mariadb: false,
            has_live_clock: false,
            reserved: Mutex::default(),
            uses: Arc::default(),
            doubt: Doubt::default(),
        }
    }

    /// The same, with what the server can do.
    async fn able(mut self, deadline: Deadline) -> Result<Self> {
        let rows = self.query_text(deadline, sql::ABILITIES).await;
        let rows = rows.map_err(|e| e.with_effect(Effect::NotApplied))?;
        let can = |nth| rows.first().and_then(|row| row.get::<i64, _>(nth)) == Some(1);
        (self.is_mariadb, self.has_live_clock) = (can(0), can(1));
        Ok(self)
    }

    /// When an operation that begins now must have ended.
    pub(crate) fn deadline(&self) -> Deadline {
        Deadline::after(self.timeout)
    }

    /// Whether a connection accepts the statements of MariaDB: they need a session of ours, in which each commits by itself.
    pub(crate) fn is_direct(&self, connection: &Connection) -> bool {
        self.is_mariadb && self.has_live_clock && connection.is_ours()
    }

    /// Ends every connection that was begun before now, so that the next one chooses its host afresh: an idle one now, one
    /// in use when it is free. An idle one of a caller's pool stays there.
    pub(crate) fn retire(&self) {
        self.uses.generation.fetch_add(1, Ordering::SeqCst);
        let idle = match &self.origin {
            Origin::Ours(pool) => pool.retain(|_, _| false).removed,
            Origin::Callers { kept, .. } => kept.drain(),
        };
        idle.into_iter().for_each(|conn| part(conn, Use::begin(&self.uses)));
        self.reserves().clear();
    }

    /// As [`Store::close`](leasehold_core::Store::close).
    pub(crate) async fn close(&self) {
        match &self.origin {
            Origin::Ours(_) => self.retire(),
            Origin::Callers { kept, .. } => {
                let reserved = std::mem::take(&mut *self.reserves());
                drop(reserved);
                drop(kept.drain());
            }
        }
        let mut count = self.uses.count.subscribe();
        drop(self.deadline().bound(count.wait_for(|count| *count == 0)).await);
    }

    fn reserves(&self) -> MutexGuard<'_, Vec<(Connection, tokio::time::Instant)>> {
        self.reserved.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection that is reserved for batches.
    pub(crate) async fn reserved(&self, deadline: Deadline) -> Result<Connection> {
        let reserved = self.reserves().pop();
        let alive = match reserved {
            Some((connection, _)) if connection.is_retired() => None,
            Some((connection, used)) if now() - used < IDLE => Some(connection),
            Some((connection, _)) => alive(connection, deadline).await,
            None => None,
        };
        match alive {
            Some(connection) => Ok(connection),
            None => self.get(deadline).await,
        }
    }

    /// Keeps it for batches next.
    pub(crate) fn reserve(&self, connection: Connection) {
        let mut reserved = self.reserves();
        if reserved.len() < self.lanes && !connection.is_retired() {
            reserved.push((connection, now()));
        }
    }

    /// A connection, outside a transaction.
    pub(crate) async fn get(&self, deadline: Deadline) -> Result<Connection> {
        let got = Box::pin(async {
            loop {
                self.doubt.settle(self.is_writable()).await?;
                tokio::select! {
                    biased;
                    // Who waits for a connection meanwhile makes none.
                    () = self.doubt.raised() => {}
                    connection = self.connection() => return connection,
                }
            }
        });
        // Who had one may give it up at the same deadline.
        let (_, at_first) = self.all_in_use();
        deadline.bound(got).await.unwrap_or_else(|| {
            let (of, at_last) = self.all_in_use();
            Err(none_free(&of, at_first.or(at_last), self.timeout))
        })
    }

    async fn connection(&self) -> Result<Connection> {
        // First, so that one that is retired meanwhile counts as such.
        let held = Use::begin(&self.uses);
        let got = match &self.origin {
            Origin::Ours(pool) => pool.get().await.map(Source::Ours),
            Origin::Callers { pool, kept, .. } => callers(pool, kept)
                .await
                .map(|conn| Source::Callers(conn, Arc::clone(kept)))
                .map_err(managed::PoolError::Backend),
        };
        let connection = match got {
            Ok(source) => Connection::new(source, held),
            Err(managed::PoolError::Backend(e)) => {
                return Err(error::of_connecting(&self.server, e));
            }
            Err(_) => return Err(self.none_free()),
        };
        if connection.is_in_transaction() {
            connection.close();
            return Err(Error::unavailable(
                Effect::NotApplied,
                "a connection of the pool is inside a transaction that the application has left open, and was closed; end \
                 every transaction before its connection goes back to the pool",
            ));
        }
        Ok(connection)
    }

    /// A session has answered as one does whose server may have been demoted: all that there are end, and a fresh one asks
    /// before others are used.
    pub(crate) fn doubt(&self) {
        self.doubt.raise();
        self.retire();
    }

    /// Asks a session whether its server is writable. Others begin after it if it is not.
    async fn is_writable(&self) -> Result<()> {
        let of_before = match &self.origin {
            Origin::Ours(_) => 0,
            // These did not end.
            Origin::Callers { pool, .. } => {
                pool.metrics().connections_in_pool.load(Ordering::SeqCst)
            }
        };
        let question = format!("SELECT {READ_ONLY}");
        let mut answer = Ok(());
        for _ in 0..=of_before {
            let mut connection = self.connection().await?;
            let asked = connection.exchange(async |conn| conn.query_first(&question).await).await;
            let is_read_only: Option<bool> =
                asked.map_err(|e| error::of(&self.server, e).with_effect(Effect::NotApplied))?;
            if is_read_only != Some(true) {
                return Ok(());
            }
            self.retire();
            answer = Err(error::read_only(&self.server));
        }
        answer
    }

    fn none_free(&self) -> Error {
        let (of, most) = self.all_in_use();
        none_free(&of, most, self.timeout)
    }

    /// Whose connections they are, and how many there may be if all of them are in use.
    fn all_in_use(&self) -> (String, Option<usize>) {
        match &self.origin {
            Origin::Ours(pool) => {
                let status = pool.status();
                let is_full = status.size >= status.max_size && status.waiting > 0;
                (self.server.clone(), is_full.then_some(status.max_size))
            }
            Origin::Callers { pool, most, .. } => {
                let in_use = pool.metrics().connections_in_use.load(Ordering::Relaxed);
                ("the pool".to_owned(), (in_use >= *most).then_some(*most))
            }
        }
    }

    /// What a call returns until `deadline`, in one exchange, and the connection if it can be used again.
    pub(crate) async fn query(
        &self,
        connection: Connection,
        deadline: Deadline,
        sql: &Sql,
        call: Call<'_>,
    ) -> (Option<Connection>, Result<Vec<Row>, Unanswered>) {
        let text = call.text(sql);
        let exchange = async |conn: &mut Conn| {
            let mut result = conn.exec_iter(&*text, Params::Positional(call.values)).await?;
            let mut rows = Vec::new();
            while !result.is_empty() {
                rows.extend(result.collect::<Row>().await?);
            }
            result.drop_result().await?;
            Ok(rows)
        };
        self.within(connection, deadline, exchange).await
    }

    /// What an exchange returns until `deadline`, and the connection if it can be used again.
    pub(crate) async fn within<T>(
        &self,
        mut connection: Connection,
        deadline: Deadline,
        exchange: impl AsyncFnOnce(&mut Conn) -> mysql_async::Result<T>,
    ) -> (Option<Connection>, Result<T, Unanswered>) {
        // Boxed, for the driver's futures are large and each operation has them several times over.
        let failure = match deadline.bound(Box::pin(connection.exchange(exchange))).await {
            Some(Ok(answer)) => return (Some(connection), Ok(answer)),
            // The procedure or the server has rolled back.
            Some(Err(e)) => match error::conflict(&e) {
                Some(code) => return (Some(connection), Err(Unanswered::Conflict(code))),
                None => {
                    // Of a connection that is retired it is known.
                    if error::casts_doubt(&e) && !connection.is_retired() {
                        self.doubt();
                    }
                    error::of(&self.server, e)
                }
            },
            // What was sent there may still act, so this one is closed. The others may be as dead.
            None => {
                self.retire();
                error::unanswered(&self.server, self.timeout)
            }
        };
        connection.close();
        (None, Err(Unanswered::Failed(failure)))
    }

    /// Runs statements without values, one after the other.
    pub(crate) async fn run(&self, deadline: Deadline, statements: &[String]) -> Result<()> {
        let mut connection = self.get(deadline).await?;
        for statement in statements {
            let exchange = async |conn: &mut Conn| conn.query_drop(statement).await;
            let (kept, done) = self.within(connection, deadline, exchange).await;
            done.map_err(|failure| failure.into_error(&self.server))?;
            let Some(again) = kept else { return Ok(()) };
            connection = again;
        }
        Ok(())
    }

    /// The rows of a statement without values that only reads.
    pub(crate) async fn query_text(&self, deadline: Deadline, statement: &str) -> Result<Vec<Row>> {
        let connection = self.get(deadline).await?;
        let exchange = async |conn: &mut Conn| conn.query(statement).await;
        let rows = self.within(connection, deadline, exchange).await.1;
        rows.map_err(|failure| failure.into_error(&self.server))
    }
}

/// A connection of a caller's pool: one that is kept for us, or another.
async fn callers(pool: &mysql_async::Pool, kept: &Kept) -> mysql_async::Result<Conn> {
    loop {
        tokio::select! {
            biased;
            Some((mut conn, used)) = kept.take() => {
                if now() - used < IDLE || conn.ping().await.is_ok() {
                    return Ok(conn);
                }
                drop(conn.disconnect().await);
            }
            conn = pool.get_conn() => {
                let mut conn = conn?;
                if is_outside(&conn).is_none() {
                    // After an error only another reply states whether its transaction is over.
                    conn.ping().await?;
                }
                return Ok(conn);
            }
        }
    }
}

/// This connection, unless it has ended.
async fn alive(mut connection: Connection, deadline: Deadline) -> Option<Connection> {
    let ping = connection.exchange(async |conn| conn.ping().await);
    if matches!(deadline.within(patience(deadline.limit())).bound(ping).await, Some(Ok(()))) {
        return Some(connection);
    }
    connection.close();
    None
}

/// There was no connection; all of them were in use if there may be only so many.
fn none_free(of: &str, all_in_use: Option<usize>, limit: Duration) -> Error {
    let message = match all_in_use {
        Some(most) => format!("all {most} connections of {of} were in use for {limit:?}"),
        None => format!("no connection of {of} was free or could be made within {limit:?}"),
    };
    Error::unavailable(Effect::NotApplied, message)
}
