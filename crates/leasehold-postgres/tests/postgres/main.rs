//! What the conformance suite does not try on real PostgreSQL servers.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking, in their helpers too")]

mod bad_input;
mod connections;
mod faults;
mod first_contact;
mod legacy;
mod pooler;
mod rows;
mod sessions;
mod switched;
mod together;
mod waiting;
