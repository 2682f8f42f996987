//! Exchanges on the connections of a store.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Effect, Error, LeaseId, Result};
use leasehold_driver::Deadline;
use leasehold_sql::unanswered;
use tokio_postgres::Config;
use tokio_postgres::error::SqlState;

use crate::error;
use crate::row_waits::RowWaits;
use crate::session::{BEGIN, Session, Sessions};
use crate::sql::SAFELY;
use crate::tls::Tls;

/// How long a request waits for a row that somebody else is changing while others wait behind it.
pub(crate) const PATIENCE: Duration = Duration::from_millis(20);

/// The fewest connections that are not reserved for batches.
const OTHERS: usize = 2;

/// Serialises those who prepare the same database.
const LOCK: i64 = 0x4c73_6864;

/// The connections of a store. Clones share them.
#[derive(Clone)]
pub(crate) struct Pool {
    pub(crate) connections: Arc<leasehold_sql::Pool<Sessions>>,
    /// Each connection is a session that the server began for us, so settings stay.
    pub(crate) direct: bool,
    /// Who may wait for a row.
    pub(crate) row_waits: RowWaits,
}

impl Pool {
    /// Connects to the server of this configuration.
    pub(crate) async fn connect(
        config: &Config,
        tls: &Tls,
        most: usize,
        server: String,
        timeout: Duration,
    ) -> Result<Self> {
        let build = |config: Config, direct: bool| {
            let source = Sessions::new(config, tls.clone(), timeout, direct);
            let connections =
                leasehold_sql::Pool::own(source, server.clone(), timeout, most, OTHERS);
            // Those that are not reserved, of which one is left.
            let others = connections.most - connections.lanes;
            Self { connections, direct, row_waits: RowWaits::new(others, others - 1) }
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
        let connected = build(signed, true);
        match connected.session_sign().await {
            Ok(found) if found.as_deref() == Some(sign.as_str()) => return Ok(connected),
            Ok(_) => {}
            Err(e) if is_of_options(&e) => {}
            Err(error) => return Err(error),
        }
        let connected = build(config.clone(), false);
        connected.session_sign().await?;
        Ok(connected)
    }

    /// The connections of a caller's pool. Those that the store keeps, so many of them for batches, are taken now.
    pub(crate) async fn of_pool(
        pool: deadpool_postgres::Pool,
        prepares: bool,
        timeout: Duration,
        lanes: usize,
    ) -> Result<Self> {
        let most = pool.status().max_size;
        let source = Sessions::callers(pool, prepares);
        let connections =
            leasehold_sql::Pool::of_callers(source, most, Deadline::after(timeout), lanes).await?;
        // The application may have all the others.
        Ok(Self { connections, direct: false, row_waits: RowWaits::new(most - lanes, 0) })
    }

    async fn session_sign(&self) -> Result<Option<String>> {
        let until = self.deadline();
        let mut connection = self.get(until).await?;
        let asked = until.bound(connection.setting("leasehold.session")).await;
        let late = || unanswered(self.server(), until.limit(), Effect::NotApplied);
        asked.ok_or_else(late)?.map_err(|e| error::of_connecting(self.server(), e))
    }

    /// Runs a transaction that creates objects, after others that prepare the same database: what `then` sends.
    pub(crate) async fn create(
        &self,
        until: Deadline,
        then: impl AsyncFnOnce(&Session) -> Result<(), tokio_postgres::Error>,
    ) -> Result<()> {
        let first = format!(
            "{BEGIN}; {SAFELY}; SET LOCAL lock_timeout = {}; SELECT pg_catalog.pg_advisory_xact_lock({LOCK})",
            until.earlier().left().as_millis().max(1)
        );
        let connection = self.get(until).await?;
        let done = self.exchange(connection, until, async |session: &mut Session| {
            session.transaction(&first, then).await
        });
        done.await.1.map_err(|failure| self.error(failure))
    }
}

impl Deref for Pool {
    type Target = Arc<leasehold_sql::Pool<Sessions>>;

    fn deref(&self) -> &Self::Target {
        &self.connections
    }
}

/// The server or a pooler answered, and not about the login: without the options it may accept the connection.
fn is_of_options(error: &Error) -> bool {
    let reported = error.cause().and_then(|source| source.downcast_ref::<tokio_postgres::Error>());
    reported.and_then(tokio_postgres::Error::code).is_some_and(|code| {
        *code == SqlState::PROTOCOL_VIOLATION
            || *code == SqlState::FEATURE_NOT_SUPPORTED
            || *code == SqlState::INVALID_PARAMETER_VALUE
            || *code == SqlState::CONNECTION_EXCEPTION
    })
}
