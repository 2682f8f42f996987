//! The tests of this crate's locks.

mod common;
mod example;
mod executors;
mod named;
mod nebulex;
mod order;
mod owners;
mod scopes;
mod stale;
mod stress;
mod sweeper;
mod table;
mod waiting;
