//! What concurrent clients asked and were told, and whether any store could have answered so.
//!
//! An instant is a number that grows: whoever takes one later in real time has a larger one. A client takes
//! one before it sends a request, one when it has the answer, and one before each look at its own clock. So
//! a client that found its lease valid truly believed in it from the instant taken before that look.
//!
//! Clients mint a fresh id for each attempt and never use one again that was released or lost; the checker
//! relies on that. A request without an answer may have acted, may act later, or never.

mod calls;
mod check;
mod record;

pub use calls::{Answer, Belief, Call, Figures, History};
pub use check::{Violation, check};
pub(crate) use record::run;
