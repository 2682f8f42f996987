use std::time::Duration;

use super::TELL_EXPIRED_FOR;
use crate::term::micros_up;
use crate::{
    FencingToken, GroupName, Key, LeaseId, Mode, Note, Now, Reason, Record, RecordTerm, Remaining,
};

/// One lease on one key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_structs, reason = "stores load and save every field")]
pub struct Holder {
    /// The lease; `None` only for another client's holder without a usable id.
    pub id: Option<LeaseId>,
    /// How the key is held, without the limit.
    pub mode: Mode,
    /// The token of the grant.
    pub token: FencingToken,
    /// The group it is listed under.
    pub group: Option<GroupName>,
    /// Who holds it and why.
    pub note: Note,
    /// When its term ends on the store's boot clock, in whole microseconds; `None` for never.
    pub expires: Option<Duration>,
    /// When it was granted, on the store's wall clock.
    pub granted_at: u64,
    /// When it was last renewed, on the store's wall clock.
    pub renewed_at: Option<u64>,
    /// Whether the holder still holds it.
    pub state: State,
}

/// Whether the holder of a record still holds it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "stores load and save every state")]
pub enum State {
    /// The holder holds it.
    Held,
    /// The holder released it, and the key stays taken until the term ends.
    Kept,
    /// The lease was ended by force; the record blocks no request and only informs the holder.
    Evicted(Option<Reason>),
}

impl Holder {
    /// True if it excludes others, on a store without a margin. At exactly its term it has ended (C6).
    pub fn is_live(&self, now: Now) -> bool {
        self.excludes(now, Duration::ZERO)
    }

    /// True if it excludes others: until its term and the margin have passed (C5).
    pub(super) fn excludes(&self, now: Now, margin: Duration) -> bool {
        !matches!(self.state, State::Evicted(_))
            && self.expires.is_none_or(|expires| now.boot < expires + margin)
    }

    /// True if it is no longer needed: it blocks no request and informs no holder.
    pub(super) fn is_spent(&self, now: Now, margin: Duration) -> bool {
        match self.state {
            State::Evicted(_) => self.is_over(now),
            State::Held | State::Kept => !self.excludes(now, margin),
        }
    }

    /// True if nothing needs to be told of it any more.
    pub(super) fn is_forgotten(&self, now: Now) -> bool {
        self.expires.is_some_and(|expires| expires.saturating_add(TELL_EXPIRED_FOR) <= now.boot)
    }

    /// How long it excludes others.
    pub(super) fn awaited(&self, now: Now, margin: Duration) -> Remaining {
        let until = |at: Duration| Remaining::For((at + margin).saturating_sub(now.boot));
        self.expires.map_or(Remaining::Never, until)
    }

    /// True if it may be meant by a request that names this token.
    pub(super) fn has(&self, token: Option<FencingToken>) -> bool {
        token.is_none_or(|token| token == self.token)
    }

    /// True if its holder still holds it.
    pub(super) fn is_held(&self, now: Now) -> bool {
        self.state == State::Held && !self.is_over(now)
    }

    /// True if its holder held it until its term ended.
    pub(super) fn is_expired(&self, now: Now) -> bool {
        self.state == State::Held && self.is_over(now)
    }

    pub(super) fn is_over(&self, now: Now) -> bool {
        self.expires.is_some_and(|expires| expires <= now.boot)
    }

    pub(super) fn remaining(&self, now: Now) -> Remaining {
        self.expires.map_or(Remaining::Never, |at| Remaining::For(at.saturating_sub(now.boot)))
    }

    /// Extends the term; never shortens it (C6).
    pub(super) fn extend(&mut self, to: Option<Duration>, now: Now) {
        self.expires = match (self.expires, to) {
            (Some(current), Some(to)) => Some(current.max(to)),
            _ => None,
        };
        self.renewed_at = Some(now.wall_micros);
    }

    /// The record that [`Store::list`](crate::Store::list) returns; `None` for an evicted one.
    pub fn record(&self, key: &Key, now: Now) -> Option<Record> {
        if matches!(self.state, State::Evicted(_)) {
            return None;
        }
        let term = match self.expires {
            Some(at) if at <= now.boot => RecordTerm::Expired(Some(now.boot - at)),
            _ => RecordTerm::Live(self.remaining(now)),
        };
        let since = |at: u64| Duration::from_micros(now.wall_micros.saturating_sub(at));
        let mut record = Record::new(key.clone(), self.mode, term);
        record.id.clone_from(&self.id);
        record.token = Some(self.token);
        record.group.clone_from(&self.group);
        record.note.clone_from(&self.note);
        record.age = Some(since(self.granted_at));
        record.renewed = self.renewed_at.map(since);
        record.kept = self.state == State::Kept;
        Some(record)
    }
}

/// The end of a term that begins now, in whole microseconds, rounded up.
pub(super) fn expiry(now: Now, term: Duration) -> Duration {
    Duration::from_micros(micros_up(now.boot.saturating_add(term)))
}
