use super::admission::{Request, Sealed};
use crate::{Capabilities, Claims, Error, FencingToken, GroupName, LeaseId, Note, Result, Ttl};

/// A request for all claims or none, under a fresh id ([C2, C3](crate::contract)).
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
    /// Requests `claims` for a finite `term`; a lease without end is acquired for a while and then renewed to
    /// [`Ttl::NEVER`].
    pub fn new(id: LeaseId, claims: Claims, term: Ttl) -> Self {
        Self { id, claims, term, group: None, note: Note::default(), again: None }
    }

    /// Sets the group the lease is listed under.
    #[must_use]
    pub fn with_group(mut self, group: GroupName) -> Self {
        self.group = Some(group);
        self
    }

    /// Sets who holds it and why.
    #[must_use]
    pub fn with_note(mut self, note: Note) -> Self {
        self.note = note;
        self
    }

    /// States that the caller may already hold this lease, and with which token. A single store decides the same
    /// without it; a quorum does not roll back what was held before.
    #[must_use]
    pub fn again(mut self, token: Option<FencingToken>) -> Self {
        self.again = Some(token);
        self
    }

    /// The id of the attempt.
    pub fn id(&self) -> &LeaseId {
        &self.id
    }

    /// The requested keys and modes.
    pub fn claims(&self) -> &Claims {
        &self.claims
    }

    /// The requested term.
    pub fn term(&self) -> Ttl {
        self.term
    }

    /// The group the lease is listed under.
    pub fn group(&self) -> Option<&GroupName> {
        self.group.as_ref()
    }

    /// Who holds it and why.
    pub fn note(&self) -> &Note {
        &self.note
    }

    /// `Some` if the caller may already hold this lease, with its token if it has one.
    pub fn is_again(&self) -> Option<Option<FencingToken>> {
        self.again
    }
}

impl Sealed for AcquireRequest {}

impl Request for AcquireRequest {
    fn check(&self, can: &Capabilities) -> Result<()> {
        can.check_id(&self.id)?;
        self.claims.check(can)?;
        if self.term.is_never() {
            return Err(Error::invalid_input(
                "an acquire must have a finite term; renew the lease to never afterwards",
            ));
        }
        self.term.check(can)
    }
}
