use leasehold_core::{ReleaseReply, ReleaseRequest, Result};

use crate::decide::decide;
use crate::inner::Inner;

impl Inner {
    pub(crate) async fn release(&self, request: &ReleaseRequest) -> Result<ReleaseReply> {
        let request = request.clone();
        self.write(move |rows| {
            let keys = request.leases().iter().flat_map(|lease| lease.keys());
            decide(rows, keys, |table, now| Ok(table.release(&request, now)))
        })
        .await
    }
}
