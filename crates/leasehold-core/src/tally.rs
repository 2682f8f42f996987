//! What a quorum of nodes says: pure functions of what each node has answered so far.
//!
//! A quorum asks all its nodes at once and answers as soon as a majority agreed or can no longer agree. Each
//! function here takes one [`Answer`] per node and gives a [`Decision`]; it is asked again with every answer
//! that comes, and once more with `Some(Err(…))` for each node whose time is over. What must be put back or
//! taken back on a single node is decided here too: [`is_absent`], [`rolls_back`], [`needs_write_back`].

mod acquire;
mod capabilities;
mod lease;
#[cfg(test)]
mod tests;
mod votes;

pub use acquire::{acquire, needs_write_back, rolls_back};
pub use capabilities::{capabilities, level};
pub use lease::{is_absent, release, renew};
pub use votes::{
    Answer, Decision, Tally, Verdict, lasting_failure, lasting_kind, majority, retry_after,
};
