use std::num::NonZeroU32;
use std::time::Duration;

use leasehold_core::{
    AcquireRequest, Claim, Claims, EvictTarget, Filter, GroupName, Key, LeaseId, Mode, Note,
    ReleaseEntry, RenewEntry, RenewRequest, Ttl,
};

/// One attempt to acquire, and all requests about its lease.
#[derive(Debug, Clone)]
pub(crate) struct Attempt {
    pub(crate) id: LeaseId,
    pub(crate) claims: Claims,
    pub(crate) term: Ttl,
    pub(crate) group: Option<GroupName>,
    pub(crate) note: Note,
}

impl Attempt {
    /// An attempt under a new id.
    pub(crate) fn new(claims: Claims, term: Duration) -> Self {
        let id = LeaseId::mint().expect("the operating system gives random bytes");
        Self { id, claims, term: ttl(term), group: None, note: Note::default() }
    }

    pub(crate) fn with_id(mut self, id: &LeaseId) -> Self {
        self.id = id.clone();
        self
    }

    pub(crate) fn with_claims(mut self, claims: Claims) -> Self {
        self.claims = claims;
        self
    }

    pub(crate) fn with_term(mut self, term: Duration) -> Self {
        self.term = ttl(term);
        self
    }

    pub(crate) fn with_group(mut self, group: &str) -> Self {
        self.group = Some(GroupName::new(group).expect("the suite's groups are valid"));
        self
    }

    pub(crate) fn with_note(mut self, note: Note) -> Self {
        self.note = note;
        self
    }

    pub(crate) fn key(&self) -> &Key {
        &self.claims.first().key
    }

    pub(crate) fn keys(&self) -> Vec<Key> {
        self.claims.keys().cloned().collect()
    }

    pub(crate) fn request(&self) -> AcquireRequest {
        let mut request = AcquireRequest::new(self.id.clone(), self.claims.clone(), self.term)
            .with_note(self.note.clone());
        if let Some(group) = &self.group {
            request = request.with_group(group.clone());
        }
        request
    }

    pub(crate) fn renewal(&self, to: Ttl) -> RenewEntry {
        RenewEntry::extend(self.id.clone(), self.claims.clone(), to)
    }

    pub(crate) fn renew(&self, to: Ttl) -> RenewRequest {
        RenewRequest::new(vec![self.renewal(to)])
    }

    pub(crate) fn ending(&self) -> ReleaseEntry {
        ReleaseEntry::new(self.id.clone(), self.claims.keys().cloned())
    }

    /// The lease's record on `key`, whatever its token.
    pub(crate) fn target(&self, key: &Key) -> EvictTarget {
        EvictTarget::new(key.clone(), Some(self.id.clone()))
    }

    /// The lease's records on all its keys.
    pub(crate) fn targets(&self) -> Vec<EvictTarget> {
        self.claims.keys().map(|key| self.target(key)).collect()
    }

    /// The records of this lease alone.
    pub(crate) fn filter(&self) -> Filter {
        Filter::default().with_lease(self.id.clone())
    }
}

pub(crate) fn key(text: &str) -> Key {
    Key::new(text).expect("the suite's keys are valid")
}

pub(crate) fn ttl(term: Duration) -> Ttl {
    Ttl::new(term).expect("the suite's terms are valid")
}

/// Shared with a limit.
pub(crate) fn at_most(max: u32) -> Mode {
    Mode::Shared { max: Some(NonZeroU32::new(max).expect("a limit is not zero")) }
}

/// Several keys in one mode.
pub(crate) fn all_of(keys: &[&str], mode: Mode) -> Claims {
    claims(&keys.iter().map(|key| (*key, mode)).collect::<Vec<_>>())
}

/// Several keys, each in its own mode.
pub(crate) fn claims(claims: &[(&str, Mode)]) -> Claims {
    Claims::new(claims.iter().map(|(name, mode)| Claim { key: key(name), mode: *mode }))
        .expect("the suite's claims are valid")
}
