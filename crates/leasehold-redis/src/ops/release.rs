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
        let ids = leases.iter().map(|lease| lease.id().clone()).collect();
        let sent = Request::acts(ids, None);
        if let [lease] = leases
            && names.len() == 1
            && lease.keep().is_none()
            && lease.wakes()
        {
            let token = lease.token().map(|token| token.get().into());
            let arguments: Vec<_> = [lease.id().into()].into_iter().chain(token).collect();
            let reply = self.run(&scripts::RELEASE, &names, &arguments, &sent).await?;
            return self.reader().released_all(reply);
        }
        let mut arguments = Vec::with_capacity(5 * leases.len());
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
        let reply = self.run(&scripts::RELEASE, &names, &arguments, &sent).await?;
        self.reader().released_all(reply)
    }
}
