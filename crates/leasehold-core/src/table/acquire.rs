use std::time::Duration;

use super::entry::expiry;
use super::{Holder, MOST_OF_CLOCK, State, Table};
use crate::{
    AcquireReply, AcquireRequest, Claim, Error, FencingToken, Granted, LeaseId, Mode, Now,
    RefusalReason, Refused, Remaining, Result,
};

impl Table {
    /// Takes all claims or none (C2).
    ///
    /// # Errors
    /// `InvalidInput` if the id is live on a named key in another mode, or if the term is without end.
    pub fn acquire(&mut self, request: &AcquireRequest, now: Now) -> Result<AcquireReply> {
        let term = request
            .term()
            .duration()
            .ok_or_else(|| Error::invalid_input("an acquire must have a finite term"))?;
        if let Some(granted) = self.confirm(request, term, now)? {
            return Ok(AcquireReply::Granted(granted));
        }
        match self.refusal(request, now) {
            Some(refused) => Ok(AcquireReply::Refused(refused)),
            None => self.grant(request, term, now).map(AcquireReply::Granted),
        }
    }

    /// C3: confirms the id's own live lease; C3b: drops what is left of a broken one.
    fn confirm(
        &mut self,
        request: &AcquireRequest,
        term: Duration,
        now: Now,
    ) -> Result<Option<Granted>> {
        let (id, claims) = (request.id(), request.claims());
        let held: Vec<_> = self
            .of_lease(id, claims.keys())
            .map(|holder| holder.filter(|holder| holder.is_held(now)))
            .collect();
        for (claim, holder) in claims.iter().zip(&held) {
            if let Some(holder) = holder.filter(|holder| !holder.mode.same_kind(claim.mode)) {
                return Err(claim.conflict(id, holder.mode));
            }
        }
        let token = held[0].map(|holder| holder.token);
        if token.is_none() || held.iter().any(|holder| holder.map(|h| h.token) != token) {
            self.drop_holders(id, claims.keys(), |holder| holder.is_held(now));
            return Ok(None);
        }
        let mut remaining = Remaining::Never;
        for key in claims.keys() {
            if let Some(holder) = self.of_lease_mut(id, key) {
                holder.extend(Some(expiry(now, term)), now);
                remaining = remaining.min(holder.remaining(now));
            }
        }
        Ok(Some(Granted::new(token, remaining, false)))
    }

    /// C9, C10: the first key in key order that refuses, and when the whole request could be granted.
    fn refusal(&self, request: &AcquireRequest, now: Now) -> Option<Refused> {
        let mut first = None;
        let mut longest = Remaining::For(Duration::ZERO);
        for claim in request.claims() {
            if let Some(holder) = self.blocker(request.id(), claim, now) {
                longest = longest.max(holder.awaited(now, self.margin));
                first.get_or_insert((claim, holder));
            }
        }
        let (claim, holder) = first?;
        let holder = holder.record(&claim.key, now).map(Box::new);
        Some(Refused::new(claim.key.clone(), RefusalReason::Held(holder), longest.duration()))
    }

    /// The live holder whose end the claim awaits.
    fn blocker(&self, id: &LeaseId, claim: &Claim, now: Now) -> Option<&Holder> {
        let holders = self.holders(&claim.key);
        let end = |holder: &&Holder| holder.awaited(now, self.margin);
        // The id's own expired record blocks others and not the id.
        let own_and_over =
            |holder: &&Holder| holder.id.as_ref() == Some(id) && holder.is_expired(now);
        let excludes = |holder: &&Holder| holder.excludes(now, self.margin);
        let live = || holders.iter().filter(excludes).filter(|holder| !own_and_over(holder));
        match claim.mode.limited_to(self.max_holders) {
            Mode::Exclusive => live().max_by_key(end),
            Mode::Shared { max } => {
                let exclusive = live().find(|holder| !holder.mode.is_shared());
                // The only live record of the id itself is a kept one; a grant would cut it short.
                let kept = live().find(|holder| holder.id.as_ref() == Some(id));
                let limiting = max.and_then(|max| {
                    let max = usize::try_from(max.get()).unwrap_or(usize::MAX);
                    let mut holders: Vec<_> = live().collect();
                    holders.sort_by_key(end);
                    holders.len().checked_sub(max).map(|at| holders[at])
                });
                let blockers = [exclusive, kept, limiting].into_iter().flatten();
                blockers.max_by_key(end)
            }
        }
    }

    /// C7: one token for all keys, minted after they are won. C8: only expired records make room.
    fn grant(&mut self, request: &AcquireRequest, term: Duration, now: Now) -> Result<Granted> {
        let (claims, margin) = (request.claims(), self.margin);
        let token = mint(self.mark, now)?;
        self.mark = token.get();
        for claim in claims {
            let holders = self.keys.entry(claim.key.clone());
            let holders = holders.or_insert_with(|| Vec::with_capacity(1));
            holders.retain(|holder| {
                !holder.is_spent(now, margin) && holder.id.as_ref() != Some(request.id())
            });
            holders.push(Holder::granted(request, claim.mode, token, term, now));
        }
        Ok(granted(token, term, now))
    }
}

/// Decides about a request for a key that has no record; `term` is finite.
///
/// # Errors
/// `Corrupt` if the tokens have come to their end.
pub fn grant_unheld(
    request: &AcquireRequest,
    term: Duration,
    mark: u64,
    now: Now,
) -> Result<(Holder, Granted)> {
    let token = mint(mark, now)?;
    let mode = request.claims().first().mode;
    Ok((Holder::granted(request, mode, token, term, now), granted(token, term, now)))
}

fn mint(mark: u64, now: Now) -> Result<FencingToken> {
    let next = mark.saturating_add(1).max(now.wall_micros.min(MOST_OF_CLOCK));
    FencingToken::new(next)
        .map_err(|_| Error::corrupt(format!("the tokens have reached their maximum ({mark})")))
}

fn granted(token: FencingToken, term: Duration, now: Now) -> Granted {
    Granted::new(Some(token), Remaining::For(expiry(now, term) - now.boot), true)
}

impl Holder {
    fn granted(
        request: &AcquireRequest,
        mode: Mode,
        token: FencingToken,
        term: Duration,
        now: Now,
    ) -> Self {
        Self {
            id: Some(request.id().clone()),
            mode: match mode {
                Mode::Exclusive => Mode::Exclusive,
                Mode::Shared { .. } => Mode::SHARED,
            },
            token,
            group: request.group().cloned(),
            note: request.note().clone(),
            expires: Some(expiry(now, term)),
            granted_at: now.wall_micros,
            renewed_at: None,
            state: State::Held,
        }
    }
}
