//! The tests of this crate's locks.

mod common;
mod example;
mod named;
mod nebulex;
mod order;
mod scopes;
mod stale;
mod stress;
mod table;
mod waiting;
