//! One session of a server, and how it is begun.

use std::future::pending;
use std::ops::Deref;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use deadpool_postgres::{ClientWrapper, Object, PoolError, TimeoutType};
use futures_util::FutureExt as _;
use futures_util::future::{OptionFuture, select};
use leasehold_core::{Effect, Error, Result};
use leasehold_driver::Deadline;
use leasehold_sql::{Answer, Source, all_in_use};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Config, Row, Statement};

use crate::call::Call;
use crate::connect::connect;
use crate::error;
use crate::tls::Tls;

/// Where sessions come from.
#[expect(missing_debug_implementations, reason = "nobody outside can name it")]
pub struct Sessions {
    origin: Origin,
    /// Statements are prepared, unless a pooler may run them in another session.
    prepares: bool,
    /// The sessions' transactions are not READ COMMITTED by default.
    isolates: Arc<AtomicBool>,
}

enum Origin {
    /// They are our own.
    Server { config: Box<Config>, tls: Tls, limit: Duration },
    /// A caller's, who may have begun anything in them. Those that were made before `retired` are not used.
    Callers { pool: deadpool_postgres::Pool, retired: Mutex<Option<Instant>> },
}

/// A session.
#[expect(missing_debug_implementations, reason = "nobody outside can name it")]
pub struct Session {
    client: Client,
    prepares: bool,
    isolates: Arc<AtomicBool>,
    /// All that was begun on it has ended, and it is in no transaction.
    is_clean: bool,
}

enum Client {
    /// The client, and the task that drives its connection.
    Ours(ClientWrapper, JoinHandle<()>),
    Callers(Object),
}

/// Does nothing outside a transaction; in one it fails, and so does whatever follows there: only outside may a block
/// commit.
const OUTSIDE: &str = "DO 'BEGIN COMMIT; END'";

/// Begins a transaction as our functions need it, for a session whose default is another.
pub(crate) const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED";

impl Sessions {
    /// Those of a server.
    pub(crate) fn new(config: Config, tls: Tls, limit: Duration, prepares: bool) -> Self {
        let origin = Origin::Server { config: Box::new(config), tls, limit };
        Self { origin, prepares, isolates: Arc::default() }
    }

    /// Those of a caller's pool.
    pub(crate) fn callers(pool: deadpool_postgres::Pool, prepares: bool) -> Self {
        let origin = Origin::Callers { pool, retired: Mutex::default() };
        Self { origin, prepares, isolates: Arc::default() }
    }
}

impl Source for Sessions {
    type Session = Session;

    async fn connect(&self, server: &str) -> Result<Session> {
        let client = match &self.origin {
            Origin::Server { config, tls, limit } => {
                let client = Client::connect(config, tls, *limit).await;
                client.map_err(|e| error::of_connecting(server, e))?
            }
            Origin::Callers { pool, retired } => loop {
                let client = pool.get().await.map_err(|e| of_pool(server, pool, e))?;
                let created = Object::metrics(&client).created;
                let retired = *retired.lock().unwrap_or_else(PoisonError::into_inner);
                if retired.is_none_or(|at| created > at) {
                    break Client::Callers(client);
                }
                drop(Object::take(client));
            },
        };
        let (prepares, isolates) = (self.prepares, Arc::clone(&self.isolates));
        Ok(Session { client, prepares, isolates, is_clean: true })
    }

    fn retire(&self) {
        if let Origin::Callers { pool, retired } = &self.origin {
            #[expect(clippy::disallowed_methods, reason = "the pool's metrics count on this clock")]
            let now = Instant::now();
            *retired.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
            pool.retain(|_, _| false);
        }
    }

    fn all_in_use(&self) -> Option<usize> {
        let Origin::Callers { pool, .. } = &self.origin else { return None };
        let status = pool.status();
        (status.size >= status.max_size && status.available == 0).then_some(status.max_size)
    }
}

