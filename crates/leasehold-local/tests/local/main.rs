//! The tests of this crate's locks.

mod common;
mod named;
mod order;
mod scopes;
mod stale;
mod table;
mod waiting;
