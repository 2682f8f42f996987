use super::admission::{Request, Sealed, check_entries};
use crate::{
    Capabilities, Claims, Error, Feature, FencingToken, GroupName, LeaseId, Note, Result, Ttl,
};

/// A request to extend leases; each has its own outcome ([C3b, C6](crate::contract)).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenewRequest {
    leases: Vec<RenewEntry>,
}

impl RenewRequest {
    /// Names these leases; the reply keeps their order.
    pub fn new(leases: Vec<RenewEntry>) -> Self {
        Self { leases }
    }

    /// The leases, in the order of the reply.
    pub fn leases(&self) -> &[RenewEntry] {
        &self.leases
    }
}

/// One lease to extend, with all that a quorum needs to put it back on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenewEntry {
    id: LeaseId,
    claims: Claims,
    term: Ttl,
    group: Option<GroupName>,
    note: Note,
    token: Option<FencingToken>,
    raise: Option<FencingToken>,
}

impl RenewEntry {
    /// Requests that at least `term` remains; never shortens a longer term.
    pub fn extend(id: LeaseId, claims: Claims, term: Ttl) -> Self {
        Self { id, claims, term, group: None, note: Note::default(), token: None, raise: None }
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

    /// Sets the holder's token. A store that [compares tokens](Capabilities::compares_tokens) renews only the lease
    /// with this token; a quorum needs it to put the lease back on a node that lacks it.
    #[must_use]
    pub fn with_token(mut self, token: FencingToken) -> Self {
        self.token = Some(token);
        self
    }

    /// The entry for a node of a quorum, which has created its own token.
    #[must_use]
    pub fn without_token(mut self) -> Self {
        self.token = None;
        self
    }

    /// Raises what the keys' next tokens are above, and the lease's own token, to at least `token`.
    #[must_use]
    pub fn with_token_raised_to(mut self, token: FencingToken) -> Self {
        self.raise = Some(token);
        self
    }

    /// The lease.
    pub fn id(&self) -> &LeaseId {
        &self.id
    }

    /// All its keys with their modes.
    pub fn claims(&self) -> &Claims {
        &self.claims
    }

    /// The least term that must remain.
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

    /// The holder's token.
    pub fn token(&self) -> Option<FencingToken> {
        self.token
    }

    /// The value that tokens are raised to.
    pub fn raise(&self) -> Option<FencingToken> {
        self.raise
    }

    /// The error of a store that raises tokens to `most` at the most: a value near the end would end every key (C7).
    pub fn raised_too_far(&self, most: u64) -> Error {
        let raise = self.raise.map_or(0, FencingToken::get);
        Error::invalid_input(format!(
            "the token of lease {} must be raised to {raise}, but the highest that may be is {most}; take the token that the lease \
             has elsewhere",
            self.id
        ))
    }
}

impl Sealed for RenewEntry {}

impl Request for RenewEntry {
    fn check(&self, can: &Capabilities) -> Result<()> {
        can.check_id(&self.id)?;
        self.claims.check(can)?;
        if self.raise.is_some() && !can.raise {
            return Err(can.lacks(if can.tokens { Feature::Raise } else { Feature::Tokens }));
        }
        self.term.check(can)
    }
}

impl Sealed for RenewRequest {}

impl Request for RenewRequest {
    fn check(&self, can: &Capabilities) -> Result<()> {
        check_entries("renewal", self.leases.len())?;
        self.leases.iter().try_for_each(|lease| lease.check(can))
    }
}