impl Client {
    /// Connects. The connection ends as the protocol requires, after the replies that are still to come, but no later than `limit`
    /// after its client.
    async fn connect(
        config: &Config,
        tls: &Tls,
        limit: Duration,
    ) -> Result<Self, tokio_postgres::Error> {
        let (client, connection) = connect(config, tls, limit).await?;
        let (client_is_gone, gone) = oneshot::channel::<()>();
        #[expect(clippy::disallowed_methods, reason = "the connection's own task")]
        let driving = tokio::spawn(async move {
            let late = gone.then(|_| tokio::time::sleep(limit));
            select(connection, pin!(late)).await;
        });
        // The driver's wrapper aborts this one with the client.
        #[expect(clippy::disallowed_methods, reason = "ends with the client")]
        let end = tokio::spawn(async move {
            let _ends = client_is_gone;
            pending::<()>().await
        });
        Ok(Self::Ours(ClientWrapper::new(client, end), driving))
    }
}

impl Deref for Client {
    type Target = ClientWrapper;

    fn deref(&self) -> &ClientWrapper {
        match self {
            Self::Ours(client, _) => client,
            Self::Callers(client) => client,
        }
    }
}

/// The error of a caller's pool, which has limits of its own.
fn of_pool(server: &str, pool: &deadpool_postgres::Pool, error: PoolError) -> Error {
    match (error, pool.timeouts().wait) {
        (PoolError::Backend(e), _) => error::of_connecting(server, e),
        (PoolError::Timeout(TimeoutType::Wait), Some(limit)) => {
            all_in_use(server, pool.status().max_size, limit)
        }
        (other, _) => {
            let message = format!("the pool has no connection to {server} ({other})");
            Error::unavailable(Effect::NotApplied, message).with_source(other)
        }
    }
}

impl leasehold_sql::Session for Session {
    type Error = tokio_postgres::Error;

    type Call<'c> = Call<'c>;

    fn query<'q, 'c: 'q>(&'q mut self, call: Call<'c>) -> Answer<'q, Vec<Row>, Self::Error> {
        Box::pin(async move { self.rows(&call).await })
    }

    fn query_within<'q, 'c: 'q>(
        &'q mut self,
        call: Call<'c>,
        patience: Duration,
    ) -> Answer<'q, Option<Vec<Row>>, Self::Error> {
        Box::pin(async move {
            let (began, begin) = (Deadline::after(patience), within(patience));
            match self.rows_after(Some(&begin), &call).await {
                // A shorter limit is the session's own.
                Err(e) if error::is_cancelled(&e) && began.left().is_zero() => Ok(None),
                rows => rows.map(Some),
            }
        })
    }

    fn is_usable(&self) -> bool {
        self.is_clean && !self.client.is_closed()
    }

    async fn read_only(&mut self, server: &str) -> Result<Option<Error>> {
        let text = "SELECT pg_catalog.current_setting('transaction_read_only')::boolean, pg_catalog.pg_is_in_recovery()";
        let rows = self.rows_after(None, &Call::new(text)).await;
        let rows = rows.map_err(|e| error::of_connecting(server, e))?;
        let is = |column| rows.first().is_some_and(|row| row.try_get(column).unwrap_or(false));
        Ok(is(0).then(|| error::read_only(server, is(1))))
    }

    fn end(self) -> impl Future<Output = ()> + Send {
        let driving = match self.client {
            Client::Callers(client) => {
                drop(Object::take(client));
                None
            }
            Client::Ours(_, driving) => Some(driving),
        };
        // It ends by itself, and soon.
        async move { drop(OptionFuture::from(driving).await) }
    }

    fn is_conflict(error: &tokio_postgres::Error) -> bool {
        error::is_conflict(error) || error::is_locked(error)
    }

    fn is_over(error: &tokio_postgres::Error) -> bool {
        error::is_conflict(error)
    }

    fn casts_doubt(error: &tokio_postgres::Error) -> bool {
        error::casts_doubt(error)
    }

    fn error(server: &str, error: tokio_postgres::Error) -> Error {
        error::of(server, error)
    }
}

impl Session {
    /// The rows that a call returns, in a transaction as our functions need it.
    pub(crate) async fn rows(
        &mut self,
        call: &Call<'_>,
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        let isolates = self.isolates.load(Ordering::Relaxed);
        match self.rows_after(isolates.then_some(BEGIN), call).await {
            Err(e) if error::is_isolation(&e) => {
                self.isolates.store(true, Ordering::Relaxed);
                self.rows_after(Some(BEGIN), call).await
            }
            rows => rows,
        }
    }

