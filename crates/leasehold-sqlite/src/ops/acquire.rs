use leasehold_core::{AcquireReply, AcquireRequest, Result};

use crate::decide::decide;
use crate::inner::Inner;

impl Inner {
    pub(crate) async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireReply> {
        let request = request.clone();
        self.write(move |rows| {
            decide(rows, request.claims().keys(), |table, now| table.acquire(&request, now))
        })
        .await
    }
}
