use std::sync::Arc;

use leasehold_core::table::{Holder, State};
use leasehold_core::{
    FencingToken, Key, LostReason, Now, ReleaseEntry, Remaining, RenewEntry, RenewOutcome,
    RenewReply, RenewRequest, Result, Table, each_or_worst,
};
use leasehold_driver::Deadline;

use crate::change::{Changed, Ends, end_of};
use crate::commands::Shows;
use crate::inner::{Inner, rest};
use crate::ops::{carry_out, of_key};
use crate::pipeline;
use crate::record::no_token;

impl Inner {
    pub(crate) async fn renew(self: &Arc<Self>, request: &RenewRequest) -> Result<RenewReply> {
        let until = self.commands.deadline();
        let keys = request.leases().iter().flat_map(|lease| lease.claims().keys());
        let requests = request.leases().iter().map(|lease| {
            let (inner, lease) = (Arc::clone(self), lease.clone());
            async move { inner.renew_surely(&lease, until).await }
        });
        let outcomes = carry_out(keys, requests).await;
        each_or_worst(outcomes, RenewOutcome::Failed).map(RenewReply::new)
    }

    /// A primary that was deposed without knowing it reports a lease as lost that its successor granted: it is asked again
    /// before a hold ends.
    async fn renew_surely(&self, lease: &RenewEntry, until: Deadline) -> Result<RenewOutcome> {
        loop {
            let outcome = self.renew_one(lease, until).await?;
            let is_lost = matches!(outcome, RenewOutcome::Lost(_));
            if !is_lost || !self.server.is_replicated || !self.is_held_surely(lease, until).await? {
                return Ok(outcome);
            }
        }
    }

    async fn is_held_surely(&self, lease: &RenewEntry, until: Deadline) -> Result<bool> {
        for claim in lease.claims() {
            let found = self.commands.find_surely(claim.key.as_str(), until).await?;
            let Some(document) = found else { return Ok(false) };
            let stored = self.skew.read(&document).map_err(|error| of_key(error, &claim.key))?;
            let mut holders = stored.entry.holders.iter();
            let is_own = |holder: &Holder| holder.id.as_ref() == Some(lease.id());
            if !holders.any(|holder| is_own(holder) && is_held(holder, lease, stored.now)) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn renew_one(&self, lease: &RenewEntry, until: Deadline) -> Result<RenewOutcome> {
        if lease.claims().len() > 1 {
            return self.renew_many(lease, until).await;
        }
        let claim = lease.claims().first();
        let pipeline = pipeline::renew(lease, self.skew);
        let updated =
            self.commands.update(claim.key.as_str(), &pipeline, Shows::After, until).await?;
        if updated.document.is_none() {
            return Ok(RenewOutcome::Lost(Some(LostReason::Gone)));
        }
        let stored = self.stored(&claim.key, &updated)?;
        let of_lease = |holder: &&Holder| holder.id.as_ref() == Some(lease.id());
        let found: Vec<_> = stored.entry.holders.iter().filter(of_lease).collect();
        let Some(held) = found.iter().find(|holder| is_held(holder, lease, stored.now)) else {
            return Ok(RenewOutcome::Lost(Some(lost_reason(&found, lease, stored.now))));
        };
        if !held.mode.same_kind(claim.mode) {
            return Ok(RenewOutcome::Failed(claim.conflict(lease.id(), held.mode)));
        }
        let ended = stored.continued(held, self.skew);
        if self.was_over(ended, stored.now, updated.took, until).await? {
            return self.undo(lease, held.token, until).await;
        }
        let left = held.expires.map(|end| rest(end, stored.now));
        Ok(RenewOutcome::Held(left.map_or(Remaining::Never, Remaining::For)))
    }

    async fn renew_many(&self, lease: &RenewEntry, until: Deadline) -> Result<RenewOutcome> {
        let keys: Vec<Key> = lease.claims().keys().cloned().collect();
        let request = RenewRequest::new(vec![lease.clone()]);
        let rule = |table: &mut Table, now| {
            let ended = end_of(table, &keys, lease.id());
            Ok((table.renew(&request, now), ended))
        };
        let Changed { result: (reply, ended), now, took } = self
            .commands
            .change(&keys, (&self.rules(), self.skew, Ends::OfTerms), until, rule)
            .await?;
        let outcome = reply.leases.into_iter().next().unwrap_or(RenewOutcome::Lost(None));
        let is_held = matches!(outcome, RenewOutcome::Held(_));
        if is_held && self.was_over(ended, now, took, until).await? {
            return self.undo(lease, no_token(), until).await;
        }
        Ok(outcome)
    }

    /// Ends a lease again that was over when its renewal was written.
    async fn undo(
        &self,
        lease: &RenewEntry,
        token: FencingToken,
        until: Deadline,
    ) -> Result<RenewOutcome> {
        let ending = ReleaseEntry::new(lease.id().clone(), lease.claims().keys().cloned());
        let ending = if token == no_token() { ending } else { ending.with_token(token) };
        self.release_one(&ending, until).await?;
        Ok(RenewOutcome::Lost(Some(LostReason::Expired)))
    }
}

fn is_held(holder: &Holder, lease: &RenewEntry, now: Now) -> bool {
    holder.state == State::Held
        && holder.expires.is_none_or(|end| end > now.boot)
        && has_token(holder, lease)
}

/// Whether the request means this record: by the token that it names, or by what it raised that to.
fn has_token(holder: &Holder, lease: &RenewEntry) -> bool {
    lease.token().is_none_or(|token| {
        holder.token == token || Some(holder.token) == lease.raise().map(|raise| raise.max(token))
    })
}

fn lost_reason(found: &[&Holder], lease: &RenewEntry, now: Now) -> LostReason {
    let mut reason = LostReason::Gone;
    for holder in found.iter().filter(|holder| has_token(holder, lease)) {
        match &holder.state {
            State::Evicted(why) => return LostReason::Evicted(why.clone()),
            State::Held if holder.expires.is_some_and(|end| end <= now.boot) => {
                reason = LostReason::Expired;
            }
            State::Held | State::Kept => {}
        }
    }
    reason
}
