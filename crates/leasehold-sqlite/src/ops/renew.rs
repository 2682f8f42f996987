use leasehold_core::{RenewOutcome, RenewReply, RenewRequest, Result};

use crate::decide::decide;
use crate::inner::Inner;

impl Inner {
    pub(crate) async fn renew(&self, request: &RenewRequest) -> Result<RenewReply> {
        let (leases, request) = (request.leases().len(), request.clone());
        let renewed = self.write(move |rows| {
            let keys = request.leases().iter().flat_map(|lease| lease.claims().keys());
            decide(rows, keys, |table, now| Ok(table.renew(&request, now)))
        });
        renewed.await.or_else(|error| match error.lost_reason() {
            Some(reason) => {
                Ok(RenewReply::new(vec![RenewOutcome::Lost(Some(reason.clone())); leases]))
            }
            None => Err(error),
        })
    }
}
