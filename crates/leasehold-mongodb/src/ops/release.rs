use std::time::Duration;

use leasehold_core::{
    Effect, Key, ReleaseEntry, ReleaseOutcome, ReleaseReply, ReleaseRequest, Result, each_or_worst,
};
use leasehold_driver::Deadline;
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, Document};

use crate::batch::{Member, Seen, Sent};
use crate::change::Ends;
use crate::commands::{Shows, Times};
use crate::document::{Stored, ended_by};
use crate::error::{perhaps_applied, unanswered};
use crate::inner::Inner;
use crate::keys::Keys;
use crate::ops::Leases;
use crate::pipeline;
use crate::shapes::Shape;
use crate::simple;

impl Leases {
    pub(crate) async fn release(&self, request: &ReleaseRequest) -> Result<ReleaseReply> {
        let until = self.inner.commands.deadline();
        let outcomes = self.carry_out(request.leases().iter().cloned(), until).await;
        each_or_worst(outcomes, ReleaseOutcome::Failed).map(ReleaseReply::new)
    }
}

impl Member for ReleaseEntry {
    fn goes_in_batch(&self) -> bool {
        self.keys().len() == 1 && self.keep().is_none()
    }

    fn is_simple(&self, shape: Option<Shape>) -> bool {
        shape == Some(Shape::Simple)
    }

    fn given(&self, inner: &Inner, sent: Sent) -> Document {
        pipeline::release::given(self, inner.skew, Some(sent.batch))
    }

    fn simple(given: Bson) -> Vec<Document> {
        pipeline::release::simple(given)
    }

    fn pipeline(given: Bson) -> Vec<Document> {
        pipeline::release::pipeline(given)
    }

    async fn alone(
        &self,
        inner: &Inner,
        _: ObjectId,
        times: Times,
    ) -> Result<Option<ReleaseOutcome>> {
        inner.release_one(self, None, times).await
    }

    async fn again(
        &self,
        inner: &Inner,
        sent: Sent,
        times: Times,
    ) -> Result<Option<ReleaseOutcome>> {
        let ended =
            inner.release_one(self, Some(sent.batch), times).await.map_err(perhaps_applied)?;
        let unanswered = || unanswered(inner.commands.server(), times.0.limit(), Effect::Unknown);
        ended.ok_or_else(unanswered).map(Some)
    }

    async fn reply(
        &self,
        inner: &Inner,
        seen: Seen<'_>,
        until: Deadline,
    ) -> Result<Option<ReleaseOutcome>> {
        let stored = seen.stored(inner, &self.keys()[0])?;
        let ended = stored.as_ref().map(|stored| seen.ended(stored)).transpose()?.flatten();
        match (ended, stored) {
            (Some(ended), _) => Ok(Some(ended)),
            (None, Some(stored)) if !is_there(self, &stored) => Ok(Some(ReleaseOutcome::NotHeld)),
            (None, None) if seen.is_missing() => Ok(Some(ReleaseOutcome::NotHeld)),
            (None, Some(_)) => self.again(inner, seen.sent, (until, None)).await,
            // The document may have been deleted since, or be one of another primary.
            (None, _) => {
                let timeout = inner.commands.timeout();
                Err(unanswered(inner.commands.server(), timeout, Effect::Unknown))
            }
        }
    }
}

/// Whether the document has a record of the lease.
fn is_there(lease: &ReleaseEntry, stored: &Stored) -> bool {
    stored.entry.holders.iter().any(|holder| holder.id.as_ref() == Some(lease.id()))
}

impl Inner {
    /// The server ends the lease by the rules of a [`Table`](leasehold_core::Table), which tells from the document before what the outcome is, unless
    /// the batch that was sent `after` all ended it.
    pub(crate) async fn release_one(
        &self,
        lease: &ReleaseEntry,
        after: Option<ObjectId>,
        (until, patience): Times,
    ) -> Result<Option<ReleaseOutcome>> {
        // Sent again, it would not find out whether it ended the lease before.
        let times = (until, patience.map(|patience| patience.max(until.limit() / 2)));
        let request = ReleaseRequest::new(vec![lease.clone()]);
        let [key] = lease.keys() else {
            return self.release_many(lease, &request, times.0).await.map(Some);
        };
        // A batch may have left a trace that only the document before shows.
        let simple = simple::release(lease).filter(|_| after.is_none());
        let pipeline = || {
            let given = pipeline::release::given(lease, self.skew, None);
            pipeline::release::pipeline(pipeline::given(given))
        };
        let updated = self.change_or_update(simple, (key, Shows::Before), pipeline, times).await?;
        let Some(updated) = updated else { return Ok(None) };
        let Some(document) = &updated.document else {
            return Ok(Some(ReleaseOutcome::NotHeld));
        };
        if let Some(batch) = after
            && let Some(ended) = ended_by(document, batch, Duration::ZERO)?
        {
            return Ok(Some(ended));
        }
        let stored = self.stored(key, &updated)?;
        let mut table = self.rules();
        table.insert(key.clone(), stored.entry.holders);
        Ok(Some(only(table.release(&request, stored.now))))
    }

    async fn release_many(
        &self,
        lease: &ReleaseEntry,
        request: &ReleaseRequest,
        until: Deadline,
    ) -> Result<ReleaseOutcome> {
        let keys: Vec<Key> = lease.keys().to_vec();
        let rule = |loaded: &mut Keys, now| Ok(loaded.table.release(request, now));
        let changed = self
            .commands
            .change(&keys, (&self.rules(), self.skew, Ends::OfTerms), until, rule)
            .await?;
        Ok(only(changed.result))
    }
}

fn only(reply: ReleaseReply) -> ReleaseOutcome {
    reply.leases.into_iter().next().unwrap_or(ReleaseOutcome::NotHeld)
}
