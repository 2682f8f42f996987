//! What the conformance suite does not try on real PostgreSQL servers.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking, in their helpers too")]

mod bad_input;
mod clock;
mod connections;
mod faults;
mod first_contact;
mod hostile;
mod limits;
mod mark;
mod nene;
mod pooler;
mod qualified;
mod row_waits;
mod rows;
mod sessions;
mod switched;
mod together;
mod waiting;
