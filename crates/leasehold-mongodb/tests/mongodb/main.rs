//! The store on real servers.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking, in their helpers too")]

mod foreign;
mod mongo_lock;
mod sides;
