use super::entry::expiry;
use super::{MOST_OF_CLOCK, MOST_RAISE, State, Table};
use crate::{
    LostReason, Now, Remaining, RenewEntry, RenewOutcome, RenewReply, RenewRequest, Result,
};

impl Table {
    /// Extends leases; each has its own outcome (C3b, C6).
    pub fn renew(&mut self, request: &RenewRequest, now: Now) -> RenewReply {
        RenewReply::new(request.leases().iter().map(|lease| self.renew_one(lease, now)).collect())
    }

    fn renew_one(&mut self, renewal: &RenewEntry, now: Now) -> RenewOutcome {
        let (id, claims, token) = (renewal.id(), renewal.claims(), renewal.token());
        if let Err(error) = self.admit_raise(renewal) {
            return RenewOutcome::Failed(error);
        }
        let mut whole = true;
        for (claim, holder) in claims.iter().zip(self.of_lease(id, claims.keys())) {
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
        if let Some(raise) = renewal.raise() {
            self.mark = self.mark.max(raise.get());
        }
        let mut remaining = Remaining::Never;
        for key in claims.keys() {
            if let Some(holder) = self.of_lease_mut(id, key) {
                holder.extend(to, now);
                holder.token = holder.token.max(renewal.raise().unwrap_or(holder.token));
                remaining = remaining.min(holder.remaining(now));
            }
        }
        RenewOutcome::Held(remaining)
    }

    /// C7: a raise far above all tokens is a mistake that would end every key.
    fn admit_raise(&self, renewal: &RenewEntry) -> Result<()> {
        let most = self.mark.max(MOST_OF_CLOCK).saturating_add(MOST_RAISE);
        match renewal.raise() {
            Some(raise) if raise.get() > most => Err(renewal.raised_too_far(most)),
            _ => Ok(()),
        }
    }

    fn lost_reason(&self, renewal: &RenewEntry, now: Now) -> LostReason {
        let mut reason = LostReason::Gone;
        let found = self.of_lease(renewal.id(), renewal.claims().keys()).flatten();
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
