//! One session of a server, and how it is begun.

use std::sync::atomic::Ordering;

use leasehold_core::{Effect, Error, Result};
use leasehold_sql::{Answer, Source, locked};
use mysql_async::consts::StatusFlags;
use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Opts, Params, Row};

use crate::call::Call;
use crate::error;
use crate::sql::READ_ONLY;

/// What the sessions of our own connections have: the only statement that may wait, on MySQL, for another client that
/// uses a key for the first time, waits for a second, which is the shortest time; each commits by itself; an idle
/// connection stays; statements, texts and times mean the same whatever the server has.
const SETTINGS: &str = "SET NAMES utf8mb4, SESSION innodb_lock_wait_timeout = 1, \
     SESSION autocommit = 1, SESSION wait_timeout = 2147483, SESSION sql_mode = 'STRICT_ALL_TABLES', \
     SESSION time_zone = '+00:00'";

/// The variable has another name in each product.
const ISOLATION: &str = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED";

/// Where sessions come from.
#[expect(missing_debug_implementations, reason = "nobody outside can name it")]
pub enum Sessions {
    Server(Opts),
    /// A caller's pool, and the most connections that it has.
    Callers(mysql_async::Pool, usize),
}

/// A session.
#[expect(missing_debug_implementations, reason = "nobody outside can name it")]
pub struct Session {
    conn: Conn,
    /// No reply can come that nobody waits for, and no transaction is open.
    is_clean: bool,
}

impl Source for Sessions {
    type Session = Session;

    async fn connect(&self, server: &str) -> Result<Session> {
        let begun = match self {
            Self::Server(opts) => begin(opts).await.map(|conn| (conn, true)),
            Self::Callers(pool, _) => of_callers(pool).await.map(|conn| (conn, false)),
        };
        let (conn, is_ours) = begun.map_err(|e| error::of_connecting(server, e))?;
        if !is_ours && is_outside(&conn) == Some(false) {
            drop(conn.disconnect().await);
            return Err(Error::unavailable(
                Effect::NotApplied,
                "a connection of the pool is inside a transaction that the application has left open, and was closed; end \
                 every transaction before its connection goes back to the pool",
            ));
        }
        Ok(Session { conn, is_clean: true })
    }

    /// They do not end.
    fn idle(&self) -> usize {
        match self {
            Self::Server(_) => 0,
            Self::Callers(pool, _) => pool.metrics().connections_in_pool.load(Ordering::SeqCst),
        }
    }

    fn all_in_use(&self) -> Option<usize> {
        let Self::Callers(pool, most) = self else { return None };
        let in_use = pool.metrics().connections_in_use.load(Ordering::Relaxed);
        (in_use >= *most).then_some(*most)
    }
}

async fn begin(opts: &Opts) -> mysql_async::Result<Conn> {
    let mut conn = Conn::new(opts.clone()).await?;
    conn.query_drop(SETTINGS).await?;
    conn.query_drop(ISOLATION).await?;
    Ok(conn)
}

async fn of_callers(pool: &mysql_async::Pool) -> mysql_async::Result<Conn> {
    let mut conn = pool.get_conn().await?;
    if is_outside(&conn).is_none() {
        // After an error only another reply states whether its transaction is over.
        conn.ping().await?;
    }
    Ok(conn)
}

/// Whether the session is outside a transaction, as its last reply stated; `None` after an error, which does not state it.
fn is_outside(conn: &Conn) -> Option<bool> {
    let answer = conn.last_ok_packet()?;
    Some(!answer.status_flags().contains(StatusFlags::SERVER_STATUS_IN_TRANS))
}

impl Session {
    /// Runs an exchange. Unless it ends, and outside a transaction, the session cannot be used again.
    pub(crate) async fn exchange<T>(
        &mut self,
        exchange: impl AsyncFnOnce(&mut Conn) -> mysql_async::Result<T>,
    ) -> mysql_async::Result<T> {
        self.is_clean = false;
        let answer = exchange(&mut self.conn).await;
        self.is_clean = match &answer {
            Ok(_) => is_outside(&self.conn) == Some(true),
            // What is rolled back because of another transaction is whole. Anything else may have interrupted a procedure.
            Err(e) => error::is_conflict(e),
        };
        answer
    }
}

impl leasehold_sql::Session for Session {
    type Error = mysql_async::Error;

    type Call<'c> = Call<'c>;

    fn query<'q, 'c: 'q>(&'q mut self, call: Call<'c>) -> Answer<'q, Vec<Row>, Self::Error> {
        Box::pin(self.exchange(async move |conn: &mut Conn| {
            let values = Params::Positional(call.values);
            let mut result = conn.exec_iter(&*call.text, values).await?;
            let mut rows = Vec::new();
            while !result.is_empty() {
                rows.extend(result.collect::<Row>().await?);
            }
            result.drop_result().await?;
            Ok(rows)
        }))
    }

    fn is_usable(&self) -> bool {
        self.is_clean
    }

    async fn ping(&mut self) -> bool {
        self.exchange(async |conn: &mut Conn| conn.ping().await).await.is_ok()
    }

    async fn read_only(&mut self, server: &str) -> Result<Option<Error>> {
        let question = format!("SELECT {READ_ONLY}");
        let asked = self.exchange(async |conn: &mut Conn| conn.query_first(&question).await).await;
        let is_read_only: Option<bool> =
            asked.map_err(|e| error::of(server, e).with_effect(Effect::NotApplied))?;
        Ok((is_read_only == Some(true)).then(|| error::read_only(server)))
    }

    async fn end(self) {
        drop(self.conn.disconnect().await);
    }

    fn is_conflict(error: &mysql_async::Error) -> bool {
        error::is_conflict(error)
    }

    fn casts_doubt(error: &mysql_async::Error) -> bool {
        error::casts_doubt(error)
    }

    fn error(server: &str, error: mysql_async::Error) -> Error {
        if error::is_conflict(&error) { locked(server) } else { error::of(server, error) }
    }
}
