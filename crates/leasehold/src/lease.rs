//! One lease that this process asked for: its state, its id, its events, and what is to be cleaned up after it.

pub(crate) mod cleanup;
pub(crate) mod events;
pub(crate) mod ids;
pub(crate) mod release_report;
pub(crate) mod state;
