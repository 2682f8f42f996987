use leasehold_core::term::micros_up;
use leasehold_core::{FencingToken, RenewEntry, RenewOutcome, RenewReply, RenewRequest, Result};

use crate::connection::exchange::Request;
use crate::inner::Inner;
use crate::{scripts, text};

impl Inner {
    pub(crate) async fn renew(&self, request: &RenewRequest) -> Result<RenewReply> {
        let renewed = self.chunks(
            request.leases(),
            |lease| self.names(lease.claims().keys()),
            |leases| async move { self.renew_some(&leases).await },
            RenewOutcome::Failed,
        );
        renewed.await.map(RenewReply::new)
    }

    async fn renew_some(&self, leases: &[&RenewEntry]) -> Result<Vec<RenewOutcome>> {
        let names = self.names(leases.iter().flat_map(|lease| lease.claims().keys()))?;
        let mut arguments = Vec::with_capacity(6 * leases.len());
        for lease in leases {
            let modes: String = lease
                .claims()
                .iter()
                .map(|claim| if claim.mode.is_shared() { 's' } else { 'x' })
                .collect();
            arguments.extend([
                lease.id().into(),
                lease.term().duration().map_or(0, micros_up).into(),
                lease.raise().map_or(0, FencingToken::get).into(),
                text::of_holder(lease.group(), lease.note()).into(),
                modes.into(),
                lease.token().map_or(0, FencingToken::get).into(),
            ]);
        }
        let raises = leases.iter().any(|lease| lease.raise().is_some());
        let script = if raises { &scripts::RAISE } else { &scripts::RENEW };
        let ids = leases.iter().map(|lease| lease.id().clone()).collect();
        let terms: Vec<_> = leases.iter().map(|lease| lease.term().duration()).collect();
        let sent = Request::renews(ids, &terms);
        let replies = self.reader().array(self.run(script, &names, &arguments, &sent).await?)?;
        let read = leases.iter().zip(replies);
        read.map(|(lease, reply)| self.reader().renewed(lease, reply)).collect()
    }
}
