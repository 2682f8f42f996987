//! One connection.

use std::sync::Arc;
use std::time::{Duration, Instant};

use deadpool_postgres::Object;
use tokio::sync::watch;
use tokio_postgres::{Row, Statement};

use crate::call::Call;
use crate::error;
use crate::kept::Kept;
use crate::pool::Pool;

/// The moment before which no session may have begun.
#[derive(Debug, Clone, Default)]
pub(crate) struct Retired(Arc<watch::Sender<Option<Instant>>>);

/// One connection, until it is dropped. It goes back to the pool only if what was begun on it has ended, outside a
/// transaction, and its session is not retired; otherwise it is closed.
#[derive(Debug)]
pub(crate) struct Connection {
    /// Until the end.
    client: Option<Object>,
    prepares: bool,
    is_callers: bool,
    /// All that was begun on it has ended, and it is in no transaction.
    is_clean: bool,
    kept: Arc<Kept>,
    retired: Retired,
}

/// Does nothing outside a transaction; in one it fails, and so does whatever follows there: only outside may a block
/// commit.
const OUTSIDE: &str = "DO 'BEGIN COMMIT; END'";

/// Begins a transaction as our functions need it, for a session whose default is another.
pub(crate) const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED";

impl Connection {
    pub(crate) fn new(client: Object, pool: &Pool, is_current: bool) -> Self {
        Self {
            client: Some(client),
            prepares: pool.prepares,
            is_callers: pool.are_callers,
            is_clean: is_current,
            kept: Arc::clone(&pool.kept),
            retired: pool.retired.clone(),
        }
    }

    /// Whether it may still be used, as far as is known.
    pub(crate) fn is_usable(&self) -> bool {
        self.is_clean
            && !self.is_retired()
            && self.client.as_ref().is_some_and(|client| !client.is_closed())
    }

    pub(crate) fn is_retired(&self) -> bool {
        self.client.as_ref().is_some_and(|client| self.retired.is(Object::metrics(client).created))
    }

    fn client(&self) -> &Object {
        self.client.as_ref().expect("it has not ended")
    }

    /// The rows that a call returns; after these statements, if any, which begin a transaction. All statements are sent
    /// together.
    pub(crate) async fn rows(
        &mut self,
        call: &Call<'_>,
        begin: Option<&str>,
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
            run(self.is_callers.then_some(OUTSIDE)),
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
        self.client().prepare_typed_cached(call.text, &types).await.map(Some)
    }

    async fn query(
        &self,
        call: &Call<'_>,
        prepared: Option<Statement>,
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        let Some(statement) = prepared else {
            return self.client().query_typed(call.text, &call.values).await;
        };
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

impl Drop for Connection {
    fn drop(&mut self) {
        let is_usable = self.is_usable();
        match self.client.take() {
            Some(client) if is_usable => self.kept.give(client),
            Some(client) => drop(Object::take(client)),
            None => {}
        }
    }
}

impl Retired {
    pub(crate) fn at(&self) -> Option<Instant> {
        *self.0.borrow()
    }

    #[expect(clippy::disallowed_methods, reason = "the pool's own metrics count on this clock")]
    pub(crate) fn set(&self) {
        self.0.send_replace(Some(Instant::now()));
    }

    /// Changes at every retirement.
    pub(crate) fn watched(&self) -> watch::Receiver<Option<Instant>> {
        self.0.subscribe()
    }

    pub(crate) fn is(&self, created: Instant) -> bool {
        self.at().is_some_and(|at| created <= at)
    }
}

/// Begins a transaction in which a statement that takes longer is given up, unless the session has a shorter limit. Such
/// a limit never ends a commit. (`lock_timeout` would count for each lock anew, and a row may need several.)
pub(crate) fn within(limit: Duration) -> String {
    let (ms, timeout) = (
        limit.as_millis().max(1),
        "pg_catalog.current_setting('statement_timeout')::pg_catalog.interval",
    );
    format!(
        "{BEGIN}; SELECT pg_catalog.set_config('statement_timeout', '{ms}', true) \
         WHERE {timeout} OPERATOR(pg_catalog.=) '0'::pg_catalog.interval \
         OR {timeout} OPERATOR(pg_catalog.>) '{ms} ms'::pg_catalog.interval"
    )
}
