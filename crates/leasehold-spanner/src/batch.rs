//! Requests that are sent together, in one transaction.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{
    AcquireReply, AcquireRequest, Effect, Error, Now, ReleaseEntry, ReleaseOutcome, ReleaseRequest,
    RenewEntry, RenewOutcome, RenewRequest, Result, Table,
};
use leasehold_driver::Deadline;
use leasehold_driver::batches::{Exchange, Outcome, Request, Server};

use crate::client::{Client, Decision, Found};
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
}

impl Member for AcquireRequest {
    fn apply(&self, table: &mut Table, now: Now) -> Result<AcquireReply> {
        table.acquire(self, now)
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
    /// Carries out some requests, of different keys.
    pub(crate) async fn carry_out<R: Member>(
        &self,
        times: (Deadline, Deadline),
        requests: Vec<R>,
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
}

impl Server for Transactions {
    /// A client that answers nothing is retired when the time of its request is over.
    fn retire(&self) {}

    fn unanswered(&self, limit: Duration, effect: Effect) -> Error {
        self.client.unanswered(limit, effect)
    }
}

impl<R: Member> Exchange<R> for Transactions {
    async fn send(&self, requests: &[&R], begin: Deadline) -> Vec<Outcome<R::Reply>> {
        let members = requests.iter().map(|one| (*one).clone()).collect();
        match self.carry_out((begin, self.client.deadline()), members).await {
            Ok(replies) => replies.into_iter().map(Outcome::Done).collect(),
            Err(error) => requests.iter().map(|_| Outcome::Done(Err(error.clone()))).collect(),
        }
    }
}
