//! The store on real servers.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking, in their helpers too")]

mod errors;
mod foreign;
mod mongo_lock;
mod privileges;
mod sides;
