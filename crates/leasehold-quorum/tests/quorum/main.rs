//! A quorum whose nodes answer late, wrongly or not at all.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking, in their helpers too")]

mod answers;
mod batches;
mod faulty;
mod fenced;
mod hints;
mod history;
mod interleavings;
mod kinds;
mod nodes_checked;
mod opening;
mod put_back;
mod redlock;
mod truth;
