use std::sync::{Arc, PoisonError};
use std::time::Duration;

use leasehold_core::term::micros_up;
use leasehold_core::{
    EvictReply, EvictRequest, EvictScope, EvictTarget, Expired, Filter, Key, Result, worst,
};
use leasehold_driver::{Deadline, outliving};
use mongodb::bson::{Bson, doc};

use crate::change::Ends;
use crate::inner::Inner;
use crate::keys::Keys;
use crate::pipeline;
use crate::record::no_token;

impl Inner {
    pub(crate) async fn evict(self: &Arc<Self>, request: &EvictRequest) -> Result<EvictReply> {
        let (inner, request) = (Arc::clone(self), request.clone());
        let until = self.commands.deadline();
        outliving(async move {
            match request.scope() {
                EvictScope::Exactly { targets, .. } => {
                    inner.evict_exactly(&request, targets, until).await
                }
                EvictScope::Expired(filter) => inner.purge(filter, request.limit(), until).await,
            }
        })
        .await
    }

    async fn evict_exactly(
        &self,
        request: &EvictRequest,
        targets: &[EvictTarget],
        until: Deadline,
    ) -> Result<EvictReply> {
        let EvictScope::Exactly { reason, .. } = request.scope() else {
            return Ok(EvictReply::new(Vec::new(), 0, false));
        };
        let named = &targets[..targets.len().min(request.limit())];
        let (mut removed, mut failures) = (Vec::new(), Vec::new());
        for target in named {
            let one = EvictRequest::exactly(vec![target.clone()], reason.clone());
            match self.evict_one(&target.key, &one, until).await {
                Ok(reply) => removed.extend(reply.removed),
                Err(error) => failures.push(error),
            }
        }
        match worst(failures) {
            Some(error) if removed.is_empty() => Err(error),
            _ => Ok(EvictReply::new(removed, 0, named.len() < targets.len())),
        }
    }

    async fn evict_one(
        &self,
        key: &Key,
        request: &EvictRequest,
        until: Deadline,
    ) -> Result<EvictReply> {
        let rule = |loaded: &mut Keys, now| Ok(loaded.evict(request, self.forget_after, now));
        let keys = [key.clone()];
        let changed = self
            .commands
            .change(&keys, (&self.rules(), self.skew, Ends::OfExclusion), until, rule)
            .await?;
        let mut reply = changed.result;
        for target in &mut reply.removed {
            target.token = target.token.filter(|token| *token != no_token());
        }
        Ok(reply)
    }

    /// Removes what has expired, key by key.
    async fn purge(&self, filter: &Filter, limit: usize, until: Deadline) -> Result<EvictReply> {
        let mut reply = EvictReply::new(Vec::new(), 0, false);
        let wanted = filter.clone().with_expired(Expired::In);
        let mut from = self.purged_to();
        let over =
            [pipeline::usable(), doc! { "$match": { "$expr": may_be_over(self.forget_after) } }];
        loop {
            let name = from.as_ref().map(Key::as_str);
            let (found, more) = self.documents(filter, name, &over, until).await?;
            for document in &found {
                let name = document.get_str("resource").unwrap_or_default();
                let (key, stored) = match self.read(name, document) {
                    Ok(read) => read,
                    Err(unreadable) => {
                        if filter.matches_name(name) {
                            reply.unreadable.push(unreadable);
                        }
                        continue;
                    }
                };
                let left = limit - reply.removed.len() - reply.counters_forgotten;
                let one = EvictRequest::expired(wanted.clone()).with_limit(left);
                let mut would = Keys::new(&self.rules(), [(key.clone(), stored.entry.clone())]);
                let probe = would.evict(&one, self.forget_after, stored.now);
                let has_mark = would.entry(&key).as_ref() != Some(&stored.entry);
                if probe.removed.is_empty() && probe.counters_forgotten == 0 && !has_mark {
                    continue;
                }
                let done = match self.evict_one(&key, &one, until).await {
                    Ok(done) => done,
                    Err(error) if reply.removed.is_empty() && reply.counters_forgotten == 0 => {
                        return Err(error);
                    }
                    Err(_) => {
                        self.set_purged_to(Some(key));
                        reply.more = true;
                        return Ok(reply);
                    }
                };
                reply.removed.extend(done.removed);
                reply.counters_forgotten += done.counters_forgotten;
                if reply.removed.len() + reply.counters_forgotten == limit {
                    // More of this key may be over.
                    self.set_purged_to(Some(key));
                    reply.more = true;
                    return Ok(reply);
                }
            }
            if !more {
                break;
            }
            from = found.last().and_then(|last| Key::new(last.get_str("resource").ok()?).ok());
        }
        self.set_purged_to(None);
        Ok(reply)
    }

    fn purged_to(&self) -> Option<Key> {
        self.purged_to.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_purged_to(&self, key: Option<Key>) {
        *self.purged_to.lock().unwrap_or_else(PoisonError::into_inner) = key;
    }
}

/// Whether the server finds anything in a document that a purge may remove, or cannot read it.
fn may_be_over(forget_after: Option<Duration>) -> Bson {
    let is_past = |first: &str| -> Bson {
        doc! { "$and": [
            { "$ne": [{ "$ifNull": [{ "$min": first }, null] }, null] },
            { "$lte": [{ "$min": first }, "$$NOW"] },
        ] }
        .into()
    };
    let mut any = vec![
        // It is reported.
        doc! { "$not": [pipeline::is_sound()] }.into(),
        is_past("$exclusive.expiresAt"),
        is_past("$shared.locks.expiresAt"),
        is_past("$evicted.until"),
    ];
    if let Some(after) = forget_after {
        let counter = doc! { "$ifNull": ["$counter", 0] };
        let age =
            doc! { "$subtract": [{ "$multiply": [{ "$toLong": "$$NOW" }, 1_000_i64] }, counter] };
        let micros = i64::try_from(micros_up(after)).unwrap_or(i64::MAX);
        any.push(doc! { "$gt": [age, micros] }.into());
    }
    doc! { "$or": any }.into()
}
