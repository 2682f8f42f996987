//! What all operations share.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{AcquireReply, AcquireRequest, Result};
use leasehold_driver::sql::SqlLeases;

use crate::database::Database;
use crate::listener::Listener;
use crate::pool::Links;
use crate::server::Server;
use crate::sql::{SchemaName, Sql};

/// The store's name, as in its URL.
pub(crate) const NAME: &str = "postgres";

/// The longest pause of a waiter whom nobody wakes.
const UNHEARD: Duration = Duration::from_secs(1);

pub(crate) struct Inner {
    pub(crate) database: Arc<Database>,
    pub(crate) leases: SqlLeases<Database>,
    pub(crate) listener: Option<Listener>,
}

impl Inner {
    pub(crate) fn new(
        links: Links,
        schema: SchemaName,
        forget_after: Option<Duration>,
        waker: Option<Server>,
    ) -> Self {
        let sql = Arc::new(Sql::new(schema));
        let listener = waker.map(|server| Listener::new(server, links.clone(), Arc::clone(&sql)));
        let database = Arc::new(Database::new(links, sql, forget_after));
        let leases = SqlLeases::new(Arc::clone(&database));
        Self { database, leases, listener }
    }

    pub(crate) async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireReply> {
        let waits = self.listener.as_ref().is_some_and(|all| all.hears(request.claims().keys()));
        Ok(match self.leases.acquire(request, waits).await? {
            AcquireReply::Refused(mut refused) if self.is_deaf() => {
                refused.poll_within.get_or_insert(UNHEARD);
                AcquireReply::Refused(refused)
            }
            acquired => acquired,
        })
    }

    pub(crate) async fn close(&self) {
        let links = &self.database.links;
        let until = links.deadline();
        if let Some(listener) = &self.listener {
            until.bound(listener.close()).await;
        }
        links.close(until).await;
    }

    /// Whether nothing wakes waiters at the moment, although the store can.
    fn is_deaf(&self) -> bool {
        self.listener.as_ref().is_some_and(|listener| listener.is_deaf())
    }
}
