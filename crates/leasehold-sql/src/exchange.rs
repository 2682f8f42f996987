//! What is sent on the connections of a pool, and how requests end by the rows that come back.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Effect, Error, Result};
use leasehold_driver::Deadline;
use leasehold_driver::batches::{Exchange, Outcome, Server};

use crate::connection::{Connection, Pool};
use crate::dialect::{Client, Dialect, Statements, Tries};
use crate::error::{unanswered, unexpected};
use crate::pool::Unanswered;
use crate::reply::Reply;
use crate::request::Request;
use crate::session::{Call, Failed, Row, Session as _, Source};

impl<S: Source> Pool<S> {
    /// The rows of a call that waits for no row, on a connection of its own.
    ///
    /// # Errors
    /// Those of [`get`](Self::get), and the server's.
    pub async fn read<'c>(
        self: &Arc<Self>,
        until: Deadline,
        call: impl Fn() -> Call<'c, S>,
    ) -> Result<Vec<Row<S>>> {
        loop {
            let connection = self.get(until).await?;
            match self.query(connection, until, call()).await.1 {
                Err(Unanswered::Server(e)) if S::Session::is_over(&e) => {}
                rows => return rows.map_err(|failure| self.error(failure)),
            }
        }
    }

    /// The rows of a call on a reserved connection, within the time limit of an operation. `None` if it was rolled back because
    /// of another transaction, or there was no connection until `begin`.
    async fn briefly<'c>(
        self: &Arc<Self>,
        begin: Deadline,
        call: impl FnOnce(&Connection<S>) -> Call<'c, S>,
    ) -> Option<Result<Vec<Row<S>>>> {
        let connection = match self.reserved(begin).await {
            Ok(connection) => connection,
            Err(_) if begin.left().is_zero() => return None,
            Err(error) => return Some(Err(error)),
        };
        let call = call(&connection);
        let (connection, rows) = self.query(connection, self.deadline(), call).await;
        connection.into_iter().for_each(Connection::reserve);
        match rows {
            Ok(rows) => Some(Ok(rows)),
            Err(Unanswered::Server(error)) if S::Session::is_conflict(&error) => None,
            Err(failure) => Some(Err(self.error(failure))),
        }
    }

    /// What the rows of a call report, tried on connections of its own for as long as another transaction holds a row. `None`
    /// if it did for the whole time limit. `read` returns `None` for rows that report this. A call that is not answered within
    /// `first` is sent again, on another connection.
    pub(crate) async fn patiently<'c, T>(
        self: &Arc<Self>,
        until: Deadline,
        mut first: Option<Duration>,
        mut tries: impl Tries,
        call: impl Fn(Duration) -> Call<'c, S>,
        read: impl Fn(&[Row<S>]) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let mut was_locked = false;
        loop {
            tries.begin(until).await?;
            let connection = match self.get(until).await {
                Ok(connection) => connection,
                Err(_) if was_locked && until.left().is_zero() => return Ok(None),
                Err(error) => return Err(error),
            };
            let (is_last, step) = match first.take() {
                Some(first) => (false, until.within(first)),
                None => (true, until),
            };
            let patience = tries.patience(step);
            let call = call(patience);
            match self.query_within(connection, step, call, patience).await {
                Ok(Some(rows)) => {
                    if let Some(found) = read(&rows)? {
                        return Ok(Some(found));
                    }
                }
                Ok(None) => {}
                Err(Unanswered::Server(e)) if S::Session::is_over(&e) => {
                    was_locked = true;
                    continue;
                }
                Err(Unanswered::Server(e)) if S::Session::is_conflict(&e) => {}
                Err(failure) => match self.error(failure) {
                    // What was sent may be sent twice.
                    error if !is_last && error.effect() == Effect::Unknown => {
                        self.retire();
                        continue;
                    }
                    error => return Err(error),
                },
            }
            was_locked = true;
            if !tries.pause(until, is_last).await {
                return Ok(None);
            }
        }
    }

    /// As [`query`](Self::query), for a call that the server gives up after `patience`: `None` if it did.
    async fn query_within(
        &self,
        mut connection: Connection<S>,
        until: Deadline,
        call: Call<'_, S>,
        patience: Duration,
    ) -> Result<Option<Vec<Row<S>>>, Unanswered<Failed<S>>> {
        let rows = until.bound(connection.query_within(call, patience)).await;
        self.answered(connection, until, rows).1
    }
}

