//! What is sent on the connections of a pool, and how requests end by the rows that come back.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use std::vec;

use leasehold_core::{AcquireRequest, Effect, Error, Key, Result};
use leasehold_driver::Deadline;
use leasehold_driver::batches::{Outcome, Outcomes, Requests, Server};

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
        call: impl FnOnce() -> Call<'c, S>,
    ) -> Option<Result<Vec<Row<S>>>> {
        let connection = match self.reserved(begin).await {
            Ok(connection) => connection,
            Err(_) if begin.left().is_zero() => return None,
            Err(error) => return Some(Err(error)),
        };
        let (connection, rows) = self.query(connection, self.deadline(), call()).await;
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
    let reply = match pool.briefly(begin, || client.one(request)).await {
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
    async fn send(&self, requests: &Requests<'_>, begin: Deadline) -> Outcomes {
        if requests.keys().nth(1).is_some() {
            return send_together(&*self.0, requests, begin).await;
        }
        let (client, mut outcomes) = (&*self.0, Outcomes::default());
        for one in &requests.acquires {
            outcomes.acquires.push(send_one(client, *one, begin).await);
        }
        for one in &requests.renewals {
            outcomes.renewals.push(send_one(client, *one, begin).await);
        }
        for one in &requests.releases {
            outcomes.releases.push(send_one(client, *one, begin).await);
        }
        outcomes
    }

    fn retire(&self) {
        self.0.pool().retire();
    }

    fn unanswered(&self, limit: Duration, effect: Effect) -> Error {
        unanswered(self.0.pool().server(), limit, effect)
    }
}

async fn send_together<D: Dialect>(
    dialect: &D,
    requests: &Requests<'_>,
    begin: Deadline,
) -> Outcomes {
    let of = async |requests: &Requests<'_>| {
        let sent = try_together(dialect, requests, begin).await;
        sent.ok_or_else(|| Outcomes::alone(requests))
    };
    let failed = match of(requests).await {
        Ok(outcomes) => return outcomes,
        Err(failed) => failed,
    };
    if requests.acquires.is_empty() || requests.releases.is_empty() {
        return failed;
    }
    // One kind may be at fault: without the right to insert, releases succeed.
    let acquires = Requests { acquires: requests.acquires.clone(), ..Requests::default() };
    let releases = Requests { releases: requests.releases.clone(), ..Requests::default() };
    Outcomes {
        acquires: of(&acquires).await.unwrap_or_else(|failed| failed).acquires,
        releases: of(&releases).await.unwrap_or_else(|failed| failed).releases,
        ..failed
    }
}

/// `None` if none of them has acted.
async fn try_together<D: Dialect>(
    dialect: &D,
    requests: &Requests<'_>,
    begin: Deadline,
) -> Option<Outcomes> {
    let Requests { acquires, renewals, releases } = requests;
    let joins = |one: &&AcquireRequest| D::may_join(acquires[0], one);
    let members = Requests {
        acquires: acquires.iter().copied().filter(joins).collect(),
        renewals: renewals.clone(),
        releases: releases.clone(),
    };
    let (rows, failed) = match dialect.pool().briefly(begin, || dialect.batch(&members)).await? {
        Ok(rows) => (rows, None),
        Err(error) if error.effect() == Effect::NotApplied => return None,
        Err(error) => (Vec::new(), Some(error)),
    };
    let mut answers = Answers::<D>::new(dialect.pool().server(), &members, &rows, failed);
    let of_acquire = |one: &&_| if joins(one) { answers.next(*one) } else { Outcome::SendAlone };
    Some(Outcomes {
        acquires: acquires.iter().map(of_acquire).collect(),
        renewals: renewals.iter().map(|one| answers.next(*one)).collect(),
        releases: releases.iter().map(|one| answers.next(*one)).collect(),
    })
}

/// What a batch reported about each of its members, in their order.
struct Answers<'r, D: Client> {
    rows: vec::IntoIter<Option<Reply<'r, <D::Source as Source>::Session>>>,
    /// Why nobody knows what became of those without a row.
    failed: Option<Error>,
}

impl<'r, D: Client> Answers<'r, D> {
    fn new(
        server: &'r str,
        members: &Requests<'_>,
        rows: &'r [Row<D::Source>],
        mut failed: Option<Error>,
    ) -> Self {
        let places: HashMap<_, _> = members.keys().map(Key::as_str).zip(0..).collect();
        let mut answers = vec![None; places.len()];
        let places_of = |row: &Reply<'r, _>| {
            if !row.is_of_all()? {
                let place = row.nth(|name| places.get(name).copied())?;
                return Ok(place..place + 1);
            }
            match row.kind()?.as_str() {
                "acquires" if !members.acquires.is_empty() => Ok(0..members.acquires.len()),
                "releases" if !members.releases.is_empty() => {
                    Ok(places.len() - members.releases.len()..places.len())
                }
                other => Err(row.unexpected(format_args!("a row about all {other:?}"))),
            }
        };
        for row in rows {
            let row = Reply(server, row);
            match places_of(&row) {
                Ok(about) if answers[about.clone()].iter().all(Option::is_none) => {
                    answers[about].fill(Some(row));
                }
                Ok(_) => failed = Some(row.unexpected("two rows about one key")),
                // It may be about any member that has none, and that may have acted.
                Err(error) => failed = Some(error),
            }
        }
        Self { rows: answers.into_iter(), failed }
    }

    fn next<R: Request>(&mut self, request: &R) -> Outcome<R::Reply> {
        match (self.rows.next().flatten(), &self.failed) {
            (Some(row), _) => Outcome::Done(request.member(&row)),
            (None, Some(error)) => Outcome::Done(Err(error.clone())),
            (None, None) => Outcome::SendAlone,
        }
    }
}
