use std::sync::Arc;

use leasehold_core::{
    Key, ReleaseEntry, ReleaseOutcome, ReleaseReply, ReleaseRequest, Result, Table, each_or_worst,
};
use leasehold_driver::Deadline;

use crate::change::Ends;
use crate::commands::Shows;
use crate::inner::Inner;
use crate::ops::carry_out;
use crate::pipeline;

impl Inner {
    pub(crate) async fn release(
        self: &Arc<Self>,
        request: &ReleaseRequest,
    ) -> Result<ReleaseReply> {
        let until = self.commands.deadline();
        let keys = request.leases().iter().flat_map(|lease| lease.keys());
        let requests = request.leases().iter().map(|lease| {
            let (inner, lease) = (Arc::clone(self), lease.clone());
            async move { inner.release_one(&lease, until).await }
        });
        let outcomes = carry_out(keys, requests).await;
        each_or_worst(outcomes, ReleaseOutcome::Failed).map(ReleaseReply::new)
    }

    /// The server ends the lease by the rules of a [`Table`], which tells from the document before what the outcome is.
    pub(crate) async fn release_one(
        &self,
        lease: &ReleaseEntry,
        until: Deadline,
    ) -> Result<ReleaseOutcome> {
        let request = ReleaseRequest::new(vec![lease.clone()]);
        let [key] = lease.keys() else { return self.release_many(lease, &request, until).await };
        let pipeline = pipeline::release(lease, self.skew);
        let updated = self.commands.update(key.as_str(), &pipeline, Shows::Before, until).await?;
        if updated.document.is_none() {
            return Ok(ReleaseOutcome::NotHeld);
        }
        let stored = self.stored(key, &updated)?;
        let mut table = self.rules();
        table.insert(key.clone(), stored.entry);
        Ok(only(table.release(&request, stored.now)))
    }

    async fn release_many(
        &self,
        lease: &ReleaseEntry,
        request: &ReleaseRequest,
        until: Deadline,
    ) -> Result<ReleaseOutcome> {
        let keys: Vec<Key> = lease.keys().to_vec();
        let rule = |table: &mut Table, now| Ok(table.release(request, now));
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
