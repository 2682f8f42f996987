use leasehold_core::{RenewReply, RenewRequest, Result};

use crate::decide::decide;
use crate::inner::Inner;

impl Inner {
    pub(crate) async fn renew(&self, request: &RenewRequest) -> Result<RenewReply> {
        let request = request.clone();
        self.run("renew", move |database, limit| {
            let keys = request.leases().iter().flat_map(|lease| lease.claims().keys());
            decide(database, limit, keys, |table, now| Ok(table.renew(&request, now)))
        })
        .await
    }
}