/// The reply to a request in the rows of a statement about it alone; `None` if the server did not act.
fn reply<R: Request, S: Source>(
    request: &R,
    server: &str,
    rows: &[Row<S>],
) -> Result<Option<R::Reply>> {
    let row = rows.first().ok_or_else(|| unexpected(server, "no row"))?;
    let reply = Reply::<S::Session>(server, row);
    let Some(outcome) = reply.outcome()? else { return Ok(None) };
    request.reply(&reply, &outcome).map(Some)
}

/// Sends any request on a connection of its own, again and again while its rows are locked.
pub(crate) async fn send_alone<R: Request, C: Statements<R>>(
    client: &C,
    request: &R,
    until: Deadline,
) -> Result<R::Reply> {
    let pool = client.pool();
    let first = R::MAY_BE_REPEATED.then(|| request.patience(pool.timeout()));
    let call = |patience| client.any(request, patience);
    let read = |rows: &[_]| reply::<R, C::Source>(request, pool.server(), rows);
    let reply = pool.patiently(until, first, client.tries(R::TAKES), call, read).await?;
    reply.map_or_else(|| request.locked(pool.server()), Ok)
}

async fn send_one<R: Request, C: Statements<R>>(
    client: &C,
    request: &R,
    begin: Deadline,
) -> Outcome<R::Reply> {
    let pool = client.pool();
    let reply = match pool.briefly(begin, |_| client.one(request)).await {
        Some(Ok(rows)) if rows.is_empty() && C::ONE_MAY_BE_UNDECIDED => None,
        Some(Ok(rows)) => reply::<R, C::Source>(request, pool.server(), &rows).transpose(),
        Some(Err(error)) => Some(Err(error)),
        None => None,
    };
    reply.map_or(Outcome::SendAlone, Outcome::Done)
}

/// How batches reach a server: on connections that are reserved for them. Several requests are one transaction that waits for
/// no row.
pub(crate) struct Reserved<D>(pub(crate) Arc<D>);

impl<D: Dialect> Server for Reserved<D> {
    fn retire(&self) {
        self.0.pool().retire();
    }

    fn unanswered(&self, limit: Duration, effect: Effect) -> Error {
        unanswered(self.0.pool().server(), limit, effect)
    }
}

impl<R: Request, C: Client + Statements<R>> Exchange<R> for Reserved<C> {
    async fn send(&self, requests: &[&R], begin: Deadline) -> Vec<Outcome<R::Reply>> {
        let client = &*self.0;
        if let [request] = requests {
            return vec![send_one(client, *request, begin).await];
        }
        let pool = client.pool();
        let joined = requests.iter().enumerate().filter(|(_, one)| C::may_join(requests[0], one));
        let (places, members): (Vec<usize>, Vec<&R>) = joined.map(|(at, one)| (at, *one)).unzip();
        let mut outcomes: Vec<_> = requests.iter().map(|_| Outcome::SendAlone).collect();
        let mut failed = None;
        match pool.briefly(begin, |connection| client.batch(connection, &members)).await {
            Some(Ok(rows)) => {
                for row in &rows {
                    let row = Reply::<<C::Source as Source>::Session>(pool.server(), row);
                    let find = |name: &str| {
                        members.binary_search_by(|one| one.key().as_str().cmp(name)).ok()
                    };
                    match row.nth(find).map(|nth| &mut outcomes[places[nth]]) {
                        Ok(outcome @ Outcome::SendAlone) => {
                            *outcome = Outcome::Done(R::member(&row));
                        }
                        Ok(_) => failed = Some(row.unexpected("two rows about one key")),
                        Err(error) => failed = Some(error),
                    }
                }
            }
            Some(Err(error)) if error.effect() != Effect::NotApplied => failed = Some(error),
            // Each is tried alone.
            None | Some(Err(_)) => {}
        }
        if let Some(error) = failed {
            // A row that names no member may be about any that has none, and that may have acted.
            for at in places {
                if matches!(outcomes[at], Outcome::SendAlone) {
                    outcomes[at] = Outcome::Done(Err(error.clone()));
                }
            }
        }
        outcomes
    }
}
