use leasehold_core::{Error, FencingToken, LostReason, Record};

/// What changed in an election.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum LeadershipEvent {
    /// This candidate leads.
    Gained {
        /// Its token, where the store has them.
        token: Option<FencingToken>,
    },
    /// This candidate leads no more, and did not wish that.
    Lost(LostReason),
    /// This candidate leads no more, by its own wish: it resigned, was paused or shut down.
    Resigned,
    /// Somebody else leads, or nobody. The record shows who, and how fresh that is. Nothing is told while it
    /// is not known.
    Changed(Option<Box<Record>>),
    /// The store can never work like this, or a candidate lost its runtime; nothing follows.
    Failed(Error),
}