    /// The rows that a call returns; after these statements, if any, which begin a transaction. All statements are sent
    /// together.
    async fn rows_after(
        &mut self,
        begin: Option<&str>,
        call: &Call<'_>,
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        self.is_clean = false;
        let prepared = self.prepare(call).await;
        self.is_clean = prepared.as_ref().err().is_none_or(error::leaves_the_session);
        let prepared = prepared?;
        self.is_clean = false;
        let run = async |text| match text {
            Some(text) => self.run(text).await,
            None => Ok(()),
        };
        let (outside, begun, rows, ended) = tokio::join!(
            run(self.is_callers().then_some(OUTSIDE)),
            run(begin),
            self.query(call, prepared),
            run(begin.and(Some("COMMIT"))),
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
        let prepared = self.prepare(call).await?;
        self.query(call, prepared).await
    }

    /// The call's statement, prepared unless a pooler may run it in another session, which would not know it.
    async fn prepare(&self, call: &Call<'_>) -> Result<Option<Statement>, tokio_postgres::Error> {
        if !self.prepares {
            return Ok(None);
        }
        let types: Vec<_> = call.values.iter().map(|(_, kind)| kind.clone()).collect();
        self.client.prepare_typed_cached(call.text, &types).await.map(Some)
    }

    async fn query(
        &self,
        call: &Call<'_>,
        prepared: Option<Statement>,
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        let Some(statement) = prepared else {
            let values: Vec<_> =
                call.values.iter().map(|(value, kind)| (&**value as _, kind.clone())).collect();
            return self.client.query_typed(call.text, &values).await;
        };
        let values: Vec<&(dyn ToSql + Sync)> =
            call.values.iter().map(|(value, _)| &**value as _).collect();
        self.client.query(&statement, &values).await
    }

    /// Runs statements without values, as a part of a transaction.
    pub(crate) async fn run(&self, text: &str) -> Result<(), tokio_postgres::Error> {
        self.client.batch_execute(text).await
    }

    /// Runs a transaction: the statements that begin it, and what `then` sends. The session ends unless the server has
    /// reported that the transaction was committed.
    pub(crate) async fn transaction(
        &mut self,
        first: &str,
        then: impl AsyncFnOnce(&Self) -> Result<(), tokio_postgres::Error>,
    ) -> Result<(), tokio_postgres::Error> {
        self.is_clean = false;
        if self.is_callers() {
            self.run(OUTSIDE).await?;
        }
        self.run(first).await?;
        then(self).await?;
        self.run("COMMIT").await?;
        self.is_clean = true;
        Ok(())
    }

    /// The value of a setting that may not exist, in a session in which perhaps nothing can be prepared.
    pub(crate) async fn setting(
        &mut self,
        name: &str,
    ) -> Result<Option<String>, tokio_postgres::Error> {
        self.is_clean = false;
        let text = format!("SELECT pg_catalog.current_setting('{name}', true)");
        let rows = self.client.query_typed(&text, &[]).await?;
        self.is_clean = true;
        Ok(rows.first().and_then(|row| row.try_get(0).ok()).flatten())
    }

    fn is_callers(&self) -> bool {
        matches!(self.client, Client::Callers(_))
    }
}

/// Begins a transaction in which a statement that takes longer is given up, unless the session has a shorter limit. Such
/// a limit never ends a commit. (`lock_timeout` would count for each lock anew, and a row may need several.) The server counts
/// whole milliseconds: it gives up at the end of the limit or after it, so that a shorter one is known to be the session's.
fn within(limit: Duration) -> String {
    let (ms, timeout) = (
        limit.as_nanos().div_ceil(1_000_000).max(1),
        "pg_catalog.current_setting('statement_timeout')::pg_catalog.interval",
    );
    format!(
        "{BEGIN}; SELECT pg_catalog.set_config('statement_timeout', '{ms}', true) \
         WHERE {timeout} OPERATOR(pg_catalog.=) '0'::pg_catalog.interval \
         OR {timeout} OPERATOR(pg_catalog.>) '{ms} ms'::pg_catalog.interval"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_gives_up_no_earlier_than_its_limit() {
        for (micros, ms) in [(0, 1), (1, 1), (750_000, 750), (750_001, 751), (750_999, 751)] {
            let begin = within(Duration::from_micros(micros));
            assert!(begin.contains(&format!("'statement_timeout', '{ms}', true")), "{begin}");
        }
    }
}
