//! What must never happen in a model, and what must happen.

/// The promises that must hold in every state.
pub(crate) const EXCLUSION: &str = "one believes to hold (L1)";
pub(crate) const TOKENS: &str = "tokens grow (C7)";
pub(crate) const REVIVAL: &str = "what ended is not revived (C6)";
pub(crate) const LEFT: &str = "what ended leaves nothing (F6)";
pub(crate) const BACKED: &str = "a majority agreed (C10)";
pub(crate) const OVER: &str = "what was broken is on no majority (C6)";

/// The promise that the last step of a counter-example breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Promise {
    /// A grant's token is not above every earlier one (C7).
    TokensGrow,
    /// A lease was confirmed although another had been granted since (C6).
    NoRevival,
    /// The quorum decided what no majority of its nodes had reported (C10).
    MajoritySaidSo,
}

impl Promise {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::TokensGrow => TOKENS,
            Self::NoRevival => REVIVAL,
            Self::MajoritySaidSo => BACKED,
        }
    }
}

/// What must also occur in a model: one in which nothing happens proves nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    Granted,
    Refused,
    Renewed,
    RenewalFailed,
    Lost,
    Expired,
    TakenOver,
    GrantedAfterCrash,
    RolledBack,
    ReAdded,
    Healed,
    WrittenBack,
    ConfirmedAgain,
    Adopted,
    Released,
    Broken,
    SplitVote,
}

impl Event {
    pub(crate) const ALL: [Self; 17] = [
        Self::Granted,
        Self::Refused,
        Self::Renewed,
        Self::RenewalFailed,
        Self::Lost,
        Self::Expired,
        Self::TakenOver,
        Self::GrantedAfterCrash,
        Self::RolledBack,
        Self::ReAdded,
        Self::Healed,
        Self::WrittenBack,
        Self::ConfirmedAgain,
        Self::Adopted,
        Self::Released,
        Self::Broken,
        Self::SplitVote,
    ];
}
