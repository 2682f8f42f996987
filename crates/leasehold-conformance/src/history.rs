//! The requests of concurrent clients and their answers, and whether a correct store could have given them.
//!
//! An instant is a number that grows: one taken later in real time is larger. A client takes one before it sends a
//! request, one when it has the answer, and one before each look at its own clock. So a client that found its
//! lease valid held it from the instant taken before that look.
//!
//! Clients mint a new id for each attempt and never use one again that was released or lost; the checker relies on
//! that. A request without an answer may have acted, may act later, or never.

mod calls;
mod check;
mod record;

pub use calls::{Answer, Belief, Call, Figures, History};
pub use check::{Violation, check};
pub(crate) use record::run;
