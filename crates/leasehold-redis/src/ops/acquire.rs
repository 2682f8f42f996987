use leasehold_core::term::micros_up;
use leasehold_core::{AcquireReply, AcquireRequest, Mode, Result};

use crate::connection::exchange::Request;
use crate::connection::subscriber::TAKEN;
use crate::inner::Inner;
use crate::{scripts, text};

/// For how long the record of a lease stays after its term, in milliseconds.
const REMEMBERED: u64 = 60 * 60 * 1_000;

impl Inner {
    pub(crate) async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireReply> {
        let claims = request.claims();
        let names = self.names(claims.keys())?;
        let note = text::of_holder(request.group(), request.note());
        let term = request.term().duration().unwrap_or_default();
        let sent = Request::acts(vec![request.id().clone()], request.term().duration());
        let micros = micros_up(term);
        let is_simple = claims.len() == 1 && !claims.first().mode.is_shared();
        if is_simple && self.grants_at_once() && micros > 0 && micros.is_multiple_of(1_000) {
            let term = micros / 1_000;
            let remembered = term.saturating_add(1 + REMEMBERED);
            let mut arguments = Vec::with_capacity(5);
            arguments.extend([request.id().into(), term.into(), remembered.into(), note.into()]);
            if names.iter().any(|name| self.servers.is_crowded(name.metadata())) {
                arguments.push(format!("{TAKEN}{term}").into());
            }
            let reply = self.run(&scripts::ACQUIRE, &names, &arguments, &sent).await?;
            return self.reader().acquired(request, reply);
        }
        let mut arguments = Vec::with_capacity(5 + 2 * claims.len());
        arguments.extend([
            request.id().into(),
            micros.into(),
            note.into(),
            self.quarantine(),
            self.refuses_promoted(),
        ]);
        for claim in claims {
            let (mode, max) = match claim.mode.limited_to(Some(self.max_holders)) {
                Mode::Exclusive => ("x", 0),
                Mode::Shared { max } => ("s", max.map_or(0, |max| u64::from(max.get()))),
            };
            arguments.extend([mode.into(), max.into()]);
        }
        let reply = self.run(&scripts::ACQUIRE, &names, &arguments, &sent).await?;
        self.reader().acquired(request, reply)
    }
}
