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
    /// This candidate lost its leadership.
    Lost(LostReason),
    /// This candidate gave up its leadership: it resigned, was paused or shut down.
    Resigned,
    /// Another candidate leads, or none. The record shows the leader and when it last renewed.
    Changed(Option<Box<Record>>),
    /// The store does not answer this [observer](crate::Election::observe), so who leads is unknown. It comes once;
    /// [`Changed`](LeadershipEvent::Changed) follows when the store answers again, also if the leader is the same.
    Unknown(Error),
    /// A lasting failure of the store, or the end of a candidate's runtime; no event follows.
    Failed(Error),
}
