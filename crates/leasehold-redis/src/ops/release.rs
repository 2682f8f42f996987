use leasehold_core::term::micros_up;
use leasehold_core::{
    FencingToken, ReleaseEntry, ReleaseOutcome, ReleaseReply, ReleaseRequest, Result,
};

use crate::connection::exchange::Request;
use crate::inner::Inner;
use crate::scripts;

impl Inner {
    pub(crate) async fn release(&self, request: &ReleaseRequest) -> Result<ReleaseReply> {
        let released = self.chunks(
            request.leases(),
            |lease| self.names(lease.keys()),
            |leases| async move { self.release_some(&leases).await },
            ReleaseOutcome::Failed,
        );
        released.await.map(ReleaseReply::new)
    }

    async fn release_some(&self, leases: &[&ReleaseEntry]) -> Result<Vec<ReleaseOutcome>> {
        let names = self.names(leases.iter().flat_map(|lease| lease.keys()))?;
        let mut arguments = Vec::with_capacity(1 + 5 * leases.len());
        arguments.push(self.forget_after());
        for lease in leases {
            let keys = u64::try_from(lease.keys().len()).unwrap_or(u64::MAX);
            arguments.extend([
                lease.id().into(),
                lease.keep().map_or(0, micros_up).into(),
                keys.into(),
                u64::from(lease.wakes()).into(),
                lease.token().map_or(0, FencingToken::get).into(),
            ]);
        }
        let ids = leases.iter().map(|lease| lease.id().clone()).collect();
        let sent = Request::acts(ids, None);
        let replies =
            self.reader().array(self.run(&scripts::RELEASE, &names, &arguments, &sent).await?)?;
        replies.into_iter().map(|reply| self.reader().released(reply)).collect()
    }
}
