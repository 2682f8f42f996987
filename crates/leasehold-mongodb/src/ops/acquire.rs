use leasehold_core::table::{Holder, State};
use leasehold_core::term::micros_up;
use leasehold_core::{
    AcquireReply, AcquireRequest, Claim, Error, Granted, Key, LeaseId, Mode, ReleaseEntry,
    Remaining, Result,
};
use leasehold_driver::Deadline;
use leasehold_driver::batches::Request as _;
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, Document};

use crate::batch::{Member, Seen, Sent};
use crate::change::{Changed, Ends, end_of};
use crate::commands::{Shows, Times, Updated, has_record};
use crate::document::{Stored, token_only_if_ours};
use crate::error::{of_key, unexpected};
use crate::inner::{Inner, rest};
use crate::keys::Keys;
use crate::ops::Leases;
use crate::pipeline;
use crate::record::no_token;
use crate::shapes::Shape;
use crate::simple;

impl Leases {
    pub(crate) async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireReply> {
        let until = self.inner.commands.deadline();
        self.carry_out([request.clone()], until).await.remove(0).map(shown)
    }
}

impl Member for AcquireRequest {
    const CREATES: bool = true;

    fn goes_in_batch(&self) -> bool {
        self.claims().len() == 1
    }

    fn is_simple(&self, shape: Option<Shape>) -> bool {
        !self.claims().first().mode.is_shared() && shape != Some(Shape::Other)
    }

    fn given(&self, inner: &Inner, sent: Sent) -> Document {
        inner.given(self, sent.record)
    }

    fn simple(given: Bson) -> Vec<Document> {
        simple::acquire(given)
    }

    fn pipeline(given: Bson) -> Vec<Document> {
        pipeline::acquire::pipeline(given)
    }

    async fn alone(
        &self,
        inner: &Inner,
        record: ObjectId,
        times: Times,
    ) -> Result<Option<AcquireReply>> {
        match self.claims().len() {
            1 => inner.acquire_one(self, record, times).await,
            _ => inner.acquire_many(self, times.0).await.map(Some),
        }
    }

    /// The try may have granted it before it was given up.
    async fn again(
        &self,
        inner: &Inner,
        sent: Sent,
        (until, _): Times,
    ) -> Result<Option<AcquireReply>> {
        let key = &self.claims().first().key;
        // What cannot be seen is asked for again.
        let Ok((found, _)) = inner.commands.find(&[key.as_str()], until).await else {
            return Ok(None);
        };
        match found.first() {
            Some(document) if has_record(document, sent.record) => {
                inner.decided(self, inner.stored_in(key, document)?, None)
            }
            _ => Ok(None),
        }
    }

    async fn reply(
        &self,
        inner: &Inner,
        seen: Seen<'_>,
        until: Deadline,
    ) -> Result<Option<AcquireReply>> {
        let Some(stored) = seen.stored(inner, &self.claims().first().key)? else { return Ok(None) };
        if let Some(holder) = stored.own(self) {
            if seen.sent.is_simple && !seen.has_record() {
                let patience = self.patience(inner.commands.timeout());
                return inner.decide_one(self, seen.sent.record, (until, Some(patience))).await;
            }
            let ended = stored.continued(holder, inner.skew, seen.since(&stored));
            let renewed = holder.renewed_at.unwrap_or_default();
            if ended.is_some_and(|ended| seen.was_over(&stored, ended, renewed)) {
                inner.end_again(self, holder, until).await?;
                return Ok(None);
            }
        }
        inner.decided(self, stored, None)
    }
}

impl Inner {
    /// What a request gives whose record has this `_id`.
    fn given(&self, request: &AcquireRequest, record: ObjectId) -> Document {
        let mode = self.limited(request.claims().first().mode);
        pipeline::acquire::given(request, mode, self.skew, record)
    }

    async fn acquire_one(
        &self,
        request: &AcquireRequest,
        record: ObjectId,
        times: Times,
    ) -> Result<Option<AcquireReply>> {
        let claim = request.claims().first();
        if claim.mode == Mode::Exclusive {
            let pipeline = simple::acquire(pipeline::given(self.given(request, record)));
            let key = claim.key.as_str();
            let updated = self.commands.update(key, &pipeline, Shows::AfterCreating, times).await?;
            let Some(updated) = updated else { return Ok(None) };
            let stored = self.stored(&claim.key, &updated)?;
            if updated.has_record(record) {
                return self.decided(request, stored, None);
            }
            if stored.own(request).is_none()
                && let Some(refused) = self.refused(claim, request, stored)?
            {
                return Ok(Some(refused));
            }
        }
        self.decide_one(request, record, times).await
    }

