//! Decides for a quorum: pure functions of what each node has answered so far.
//!
//! A quorum sends to all its nodes at once and answers as soon as a majority agrees or can no longer agree. Each
//! function takes one [`Answer`] per node and returns a [`Decision`]. The quorum calls it again with every new
//! answer, and with `Some(Err(…))` for each node that ran out of time. What must be put back or rolled back on a
//! single node is decided here too: [`is_absent`], [`rolls_back`], [`needs_write_back`].

mod acquire;
mod capabilities;
mod lease;
#[cfg(test)]
mod tests;
mod votes;

pub use acquire::{acquire, may_have_granted, needs_write_back, rolls_back};
pub use capabilities::{capabilities, level};
pub use lease::{is_absent, release, renew};
pub use votes::{
    Answer, Decision, Tally, Verdict, lasting_failure, lasting_kind, majority, retry_after,
};
