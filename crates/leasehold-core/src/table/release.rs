use super::entry::expiry;
use super::{Holder, State, Table};
use crate::{Now, ReleaseEntry, ReleaseOutcome, ReleaseReply, ReleaseRequest};

impl Holder {
    /// True if the lease holds its key with this one record, and the request does no more than end it.
    pub fn is_ended_by(&self, ending: &ReleaseEntry, now: Now) -> bool {
        self.id.as_ref() == Some(ending.id())
            && ending.keep().is_none()
            && self.has(ending.token())
            && self.is_held(now)
    }
}

impl Table {
    /// Ends leases; each has its own outcome (C3b, C13).
    pub fn release(&mut self, request: &ReleaseRequest, now: Now) -> ReleaseReply {
        ReleaseReply::new(
            request.leases().iter().map(|lease| self.release_one(lease, now)).collect(),
        )
    }

    fn release_one(&mut self, ending: &ReleaseEntry, now: Now) -> ReleaseOutcome {
        let (id, keys, token) = (ending.id(), ending.keys(), ending.token());
        let found: Vec<_> = self
            .of_lease(id, keys.iter())
            .map(|holder| holder.filter(|holder| holder.has(token)))
            .collect();
        let all_held = found.iter().all(|h| h.is_some_and(|h| h.is_held(now)));
        let any_expired = found.iter().flatten().any(|h| h.is_expired(now));
        let kept_until = found
            .iter()
            .map(|h| h.filter(|h| h.state == State::Kept && h.is_live(now)).and_then(|h| h.expires))
            .min()
            .flatten();
        match ending.keep() {
            Some(keep) if all_held => {
                let until = expiry(now, keep);
                for key in keys {
                    if let Some(holder) = self.of_lease_mut(id, key) {
                        holder.state = State::Kept;
                        holder.expires = Some(until);
                    }
                }
                return ReleaseOutcome::Kept(until - now.boot);
            }
            Some(_) => {
                if let Some(until) = kept_until {
                    return ReleaseOutcome::Kept(until - now.boot);
                }
            }
            None => {}
        }
        self.drop_holders(id, keys.iter(), |holder| {
            holder.state == State::Held && holder.has(token)
        });
        match (all_held, any_expired) {
            (true, _) => ReleaseOutcome::Released,
            (false, true) => ReleaseOutcome::Expired,
            (false, false) => ReleaseOutcome::NotHeld,
        }
    }
}
