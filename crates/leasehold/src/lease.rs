//! One lease of this process: its state, its id, its events, and what must be released after it.

pub(crate) mod cleanup;
pub(crate) mod events;
pub(crate) mod ids;
pub(crate) mod release_report;
pub(crate) mod state;
