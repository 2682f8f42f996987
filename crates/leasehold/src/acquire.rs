//! From the builder to the guard: options, checks, tries, pauses, the queue, the wait limit (F1).

pub(crate) mod attempt;
pub(crate) mod options;
pub(crate) mod poll;
pub(crate) mod request;
mod resume;
mod run;
pub(crate) mod spec;
mod start;
mod time_out;
