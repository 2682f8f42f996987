use leasehold_core::term::micros_up;
use leasehold_core::{AcquireReply, AcquireRequest, Mode, Result};

use crate::connection::exchange::Request;
use crate::inner::Inner;
use crate::{scripts, text};

impl Inner {
    pub(crate) async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireReply> {
        let claims = request.claims();
        let names = self.names(claims.keys())?;
        let note = text::of_holder(request.group(), request.note());
        let term = request.term().duration().unwrap_or_default();
        let mut arguments = Vec::with_capacity(6 + 2 * claims.len());
        arguments.extend([
            request.id().into(),
            micros_up(term).into(),
            note.into(),
            self.forget_after(),
            self.quarantine(),
            self.refuses_promoted(),
        ]);
        for claim in claims {
            let (mode, max) = match claim.mode {
                Mode::Exclusive => ("x", 0),
                Mode::Shared { max } => ("s", max.map_or(0, |max| u64::from(max.get()))),
            };
            arguments.extend([mode.into(), max.into()]);
        }
        let sent = Request::acts(vec![request.id().clone()], request.term().duration());
        let reply = self.run(&scripts::ACQUIRE, &names, &arguments, &sent).await?;
        self.reader().acquired(claims, request.id(), reply)
    }
}
