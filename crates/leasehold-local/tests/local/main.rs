//! The tests of this crate's locks, alone and beside a store.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking, in their helpers too")]

mod common;
mod example;
mod executors;
mod named;
mod nebulex;
mod oracle;
mod order;
mod owners;
mod panics;
mod scopes;
mod stale;
mod store;
mod stress;
mod sweeper;
mod table;
mod waiting;
