use leasehold_core::{ReleaseReply, ReleaseRequest, Result};

use crate::decide::decide;
use crate::inner::Inner;

impl Inner {
    pub(crate) async fn release(&self, request: &ReleaseRequest) -> Result<ReleaseReply> {
        let request = request.clone();
        self.run("release", move |database, limit| {
            let keys = request.leases().iter().flat_map(|lease| lease.keys());
            decide(database, limit, keys, |table, now| Ok(table.release(&request, now)))
        })
        .await
    }
}
