use super::admission::{Request, Sealed};
use crate::{Capabilities, Claims, Error, FencingToken, GroupName, LeaseId, Note, Result, Ttl};

/// Asks for all claims or none, under a fresh id (C2, C3).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcquireRequest {
    id: LeaseId,
    claims: Claims,
    term: Ttl,
    group: Option<GroupName>,
    note: Note,
    again: Option<Option<FencingToken>>,
}

impl AcquireRequest {
    /// Asks for `claims` for a finite `term`; a lease without end is acquired for a while and then renewed to
    /// [`Ttl::NEVER`].
    pub fn new(id: LeaseId, claims: Claims, term: Ttl) -> Self {
        Self { id, claims, term, group: None, note: Note::default(), again: None }
    }

    /// Sets the label the lease is listed under.
    #[must_use]
    pub fn with_group(mut self, group: GroupName) -> Self {
        self.group = Some(group);
        self
    }

    /// Sets who and why.
    #[must_use]
    pub fn with_note(mut self, note: Note) -> Self {
        self.note = note;
        self
    }

    /// Says that the caller may already hold this very lease, with this token if it has one. A single store
    /// decides alike without it; a quorum does not take back what was held before.
    #[must_use]
    pub fn again(mut self, token: Option<FencingToken>) -> Self {
        self.again = Some(token);
        self
    }

    /// The attempt.
    pub fn id(&self) -> &LeaseId {
        &self.id
    }

    /// What is asked for.
    pub fn claims(&self) -> &Claims {
        &self.claims
    }

    /// For how long.
    pub fn term(&self) -> Ttl {
        self.term
    }

    /// The label the lease is listed under.
    pub fn group(&self) -> Option<&GroupName> {
        self.group.as_ref()
    }

    /// Who and why.
    pub fn note(&self) -> &Note {
        &self.note
    }

    /// `Some` if the caller may already hold this very lease; inside, its token.
    pub fn is_again(&self) -> Option<Option<FencingToken>> {
        self.again
    }
}

impl Sealed for AcquireRequest {}

impl Request for AcquireRequest {
    fn check(&self, can: &Capabilities) -> Result<()> {
        self.claims.check(can)?;
        if self.term.is_never() {
            return Err(Error::invalid_input(
                "an acquire asks for a finite term; renew the lease to never afterwards",
            ));
        }
        self.term.check(can)
    }
}
