use super::entry::expiry;
use super::{State, TELL_EVICTED_FOR, Table};
use crate::{EvictReply, EvictRequest, EvictScope, EvictTarget, Expired, Filter, Now, Reason};

impl Table {
    /// Removes expired records, or exactly the named ones (C8).
    pub fn evict(&mut self, request: &EvictRequest, now: Now) -> EvictReply {
        match request.scope() {
            EvictScope::Expired(filter) => self.evict_expired(filter, request.limit(), now),
            EvictScope::Exactly { targets, reason } => {
                let named = &targets[..targets.len().min(request.limit())];
                let removed = named
                    .iter()
                    .filter(|target| self.evict_exactly(target, reason.as_ref(), now))
                    .cloned()
                    .collect();
                EvictReply::new(removed, 0, named.len() < targets.len())
            }
        }
    }

    fn evict_expired(&mut self, filter: &Filter, limit: usize, now: Now) -> EvictReply {
        let wanted = filter.clone().with_expired(Expired::In);
        let (margin, mut removed) = (self.margin, Vec::new());
        self.retain(|key, holder| match holder.record(key, now) {
            None => !holder.is_spent(now, margin),
            Some(record)
                if holder.is_spent(now, margin)
                    && wanted.matches(&record)
                    && removed.len() < limit =>
            {
                removed.push(EvictTarget::of(&record));
                false
            }
            Some(_) => true,
        });
        let more = removed.len() == limit;
        EvictReply::new(removed, 0, more)
    }

    fn evict_exactly(&mut self, target: &EvictTarget, reason: Option<&Reason>, now: Now) -> bool {
        let Some(holders) = self.keys.get_mut(&target.key) else {
            return false;
        };
        let Some(at) = holders.iter().position(|holder| {
            holder.id == target.id
                && target.token.is_none_or(|token| holder.token == token)
                && !matches!(holder.state, State::Evicted(_))
        }) else {
            return false;
        };
        let holder = &mut holders[at];
        if holder.is_held(now) && holder.id.is_some() {
            let tell_until = expiry(now, TELL_EVICTED_FOR);
            holder.expires = Some(holder.expires.map_or(tell_until, |at| at.min(tell_until)));
            holder.state = State::Evicted(reason.cloned());
        } else {
            holders.remove(at);
            if holders.is_empty() {
                self.keys.remove(&target.key);
            }
        }
        true
    }
}
