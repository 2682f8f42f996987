use std::sync::Arc;

use leasehold_core::{ReleaseEntry, ReleaseOutcome, ReleaseReply, ReleaseRequest, Result};

use super::renew::{all_or, each};
use crate::calls::release::{Release, outcome};
use crate::error;
use crate::inner::{Inner, locked};
use crate::lane::{Done, Entry};

impl Inner {
    pub(crate) async fn release(
        self: &Arc<Self>,
        request: &ReleaseRequest,
    ) -> Result<ReleaseReply> {
        let leases = request.leases();
        let keys = leases.iter().flat_map(|lease| lease.keys());
        let outcomes = each(leases, keys, |lease| self.released(lease)).await;
        all_or(outcomes, ReleaseOutcome::Failed).map(ReleaseReply::new)
    }

    async fn released(self: &Arc<Self>, lease: &ReleaseEntry) -> Result<ReleaseOutcome> {
        // A shared lease is not found by what travels together, and is then ended apart.
        if lease.keys().len() == 1 && lease.keep().is_none() {
            match self.together(Entry::Release(lease.clone())).await {
                Some(Ok(Done::Released(outcome))) => return Ok(outcome),
                Some(Ok(other)) => {
                    return Err(error::odd(&self.links.server, format_args!("{other:?}")));
                }
                Some(Err(error)) => return Err(error),
                None => {}
            }
        }
        let rows = self.apart(Release::new(lease)).await?;
        let rows = rows.ok_or_else(|| locked(&self.links.server))?;
        outcome(&self.links.server, &rows)
    }
}
