//! One file for each operation.

mod acquire;
mod evict;
mod list;
mod release;
mod renew;

use std::sync::Arc;

use leasehold_core::{Effect, Result};
use leasehold_driver::Deadline;
use leasehold_driver::batches::Batches;

use crate::batch::{Member, batches};
use crate::commands::{Change, Modified, Times, Updated};
use crate::error::unanswered;
use crate::inner::Inner;

/// Carries out requests about leases, those about one key in batches.
#[derive(Clone)]
pub(crate) struct Leases {
    pub(crate) inner: Arc<Inner>,
    batches: Batches<Inner>,
}

impl Leases {
    pub(crate) fn new(inner: Arc<Inner>) -> Self {
        Self { batches: batches(&inner), inner }
    }

    /// The outcome of each request.
    async fn carry_out<R: Member>(
        &self,
        requests: impl IntoIterator<Item = R>,
        until: Deadline,
    ) -> Vec<Result<R::Reply>> {
        let is_batched = |request: &R| request.goes_in_batch();
        let alone = |request| alone(Arc::clone(&self.inner), request, until);
        self.batches.carry_out(requests, until, is_batched, alone).await
    }
}

async fn alone<R: Member>(inner: Arc<Inner>, request: Arc<R>, until: Deadline) -> Result<R::Reply> {
    let reply = request.alone(&inner, (until, None)).await?;
    reply.ok_or_else(|| unanswered(inner.commands.server(), until.limit(), Effect::Unknown))
}

impl Inner {
    /// Sends a change, if there is one. `None` if the key has no document that fits it; within, as of
    /// [`Commands::update`](crate::commands::Commands::update).
    async fn modify(
        &self,
        change: Option<Change>,
        times: Times,
    ) -> Result<Option<Option<Updated>>> {
        let Some(change) = change else { return Ok(None) };
        Ok(match self.commands.modify(&change, times).await? {
            Modified::Done(updated) => updated.document.is_some().then_some(Some(updated)),
            Modified::Locked => Some(None),
            Modified::Exists(_) => None,
        })
    }
}
