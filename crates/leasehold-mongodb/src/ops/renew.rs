use std::sync::Arc;

use futures_util::future::join_all;
use leasehold_core::table::{Holder, State};
use leasehold_core::{
    FencingToken, Key, LostReason, Now, ReleaseEntry, Remaining, RenewEntry, RenewOutcome,
    RenewReply, RenewRequest, Result, each_or_worst,
};
use leasehold_driver::{Deadline, outliving};
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, Document};

use crate::batch::{Member, Seen, Sent};
use crate::change::{Changed, Ends, end_of};
use crate::commands::{Shows, Times};
use crate::document::Stored;
use crate::error::of_key;
use crate::inner::{Inner, rest};
use crate::keys::Keys;
use crate::ops::{Leases, alone};
use crate::pipeline;
use crate::record::no_token;
use crate::simple;

impl Leases {
    pub(crate) async fn renew(&self, request: &RenewRequest) -> Result<RenewReply> {
        let until = self.inner.commands.deadline();
        let outcomes = self.carry_out(request.leases().iter().cloned(), until).await;
        let outcomes = request.leases().iter().zip(outcomes);
        let outcomes = outcomes.map(|(lease, outcome)| self.confirmed(lease, outcome, until));
        each_or_worst(join_all(outcomes).await, RenewOutcome::Failed).map(RenewReply::new)
    }

    /// A primary that was deposed without knowing it reports a lease as lost that its successor granted: it is asked again
    /// before a hold ends.
    async fn confirmed(
        &self,
        lease: &RenewEntry,
        mut outcome: Result<RenewOutcome>,
        until: Deadline,
    ) -> Result<RenewOutcome> {
        while matches!(outcome, Ok(RenewOutcome::Lost(_)))
            && self.inner.server.is_replicated
            && self.inner.is_held_surely(lease, until).await?
        {
            outcome =
                outliving(alone(Arc::clone(&self.inner), Arc::new(lease.clone()), until)).await;
        }
        outcome
    }
}

impl Member for RenewEntry {
    fn goes_in_batch(&self) -> bool {
        self.claims().len() == 1
    }

    fn given(&self, inner: &Inner, _: Sent) -> Document {
        pipeline::renew::given(self, inner.skew)
    }

    fn pipeline(given: Bson) -> Vec<Document> {
        pipeline::renew::pipeline(given)
    }

    async fn alone(
        &self,
        inner: &Inner,
        _: ObjectId,
        times: Times,
    ) -> Result<Option<RenewOutcome>> {
        match self.claims().len() {
            1 => inner.renew_one(self, times).await,
            _ => inner.renew_many(self, times.0).await.map(Some),
        }
    }

    async fn reply(
        &self,
        inner: &Inner,
        seen: Seen<'_>,
        until: Deadline,
    ) -> Result<Option<RenewOutcome>> {
        let stored = match seen.stored(inner, &self.claims().first().key)? {
            Some(stored) => stored,
            None if seen.is_missing() => {
                return Ok(Some(RenewOutcome::Lost(Some(LostReason::Gone))));
            }
            None => return Ok(None),
        };
        let held = match find_held(self, &stored) {
            Ok(held) => held,
            Err(outcome) => return Ok(Some(outcome)),
        };
        let ended = stored.continued(held, inner.skew, seen.since(&stored));
        let renewed = held.renewed_at.unwrap_or_default();
        if ended.is_some_and(|ended| seen.was_over(&stored, ended, renewed)) {
            return inner.undo(self, held.token, until).await.map(Some);
        }
        Ok(Some(renewed_for(held, stored.now)))
    }
}

impl Inner {
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

    async fn renew_one(&self, lease: &RenewEntry, times: Times) -> Result<Option<RenewOutcome>> {
        let key = &lease.claims().first().key;
        let simple = simple::renew(lease, self.skew);
        let pipeline =
            || pipeline::renew::pipeline(pipeline::given(pipeline::renew::given(lease, self.skew)));
        let updated = self.change_or_update(simple, (key, Shows::After), pipeline, times).await?;
        let Some(updated) = updated else { return Ok(None) };
        if updated.document.is_none() {
            return Ok(Some(RenewOutcome::Lost(Some(LostReason::Gone))));
        }
        let stored = self.stored(key, &updated)?;
        let held = match find_held(lease, &stored) {
            Ok(held) => held,
            Err(outcome) => return Ok(Some(outcome)),
        };
        let ended = stored.continued(held, self.skew, stored.now.wall_micros);
        if self.was_over(ended, stored.now, updated.took, times.0).await? {
            return self.undo(lease, held.token, times.0).await.map(Some);
        }
        Ok(Some(renewed_for(held, stored.now)))
    }

    async fn renew_many(&self, lease: &RenewEntry, until: Deadline) -> Result<RenewOutcome> {
        let keys: Vec<Key> = lease.claims().keys().cloned().collect();
        let request = RenewRequest::new(vec![lease.clone()]);
        let rule = |loaded: &mut Keys, now| {
            let ended = end_of(&loaded.table, &keys, lease.id());
            Ok((loaded.renew(&request, now), ended))
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
        self.release_one(&ending, None, (until, None)).await?;
        Ok(RenewOutcome::Lost(Some(LostReason::Expired)))
    }
}

/// The record of a lease of one key, or the outcome of a renewal that does not find it.
fn find_held<'s>(lease: &RenewEntry, stored: &'s Stored) -> Result<&'s Holder, RenewOutcome> {
    let of_lease = |holder: &&Holder| holder.id.as_ref() == Some(lease.id());
    let found: Vec<_> = stored.entry.holders.iter().filter(of_lease).collect();
    let held = found.iter().find(|holder| is_held(holder, lease, stored.now));
    let held =
        held.ok_or_else(|| RenewOutcome::Lost(Some(lost_reason(&found, lease, stored.now))))?;
    let claim = lease.claims().first();
    if !held.mode.same_kind(claim.mode) {
        return Err(RenewOutcome::Failed(claim.conflict(lease.id(), held.mode)));
    }
    Ok(held)
}

fn renewed_for(held: &Holder, now: Now) -> RenewOutcome {
    let left = held.expires.map(|end| rest(end, now));
    RenewOutcome::Held(left.map_or(Remaining::Never, Remaining::For))
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
