//! Connections.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use deadpool::managed::{self, Manager, Metrics, Object, RecycleResult};
use leasehold_core::{Effect, Error, Result};
use leasehold_driver::sql::{Doubt, locked};
use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Opts, OptsBuilder, Params, Row, Value};
use tokio::sync::watch;

use crate::call::Call;
use crate::error;
use crate::sql::{READ_ONLY, Sql};

/// What the sessions of our own connections have: the only statement that may wait, for another client that uses a key
/// for the first time, waits for a second, which is the shortest time; each commits by itself; an idle connection stays;
/// statements and texts mean the same whatever mode and character set the server has.
const SESSION: &str = "SET NAMES utf8mb4, SESSION innodb_lock_wait_timeout = 1, SESSION autocommit = 1, \
     SESSION wait_timeout = 2147483, SESSION sql_mode = 'STRICT_ALL_TABLES', \
     SESSION transaction_isolation = 'READ-COMMITTED'";

/// MariaDB before 11.1 has another name for the last one.
const SESSION_OF_MARIADB: &str = "SET NAMES utf8mb4, SESSION innodb_lock_wait_timeout = 1, SESSION autocommit = 1, \
     SESSION wait_timeout = 2147483, SESSION sql_mode = 'STRICT_ALL_TABLES', SESSION tx_isolation = 'READ-COMMITTED'";

/// The fewest connections: one is reserved for what travels together.
pub(crate) const FEWEST: usize = 2;

/// The most connections that are reserved, of our own.
const LANES: usize = 2;

/// A connection that was idle for longer may have ended, and is tried before it is used.
pub(crate) const IDLE: Duration = Duration::from_secs(1);

/// The connections of a store.
#[derive(Debug, Clone)]
pub(crate) struct Links {
    pool: Pool,
    /// The server, for messages.
    pub(crate) server: String,
    pub(crate) timeout: Duration,
    /// How many of them are reserved for what travels together, so that at least one is not.
    pub(crate) lanes: usize,
    uses: Arc<Uses>,
    /// Whether their server may have been demoted.
    doubt: Doubt,
}

/// Which connections may stay, and how many are in use.
#[derive(Debug, Default)]
struct Uses {
    /// Raised when all connections are retired.
    generation: AtomicU64,
    /// Those that are in use, or about to end.
    count: watch::Sender<usize>,
}

/// One connection that is in use, or about to end.
struct Use {
    uses: Arc<Uses>,
    generation: u64,
}

impl Use {
    fn begin(uses: &Arc<Uses>) -> Self {
        uses.count.send_modify(|count| *count += 1);
        Self { generation: uses.generation.load(Ordering::SeqCst), uses: Arc::clone(uses) }
    }

    fn is_retired(&self) -> bool {
        self.generation != self.uses.generation.load(Ordering::SeqCst)
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        self.uses.count.send_modify(|count| *count -= 1);
    }
}

#[derive(Debug, Clone)]
enum Pool {
    Ours(managed::Pool<Sessions>),
    Callers(mysql_async::Pool),
}

/// Begins sessions.
#[derive(Debug)]
pub(crate) struct Sessions(Opts);

impl Manager for Sessions {
    type Type = Conn;
    type Error = mysql_async::Error;

    async fn create(&self) -> Result<Conn, mysql_async::Error> {
        let mut conn = Conn::new(self.0.clone()).await?;
        conn.query_drop(if is_mariadb(&conn) { SESSION_OF_MARIADB } else { SESSION }).await?;
        Ok(conn)
    }

    async fn recycle(
        &self,
        conn: &mut Conn,
        metrics: &Metrics,
    ) -> RecycleResult<mysql_async::Error> {
        // What failed or was interrupted does not come back.
        if metrics.last_used() > IDLE {
            conn.ping().await?;
        }
        Ok(())
    }
}

fn is_mariadb(conn: &Conn) -> bool {
    conn.server_version().0 >= 10
}

/// One connection, until it is dropped. If an exchange was begun on it and did not end, its reply may still come: the
/// connection is closed then, so that nobody takes that reply for his own.
pub(crate) struct Link {
    /// Until the end.
    source: Option<Source>,
    /// No reply can come that nobody waits for.
    is_clean: bool,
    /// Until the end.
    held: Option<Use>,
}

enum Source {
    Ours(Object<Sessions>),
    Callers(Conn),
}

impl Link {
    fn new(source: Source, held: Use) -> Self {
        Self { source: Some(source), is_clean: true, held: Some(held) }
    }

