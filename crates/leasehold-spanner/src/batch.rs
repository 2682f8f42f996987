//! Requests that are sent together, in one transaction.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{
    AcquireReply, AcquireRequest, Effect, Error, Now, ReleaseEntry, ReleaseOutcome, ReleaseRequest,
    RenewEntry, RenewOutcome, RenewRequest, Result, Table,
};
use leasehold_driver::Deadline;
use leasehold_driver::batches::{
    Exchange, Outcome, Outcomes, Request, Requests, Server, each_kind,
};

use crate::client::{Client, Decision, Found, Times};
use crate::error;
use crate::rows::Rows;
use crate::sender::Sender;
use crate::table::Sql;

/// A request about one lease, and how the rules decide about it.
pub(crate) trait Member: Request + Clone {
    /// Who sends it.
    fn sender(client: &Client) -> &Sender {
        &client.requests
    }

    fn apply(&self, table: &mut Table, now: Now) -> Result<Self::Reply>;

    /// Carries out some, of different keys.
    fn carry_out(
        requests: Vec<Self>,
        by: &Transactions,
        times: Times,
    ) -> impl Future<Output = Result<Vec<Result<Self::Reply>>>> + Send {
        by.transact(requests, times)
    }
}

impl Member for AcquireRequest {
    fn apply(&self, table: &mut Table, now: Now) -> Result<AcquireReply> {
        table.acquire(self, now)
    }

    async fn carry_out(
        requests: Vec<Self>,
        by: &Transactions,
        times: Times,
    ) -> Result<Vec<Result<AcquireReply>>> {
        by.acquire(requests, times).await
    }
}

impl Member for RenewEntry {
    fn sender(client: &Client) -> &Sender {
        &client.renewals
    }

    fn apply(&self, table: &mut Table, now: Now) -> Result<RenewOutcome> {
        let mut reply = table.renew(&RenewRequest::new(vec![self.clone()]), now);
        Ok(reply.leases.remove(0))
    }
}

impl Member for ReleaseEntry {
    fn apply(&self, table: &mut Table, now: Now) -> Result<ReleaseOutcome> {
        let mut reply = table.release(&ReleaseRequest::new(vec![self.clone()]), now);
        Ok(reply.leases.remove(0))
    }
}

/// Carries out requests on the table.
pub(crate) struct Transactions {
    pub(crate) client: Arc<Client>,
    pub(crate) sql: Arc<Sql>,
}

impl Transactions {
    /// Carries out some requests, of different keys, in a transaction.
    async fn transact<R: Member>(
        &self,
        requests: Vec<R>,
        times: Times,
    ) -> Result<Vec<Result<R::Reply>>> {
        let (client, sql) = (&self.client, Arc::clone(&self.sql));
        let lock = sql.lock(requests.iter().flat_map(|one| one.keys()));
        let decide = move |found: &Found| {
            let (rows, mut changes) = (Rows::of(found)?, Vec::new());
            let decided = requests.iter().map(|one| {
                rows.decide(&sql.table, one.keys(), &mut changes, |table, now| {
                    one.apply(table, now)
                })
            });
            let reply = decided.collect();
            Ok(Decision { reply, changes })
        };
        Ok(client.transact(R::sender(client), times, lock, decide).await?.reply)
    }

    /// Refuses what is about a key that was refused lately and is still held, and carries out the rest in a transaction.
    async fn acquire(
        &self,
        requests: Vec<AcquireRequest>,
        times: Times,
    ) -> Result<Vec<Result<AcquireReply>>> {
        let refused = self.look(&requests, times.begin).await?;
        let rest = requests.iter().zip(&refused).filter(|(_, refused)| refused.is_none());
        let rest: Vec<_> = rest.map(|(one, _)| one.clone()).collect();
        let mut decided = match rest.as_slice() {
            [] => Vec::new(),
            _ => self.transact(rest, times).await?,
        }
        .into_iter();
        let replies =
            refused.into_iter().map_while(|refused| refused.map(Ok).or_else(|| decided.next()));
        let replies: Vec<_> = replies.collect();
        for (request, reply) in requests.iter().zip(&replies) {
            if let Ok(reply) = reply {
                self.client.refusals.note(request, reply);
            }
        }
        Ok(replies)
    }

    /// What is refused of the requests about keys that were refused lately.
    async fn look(
        &self,
        requests: &[AcquireRequest],
        until: Deadline,
    ) -> Result<Vec<Option<AcquireReply>>> {
        let concerns = |one: &AcquireRequest| self.client.refusals.concern(one);
        let concerned: Vec<_> = requests.iter().map(concerns).collect();
        if !concerned.contains(&true) {
            return Ok(vec![None; requests.len()]);
        }
        let looked_up = {
            let concerned = requests.iter().zip(&concerned).filter(|(_, concerned)| **concerned);
            self.sql.look_up(concerned.flat_map(|(one, _)| one.claims().keys()))
        };
        let rows = Rows::of(&self.client.look(looked_up, until).await?)?;
        let look = |request: &AcquireRequest| {
            let (table, mut changes) = (&self.sql.table, Vec::new());
            let acquire = |rules: &mut Table, now| rules.acquire(request, now);
            match rows.decide(table, request.keys(), &mut changes, acquire) {
                Ok(refused @ AcquireReply::Refused(_)) if changes.is_empty() => Some(refused),
                // The transaction says what is to be said.
                _ => None,
            }
        };
        let looks = requests.iter().zip(concerned);
        Ok(looks.map(|(one, concerned)| concerned.then(|| look(one)).flatten()).collect())
    }

    /// Those of a batch: several requests wait only briefly for rows that another client has locked, and keep the locks of their own
    /// rows no longer.
    fn times<R: Member>(&self, requests: &[&R], begin: Deadline) -> Times {
        let end = self.client.deadline();
        let patience = requests.iter().map(|one| one.patience(self.client.timeout)).min();
        match patience.filter(|_| requests.len() > 1) {
            Some(patience) => Times { begin, end: end.within(patience), gives_way: true },
            None => Times { begin, end, gives_way: false },
        }
    }
}

impl Server for Transactions {
    async fn send(&self, requests: &Requests<'_>, begin: Deadline) -> Outcomes {
        each_kind(self, requests, begin).await
    }

    /// A client that answers nothing is retired when the time of its request is over.
    fn retire(&self) {}

    fn unanswered(&self, limit: Duration, effect: Effect) -> Error {
        self.client.unanswered(limit, effect)
    }
}

impl<R: Member> Exchange<R> for Transactions {
    async fn send(&self, requests: &[&R], begin: Deadline) -> Vec<Outcome<R::Reply>> {
        let members = requests.iter().map(|one| (*one).clone()).collect();
        match R::carry_out(members, self, self.times(requests, begin)).await {
            Ok(replies) => replies.into_iter().map(Outcome::Done).collect(),
            // Another client may have locked the rows of one of them.
            Err(error) if error::is_to_be_sent_again(&error) => {
                requests.iter().map(|_| Outcome::SendAlone).collect()
            }
            Err(error) => requests.iter().map(|_| Outcome::Done(Err(error.clone()))).collect(),
        }
    }
}
