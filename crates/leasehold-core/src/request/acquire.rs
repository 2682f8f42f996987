use super::Request;
use crate::{Capabilities, Claims, Error, FencingToken, LeaseId, Note, Owner, Result, Ttl};

/// Asks for all claims or none, under a fresh id (C2, C3).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acquire {
    id: LeaseId,
    claims: Claims,
    term: Ttl,
    owner: Option<Owner>,
    note: Note,
    again: Option<Option<FencingToken>>,
}

impl Acquire {
    /// Asks for `claims` for a finite `term`; a lease without end is acquired for a while and then renewed to
    /// [`Ttl::NEVER`].
    pub fn new(id: LeaseId, claims: Claims, term: Ttl) -> Self {
        Self { id, claims, term, owner: None, note: Note::default(), again: None }
    }

    /// Sets the label the lease is listed under.
    #[must_use]
    pub fn with_owner(mut self, owner: Owner) -> Self {
        self.owner = Some(owner);
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
    pub fn owner(&self) -> Option<&Owner> {
        self.owner.as_ref()
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

impl Request for Acquire {
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
