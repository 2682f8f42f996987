//! The store on real servers.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking, in their helpers too")]

mod bad_input;
mod batches;
mod collection;
mod cut_off;
mod errors;
mod fail_over;
mod foreign;
mod late;
mod majority;
mod mongo_lock;
mod on_clock;
mod privileges;
mod race;
mod shapes;
mod sides;
mod stall;
mod tokens;
mod urls;
mod waiting;
