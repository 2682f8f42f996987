//! Exchanges on the connections of a store.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Effect, Result};
use leasehold_driver::Deadline;
use leasehold_sql::{CALLERS, Connection, no_connection};
use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Opts, OptsBuilder, Row};

use crate::error;
use crate::session::{Session, Sessions};
use crate::sql;

/// The fewest connections that are not reserved for batches.
const OTHERS: usize = 1;

/// Why an exchange has no rows.
pub(crate) type Unanswered = leasehold_sql::Unanswered<mysql_async::Error>;

/// The connections of a store.
pub(crate) struct Pool {
    pub(crate) connections: Arc<leasehold_sql::Pool<Sessions>>,
    /// The server is MariaDB, whatever version it reports.
    pub(crate) is_mariadb: bool,
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
        let (source, until) = (Sessions::Server(opts), Deadline::after(timeout));
        Self::new(leasehold_sql::Pool::own(source, server, timeout, most, OTHERS), until).await
    }

    /// The connections of a caller's pool. Those that the store keeps, so many of them for batches, are taken now.
    pub(crate) async fn of_pool(
        pool: mysql_async::Pool,
        timeout: Duration,
        lanes: usize,
    ) -> Result<Self> {
        let until = Deadline::after(timeout);
        let first = until.bound(pool.get_conn()).await;
        let first = first.ok_or_else(|| no_connection(CALLERS, timeout))?;
        let first = first.map_err(|e| error::of_connecting(CALLERS, e))?;
        let most = first.opts().pool_opts().constraints().max();
        drop(first);
        let source = Sessions::Callers(pool, most);
        Self::new(leasehold_sql::Pool::of_callers(source, most, until, lanes).await?, until).await
    }

    /// These connections, with what the server can do.
    async fn new(connections: Arc<leasehold_sql::Pool<Sessions>>, until: Deadline) -> Result<Self> {
        let mut pool = Self { connections, is_mariadb: false };
        let rows = pool.query_text(until, sql::IS_MARIADB).await;
        let rows = rows.map_err(|e| e.with_effect(Effect::NotApplied))?;
        pool.is_mariadb = rows.first().and_then(|row| row.get(0)) == Some(1);
        Ok(pool)
    }

    /// Runs statements without values, one after the other.
    pub(crate) async fn run(&self, deadline: Deadline, statements: &[String]) -> Result<()> {
        let connection = self.get(deadline).await?;
        let exchange = async |conn: &mut Conn| {
            for statement in statements {
                conn.query_drop(statement).await?;
            }
            Ok(())
        };
        let done = self.within(connection, deadline, exchange).await.1;
        done.map_err(|failure| self.error(failure))
    }

    /// The rows of a statement without values that only reads.
    pub(crate) async fn query_text(&self, deadline: Deadline, statement: &str) -> Result<Vec<Row>> {
        let connection = self.get(deadline).await?;
        let exchange = async |conn: &mut Conn| conn.query(statement).await;
        let rows = self.within(connection, deadline, exchange).await.1;
        rows.map_err(|failure| self.error(failure))
    }

    /// What an exchange returns until `deadline`, and the connection if it can be used again.
    pub(crate) async fn within<T>(
        &self,
        connection: Connection<Sessions>,
        deadline: Deadline,
        exchange: impl AsyncFnOnce(&mut Conn) -> mysql_async::Result<T>,
    ) -> (Option<Connection<Sessions>>, Result<T, Unanswered>) {
        let exchange = async |session: &mut Session| session.exchange(exchange).await;
        self.exchange(connection, deadline, exchange).await
    }
}

impl Deref for Pool {
    type Target = Arc<leasehold_sql::Pool<Sessions>>;

    fn deref(&self) -> &Self::Target {
        &self.connections
    }
}
