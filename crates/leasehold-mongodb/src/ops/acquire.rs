use std::sync::Arc;

use leasehold_core::table::{Entry, Holder, State};
use leasehold_core::{
    AcquireReply, AcquireRequest, Claim, Error, Granted, Key, LeaseId, ReleaseEntry, Remaining,
    Result, Table,
};
use leasehold_driver::{Deadline, outliving};

use crate::change::{Changed, Ends, end_of};
use crate::commands::{Shows, Updated};
use crate::document::{Stored, without_placeholder};
use crate::error::unexpected;
use crate::inner::{Inner, rest};
use crate::ops::of_key;
use crate::pipeline;
use crate::record::no_token;

impl Inner {
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        request: &AcquireRequest,
    ) -> Result<AcquireReply> {
        let (inner, request) = (Arc::clone(self), request.clone());
        let until = self.commands.deadline();
        outliving(async move {
            let reply = match request.claims().len() {
                1 => inner.acquire_one(&request, until).await,
                _ => inner.acquire_many(&request, until).await,
            };
            reply.map(shown)
        })
        .await
    }

    async fn acquire_one(&self, request: &AcquireRequest, until: Deadline) -> Result<AcquireReply> {
        let claim = request.claims().first();
        let pipeline = pipeline::acquire(request, self.limited(claim.mode), self.skew);
        let key = claim.key.as_str();
        let mut updated;
        let mut stored;
        loop {
            updated = self.commands.update(key, &pipeline, Shows::AfterCreating, until).await?;
            stored = self.stored(&claim.key, &updated)?;
            let Some(holder) = stored.own(request) else { break };
            let ended = stored.continued(holder, self.skew);
            if !self.was_over(ended, stored.now, updated.took, until).await? {
                break;
            }
            // It was no lease any more that this confirmed.
            let ending = ReleaseEntry::new(request.id().clone(), [claim.key.clone()]);
            self.release_one(&ending.with_token(holder.token), until).await?;
        }
        match stored.own(request) {
            Some(holder) if holder.mode.same_kind(claim.mode) => {
                let left = holder.expires.map(|end| rest(end, stored.now));
                let left = left.map_or(Remaining::Never, Remaining::For);
                let fresh = holder.renewed_at.is_none();
                Ok(AcquireReply::Granted(Granted::new(Some(holder.token), left, fresh)))
            }
            Some(holder) => Err(conflict(claim, request, holder)),
            None => self.refused(claim, request, stored),
        }
    }

    /// What the rules answer to a request that changed nothing.
    fn refused(
        &self,
        claim: &Claim,
        request: &AcquireRequest,
        stored: Stored,
    ) -> Result<AcquireReply> {
        let mut table = self.rules();
        table.insert(
            claim.key.clone(),
            without_namesakes(&stored.excluding(self.skew), request.id()),
        );
        match table.acquire(request, stored.now)? {
            AcquireReply::Granted(_) => {
                Err(unexpected(self.commands.server(), "a refusal of a key that is free"))
            }
            refused @ AcquireReply::Refused(_) => Ok(refused),
        }
    }

    async fn acquire_many(
        &self,
        request: &AcquireRequest,
        until: Deadline,
    ) -> Result<AcquireReply> {
        let keys: Vec<Key> = request.claims().keys().cloned().collect();
        let rules = self.rules();
        let rule = |table: &mut Table, now| {
            let mut tried = table.clone();
            for key in &keys {
                if let Some(entry) = table.entry(key) {
                    tried.insert(key.clone(), without_namesakes(entry, request.id()));
                }
            }
            let ended = end_of(&tried, &keys, request.id());
            let reply = tried.acquire(request, now)?;
            *table = tried;
            Ok((reply, ended))
        };
        loop {
            let Changed { result: (reply, ended), now, took } = self
                .commands
                .change(&keys, (&rules, self.skew, Ends::OfExclusion), until, rule)
                .await?;
            let confirmed = matches!(&reply, AcquireReply::Granted(granted) if !granted.fresh);
            if !confirmed || !self.was_over(ended, now, took, until).await? {
                return Ok(reply);
            }
            let ending = ReleaseEntry::new(request.id().clone(), keys.iter().cloned());
            self.release_one(&ending, until).await?;
        }
    }

    pub(crate) fn stored(&self, key: &Key, updated: &Updated) -> Result<Stored> {
        let document = updated.document.as_ref();
        let document = document.ok_or_else(|| unexpected(self.commands.server(), "no document"))?;
        self.skew.read(document).map_err(|error| of_key(error, key))
    }
}

/// Another client's lock of this id is not this lease: it blocks it.
fn without_namesakes(entry: &Entry, id: &LeaseId) -> Entry {
    let mut entry = entry.clone();
    for holder in entry.holders.iter_mut().filter(|holder| holder.token == no_token()) {
        holder.id = holder.id.take().filter(|of_holder| of_holder != id);
    }
    entry
}

impl Stored {
    /// The lease of the request, if it is held.
    fn own(&self, request: &AcquireRequest) -> Option<&Holder> {
        self.entry.holders.iter().find(|holder| {
            holder.id.as_ref() == Some(request.id())
                && holder.token != no_token()
                && holder.state == State::Held
                && holder.expires.is_none_or(|end| end > self.now.boot)
        })
    }
}

fn conflict(claim: &Claim, request: &AcquireRequest, holder: &Holder) -> Error {
    claim.conflict(request.id(), holder.mode)
}

/// A record that no client of ours wrote is shown without a token.
fn shown(reply: AcquireReply) -> AcquireReply {
    use leasehold_core::RefusalReason::Held;
    match reply {
        AcquireReply::Refused(mut refused) => {
            if let Held(Some(record)) = refused.why {
                refused.why = Held(Some(Box::new(without_placeholder(*record))));
            }
            AcquireReply::Refused(refused)
        }
        granted @ AcquireReply::Granted(_) => granted,
    }
}