    /// Whether it ends when it is dropped, because all connections of its time do.
    pub(crate) fn is_retired(&self) -> bool {
        self.held.as_ref().is_none_or(Use::is_retired)
    }

    /// Whether it accepts the statements of MariaDB: they need a session of ours, in which each commits by itself.
    pub(crate) fn is_direct(&self) -> bool {
        matches!(&self.source, Some(Source::Ours(conn)) if is_mariadb(conn))
    }

    async fn exchange<T>(
        &mut self,
        exchange: impl AsyncFnOnce(&mut Conn) -> mysql_async::Result<T>,
    ) -> mysql_async::Result<T> {
        self.is_clean = false;
        let answer = match self.source.as_mut().expect("it has not ended") {
            Source::Ours(conn) => exchange(conn).await,
            Source::Callers(conn) => exchange(conn).await,
        };
        self.is_clean = matches!(answer, Ok(_) | Err(mysql_async::Error::Server(_)));
        answer
    }

    /// Ends it: what its session has begun is rolled back.
    fn close(mut self) {
        self.is_clean = false;
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if self.is_clean && !self.is_retired() {
            return;
        }
        let conn = match self.source.take() {
            Some(Source::Ours(conn)) => Object::take(conn),
            Some(Source::Callers(conn)) => conn,
            None => return,
        };
        if let Some(held) = self.held.take() {
            part(conn, held);
        }
    }
}

/// Ends a connection in the background, with the protocol's farewell. Without a runtime it ends too, without one.
fn part(conn: Conn, held: Use) {
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        drop(runtime.spawn(async move {
            drop(conn.disconnect().await);
            drop(held);
        }));
    }
}

/// Why an exchange has no rows.
#[derive(Debug)]
pub(crate) enum Unanswered {
    /// It was rolled back because of another transaction; the server's code.
    Conflict(u16),
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

impl Links {
    /// At most so many connections to the server of these options.
    pub(crate) fn new(opts: Opts, most: usize, server: String, timeout: Duration) -> Result<Self> {
        let opts = OptsBuilder::from_opts(opts).tcp_nodelay(true).into();
        let pool = managed::Pool::builder(Sessions(opts))
            .max_size(most.max(FEWEST))
            .build()
            .map_err(|e| Error::unexpected("the pool cannot be built").with_source(e))?;
        let lanes = LANES.min(pool.status().max_size - 1);
        let (uses, doubt) = (Arc::default(), Doubt::default());
        Ok(Self { pool: Pool::Ours(pool), server, timeout, lanes, uses, doubt })
    }

    /// The connections of a caller's pool.
    pub(crate) fn of_pool(pool: mysql_async::Pool, timeout: Duration) -> Self {
        let server = "the pool's server".to_owned();
        let (uses, doubt) = (Arc::default(), Doubt::default());
        Self { pool: Pool::Callers(pool), server, timeout, lanes: 1, uses, doubt }
    }

    /// Ends every connection that was begun before now, so that the next one chooses its host afresh: an idle one now, one
    /// in use when it is free. An idle one of a caller's pool stays.
    pub(crate) fn retire(&self) {
        self.uses.generation.fetch_add(1, Ordering::SeqCst);
        if let Pool::Ours(pool) = &self.pool {
            for conn in pool.retain(|_, _| false).removed {
                part(conn, Use::begin(&self.uses));
            }
        }
    }

    pub(crate) fn are_ours(&self) -> bool {
        matches!(self.pool, Pool::Ours(_))
    }

    /// Ends when no connection is in use, and each that was to end has said farewell; or at the time limit.
    pub(crate) async fn unused(&self) {
        let mut count = self.uses.count.subscribe();
        drop(tokio::time::timeout(self.timeout, count.wait_for(|count| *count == 0)).await);
    }

    /// A connection.
    pub(crate) async fn get(&self) -> Result<Link> {
        let got = async {
            loop {
                self.doubt.settle(self.is_writable()).await?;
                tokio::select! {
                    biased;
                    // Who waits for a connection meanwhile makes none.
                    () = self.doubt.raised() => {}
                    link = self.link() => return link,
                }
            }
        };
        let got = tokio::time::timeout(self.timeout, got).await;
        got.unwrap_or_else(|_| Err(self.none_free()))
    }