    /// Has the server decide on any document.
    async fn decide_one(
        &self,
        request: &AcquireRequest,
        record: ObjectId,
        times: Times,
    ) -> Result<Option<AcquireReply>> {
        let claim = request.claims().first();
        let given = pipeline::given(self.given(request, record));
        let (key, pipeline) = (claim.key.as_str(), pipeline::acquire::pipeline(given));
        loop {
            let updated = self.commands.update(key, &pipeline, Shows::AfterCreating, times).await?;
            let Some(updated) = updated else { return Ok(None) };
            let stored = self.stored(&claim.key, &updated)?;
            if let Some(holder) = stored.own(request) {
                let ended = stored.continued(holder, self.skew, stored.now.wall_micros);
                if self.was_over(ended, stored.now, updated.took, times.0).await? {
                    self.end_again(request, holder, times.0).await?;
                    continue;
                }
            }
            // Without patience it is sent again, and may have been granted before.
            let (until, patience) = times;
            let since = patience.is_none().then(|| micros_up(stored.since(until.spent())));
            let decided = self.decided(request, stored, since)?;
            let free = || unexpected(self.commands.server(), "a refusal of a key that is free");
            return decided.ok_or_else(free).map(Some);
        }
    }

    /// Ends what was no lease any more when an acquire confirmed it.
    async fn end_again(
        &self,
        request: &AcquireRequest,
        holder: &Holder,
        until: Deadline,
    ) -> Result<()> {
        let key = request.claims().first().key.clone();
        let ending = ReleaseEntry::new(request.id().clone(), [key]).with_token(holder.token);
        self.release_one(&ending, None, (until, None)).await.map(drop)
    }

    /// What a request's document tells about it, which has been sent `since` then, in microseconds of the server's clock, if it is
    /// sent again; `None` if it refuses it and has no reason to.
    fn decided(
        &self,
        request: &AcquireRequest,
        stored: Stored,
        since: Option<u64>,
    ) -> Result<Option<AcquireReply>> {
        let claim = request.claims().first();
        match stored.own(request) {
            Some(holder) if holder.mode.same_kind(claim.mode) => {
                let left = holder.expires.map(|end| rest(end, stored.now));
                let left = left.map_or(Remaining::Never, Remaining::For);
                let is_new = since.is_some_and(|since| holder.granted_at >= since);
                let fresh = is_new || holder.renewed_at.is_none();
                let granted = Granted::new(Some(holder.token), left, fresh);
                Ok(Some(AcquireReply::Granted(granted)))
            }
            Some(holder) => Err(conflict(claim, request, holder)),
            None => self.refused(claim, request, stored),
        }
    }

    /// What the rules answer to a request that changed nothing; `None` if they grant it.
    fn refused(
        &self,
        claim: &Claim,
        request: &AcquireRequest,
        stored: Stored,
    ) -> Result<Option<AcquireReply>> {
        let mut table = self.rules().with_mark(stored.entry.counter);
        table.insert(
            claim.key.clone(),
            without_namesakes(&stored.excluding(self.skew).holders, request.id()),
        );
        match table.acquire(request, stored.now)? {
            AcquireReply::Granted(_) => Ok(None),
            refused @ AcquireReply::Refused(_) => Ok(Some(refused)),
        }
    }

    async fn acquire_many(
        &self,
        request: &AcquireRequest,
        until: Deadline,
    ) -> Result<AcquireReply> {
        let keys: Vec<Key> = request.claims().keys().cloned().collect();
        let rules = self.rules();
        let rule = |loaded: &mut Keys, now| {
            let mut tried = loaded.table.clone();
            for key in &keys {
                let holders = without_namesakes(tried.holders(key), request.id());
                tried.insert(key.clone(), holders);
            }
            let ended = end_of(&tried, &keys, request.id());
            let reply = tried.acquire(request, now)?;
            loaded.table = tried;
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
            self.release_one(&ending, None, (until, None)).await?;
        }
    }

    pub(crate) fn stored(&self, key: &Key, updated: &Updated) -> Result<Stored> {
        let document = updated.document.as_ref();
        let document = document.ok_or_else(|| unexpected(self.commands.server(), "no document"))?;
        self.stored_in(key, document)
    }

    /// Reads the document of a key.
    pub(crate) fn stored_in(&self, key: &Key, document: &Document) -> Result<Stored> {
        let stored = self.skew.read(document).map_err(|error| of_key(error, key))?;
        self.shapes.note(key, &stored);
        Ok(stored)
    }
}

/// Another client's lock of this id is not this lease: it blocks it.
fn without_namesakes(holders: &[Holder], id: &LeaseId) -> Vec<Holder> {
    let mut holders = holders.to_vec();
    for holder in holders.iter_mut().filter(|holder| holder.token == no_token()) {
        holder.id = holder.id.take().filter(|of_holder| of_holder != id);
    }
    holders
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
                refused.why = Held(Some(Box::new(token_only_if_ours(*record))));
            }
            AcquireReply::Refused(refused)
        }
        granted @ AcquireReply::Granted(_) => granted,
    }
}
