use std::time::Duration;

use super::entry::expiry;
use super::{Holder, State, Table};
use crate::{
    Acquire, Acquired, Claim, Error, FencingToken, Granted, Mode, Now, Refused, Remaining, Result,
    Why,
};

impl Table {
    /// Takes all claims or none (C2).
    ///
    /// # Errors
    /// `InvalidInput` if the id is live on a named key in another mode, or if the term is without end.
    pub fn acquire(&mut self, request: &Acquire, now: Now) -> Result<Acquired> {
        let term = request
            .term()
            .duration()
            .ok_or_else(|| Error::invalid_input("an acquire asks for a finite term"))?;
        if let Some(granted) = self.confirm(request, term, now)? {
            return Ok(Acquired::Granted(granted));
        }
        match self.refusal(request, now) {
            Some(refused) => Ok(Acquired::Refused(refused)),
            None => self.grant(request, term, now).map(Acquired::Granted),
        }
    }

    /// C3: the id's own live lease is confirmed; C3b: what is left of a broken one is dropped.
    fn confirm(&mut self, request: &Acquire, term: Duration, now: Now) -> Result<Option<Granted>> {
        let (id, claims) = (request.id(), request.claims());
        let held: Vec<_> = self
            .holders(id, claims.keys())
            .map(|holder| holder.filter(|holder| holder.is_held(now)))
            .collect();
        for (claim, holder) in claims.iter().zip(&held) {
            if let Some(holder) = holder.filter(|holder| !holder.mode.same_kind(claim.mode)) {
                return Err(Error::invalid_input(format!(
                    "the lease {id} holds {:?} as {}, but it is claimed as {}; release it first",
                    claim.key, holder.mode, claim.mode
                )));
            }
        }
        let token = held[0].map(|holder| holder.token);
        if token.is_none() || held.iter().any(|holder| holder.map(|h| h.token) != token) {
            self.drop_holders(id, claims.keys(), |holder| holder.is_held(now));
            return Ok(None);
        }
        let mut remaining = Remaining::Never;
        for key in claims.keys() {
            let holder = self.keys.get_mut(key).and_then(|entry| entry.holder_mut(id));
            if let Some(holder) = holder {
                holder.extend(Some(expiry(now, term)), now);
                remaining = remaining.min(holder.remaining(now));
            }
        }
        Ok(Some(Granted::new(token, remaining, false)))
    }

    /// C9, C10: the first refusing key in key order, and when the whole request could be admitted.
    fn refusal(&self, request: &Acquire, now: Now) -> Option<Refused> {
        let mut first = None;
        let mut longest = Remaining::For(Duration::ZERO);
        for claim in request.claims() {
            if let Some(holder) = self.blocker(claim, now) {
                longest = longest.max(holder.remaining(now));
                first.get_or_insert((claim, holder));
            }
        }
        let (claim, holder) = first?;
        let holder = holder.record(&claim.key, now).map(Box::new);
        Some(Refused::new(claim.key.clone(), Why::Held(holder), longest.duration()))
    }

    /// The live holder whose end the claim awaits.
    fn blocker(&self, claim: &Claim, now: Now) -> Option<&Holder> {
        let entry = self.keys.get(&claim.key)?;
        let live = || entry.holders.iter().filter(|holder| holder.is_live(now));
        match claim.mode {
            Mode::Exclusive => live().max_by_key(|holder| holder.remaining(now)),
            Mode::Shared { max } => live().find(|holder| !holder.mode.is_shared()).or_else(|| {
                let max = usize::try_from(max?.get()).unwrap_or(usize::MAX);
                let mut holders: Vec<_> = live().collect();
                holders.sort_by_key(|holder| holder.remaining(now));
                holders.len().checked_sub(max).map(|at| holders[at])
            }),
        }
    }

    /// C7: one token for all keys, advanced now that they are won. C8: only expired records make room.
    fn grant(&mut self, request: &Acquire, term: Duration, now: Now) -> Result<Granted> {
        let claims = request.claims();
        let highest = claims
            .keys()
            .filter_map(|key| self.keys.get(key))
            .map(|entry| entry.counter)
            .max()
            .unwrap_or(0);
        let token = FencingToken::new(now.wall_micros.max(highest + 1)).map_err(|_| {
            Error::corrupt(format!(
                "the token counter of {:?} has reached its end ({highest})",
                claims.first().key
            ))
        })?;
        for claim in claims {
            let entry = self.keys.entry(claim.key.clone()).or_default();
            entry.counter = token.get();
            entry
                .holders
                .retain(|holder| !holder.is_over(now) && holder.id.as_ref() != Some(request.id()));
            entry.holders.push(Holder {
                id: Some(request.id().clone()),
                mode: match claim.mode {
                    Mode::Exclusive => Mode::Exclusive,
                    Mode::Shared { .. } => Mode::SHARED,
                },
                token,
                owner: request.owner().cloned(),
                note: request.note().clone(),
                expires: Some(expiry(now, term)),
                granted_at: now.wall_micros,
                renewed_at: None,
                state: State::Held,
            });
        }
        let remaining = Remaining::For(expiry(now, term) - now.boot);
        Ok(Granted::new(Some(token), remaining, true))
    }
}