    async fn link(&self) -> Result<Link> {
        // First, so that one that is retired meanwhile counts as such.
        let held = Use::begin(&self.uses);
        let got = match &self.pool {
            Pool::Ours(pool) => pool.get().await.map(Source::Ours),
            Pool::Callers(pool) => {
                pool.get_conn().await.map(Source::Callers).map_err(managed::PoolError::Backend)
            }
        };
        match got {
            Ok(source) => Ok(Link::new(source, held)),
            Err(managed::PoolError::Backend(e)) => Err(error::of_connecting(&self.server, e)),
            Err(_) => Err(self.none_free()),
        }
    }

    fn none_free(&self) -> Error {
        let (server, limit) = (&self.server, self.timeout);
        let message =
            format!("no connection to {server} was free or could be made within {limit:?}");
        Error::unavailable(Effect::NotApplied, message)
    }

    /// A session has answered as one does whose server may have been demoted: all that there are end, and a fresh one asks
    /// before others are used.
    pub(crate) fn doubt(&self) {
        self.doubt.raise();
        self.retire();
    }

    /// Asks a session whether its server is writable. Others begin after it if it is not.
    async fn is_writable(&self) -> Result<()> {
        let of_before = match &self.pool {
            Pool::Ours(_) => 0,
            // These did not end.
            Pool::Callers(pool) => pool.metrics().connections_in_pool.load(Ordering::SeqCst),
        };
        let question = format!("SELECT {READ_ONLY}");
        let mut answer = Ok(());
        for _ in 0..=of_before {
            let mut link = self.link().await?;
            let asked = link.exchange(async |conn| conn.query_first(&question).await).await;
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

    /// This connection, unless it has ended.
    pub(crate) async fn alive(&self, mut link: Link) -> Option<Link> {
        let ping = link.exchange(async |conn| conn.ping().await);
        let answered = tokio::time::timeout(self.timeout, ping).await;
        if matches!(answered, Ok(Ok(()))) {
            return Some(link);
        }
        link.close();
        None
    }

    /// What a call returns within `limit`, in one exchange, and the connection if it can be used again.
    pub(crate) async fn ask(
        &self,
        link: Link,
        limit: Duration,
        sql: &Sql,
        call: Call<'_>,
    ) -> (Option<Link>, Result<Vec<Row>, Unanswered>) {
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
        self.within(link, limit, exchange).await
    }

    /// How many rows a statement has changed.
    pub(crate) async fn change(&self, text: &str, values: Vec<Value>) -> Result<u64, Unanswered> {
        let link = self.get().await.map_err(Unanswered::Failed)?;
        let exchange = async |conn: &mut Conn| {
            conn.exec_drop(text, Params::Positional(values)).await?;
            Ok(conn.affected_rows())
        };
        self.within(link, self.timeout, exchange).await.1
    }

    /// What an exchange returns within `limit`, and the connection if it can be used again.
    async fn within<T>(
        &self,
        mut link: Link,
        limit: Duration,
        exchange: impl AsyncFnOnce(&mut Conn) -> mysql_async::Result<T>,
    ) -> (Option<Link>, Result<T, Unanswered>) {
        let failure = match tokio::time::timeout(limit, link.exchange(exchange)).await {
            Ok(Ok(answer)) => return (Some(link), Ok(answer)),
            // The procedure or the server has rolled back.
            Ok(Err(e)) => match error::conflict(&e) {
                Some(code) => return (Some(link), Err(Unanswered::Conflict(code))),
                None => {
                    // Of a connection that is retired it is known.
                    if error::casts_doubt(&e) && !link.is_retired() {
                        self.doubt();
                    }
                    error::of(&self.server, e)
                }
            },
            // What was sent there may still act, so this one is closed. The others may be as dead.
            Err(_) => {
                self.retire();
                error::unanswered(&self.server, limit)
            }
        };
        link.close();
        (None, Err(Unanswered::Failed(failure)))
    }

    /// Runs statements without values, one after the other.
    pub(crate) async fn run(&self, statements: &[String]) -> Result<()> {
        let mut link = self.get().await?;
        for statement in statements {
            let done = link.exchange(async |conn| conn.query_drop(statement).await).await;
            done.map_err(|e| error::of(&self.server, e))?;
        }
        Ok(())
    }

    /// The rows of a statement without values that only reads.
    pub(crate) async fn query(&self, statement: &str) -> Result<Vec<Row>> {
        let mut link = self.get().await?;
        let query = link.exchange(async |conn| conn.query(statement).await);
        let rows = tokio::time::timeout(self.timeout, query).await;
        match rows {
            Ok(rows) => rows.map_err(|e| error::of(&self.server, e)),
            Err(_) => {
                link.close();
                Err(error::unanswered(&self.server, self.timeout))
            }
        }
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Link")
    }
}
