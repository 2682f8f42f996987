use super::entry::expiry;
use super::{State, Table};
use crate::{LostReason, Now, Remaining, RenewEntry, RenewOutcome, RenewReply, RenewRequest};

impl Table {
    /// Extends leases; each has its own outcome (C3b, C6).
    pub fn renew(&mut self, request: &RenewRequest, now: Now) -> RenewReply {
        RenewReply::new(request.leases().iter().map(|lease| self.renew_one(lease, now)).collect())
    }

    fn renew_one(&mut self, renewal: &RenewEntry, now: Now) -> RenewOutcome {
        let (id, claims, token) = (renewal.id(), renewal.claims(), renewal.token());
        let mut whole = true;
        for (claim, holder) in claims.iter().zip(self.holders(id, claims.keys())) {
            match holder.filter(|holder| holder.is_held(now) && holder.has(token)) {
                None => whole = false,
                Some(holder) if !holder.mode.same_kind(claim.mode) => {
                    return RenewOutcome::Failed(claim.conflict(id, holder.mode));
                }
                Some(_) => {}
            }
        }
        if !whole {
            let reason = self.lost_reason(renewal, now);
            self.drop_holders(id, claims.keys(), |holder| holder.is_held(now) && holder.has(token));
            return RenewOutcome::Lost(Some(reason));
        }
        let to = renewal.term().duration().map(|to| expiry(now, to));
        let mut remaining = Remaining::Never;
        for key in claims.keys() {
            let Some(entry) = self.keys.get_mut(key) else { continue };
            if let Some(raise) = renewal.raise() {
                entry.counter = entry.counter.max(raise.get());
            }
            if let Some(holder) = entry.holder_mut(id) {
                holder.extend(to, now);
                holder.token = holder.token.max(renewal.raise().unwrap_or(holder.token));
                remaining = remaining.min(holder.remaining(now));
            }
        }
        RenewOutcome::Held(remaining)
    }

    fn lost_reason(&self, renewal: &RenewEntry, now: Now) -> LostReason {
        let mut reason = LostReason::Gone;
        let found = self.holders(renewal.id(), renewal.claims().keys()).flatten();
        for holder in found.filter(|holder| holder.has(renewal.token())) {
            match &holder.state {
                State::Evicted(why) => return LostReason::Evicted(why.clone()),
                State::Held if holder.is_over(now) => reason = LostReason::Expired,
                State::Held | State::Kept => {}
            }
        }
        reason
    }
}
