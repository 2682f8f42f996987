//! One file for each operation.

mod acquire;
mod evict;
mod list;
mod release;
mod renew;

use std::sync::Arc;

use leasehold_core::{Effect, Key, Result};
use leasehold_driver::Deadline;
use leasehold_driver::batches::Batches;
use mongodb::bson::Document;
use mongodb::bson::oid::ObjectId;

use crate::batch::{Member, batches};
use crate::commands::{Change, Modified, Shows, Times, Updated};
use crate::error::{perhaps_applied, unanswered};
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
    let reply = request.alone(&inner, ObjectId::new(), (until, None)).await;
    let reply = if request.goes_in_batch() { reply.map_err(perhaps_applied) } else { reply };
    reply?.ok_or_else(|| unanswered(inner.commands.server(), until.limit(), Effect::Unknown))
}

impl Inner {
    /// Sends a change, or an update by a pipeline if there is none or the key has no document that fits it. `None` as of
    /// [`Commands::update`](crate::commands::Commands::update).
    async fn change_or_update(
        &self,
        change: Option<Change>,
        (key, shows): (&Key, Shows),
        pipeline: impl FnOnce() -> Vec<Document>,
        times: Times,
    ) -> Result<Option<Updated>> {
        if let Some(change) = change {
            match self.commands.modify(&change, times).await? {
                Modified::Done(updated) if updated.document.is_some() => return Ok(Some(updated)),
                Modified::Locked => return Ok(None),
                Modified::Done(_) | Modified::Exists(_) => {}
            }
        }
        self.commands.update(key.as_str(), &pipeline(), shows, times).await
    }
}
