//! What the conformance suite does not try on real MariaDB servers.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking, in their helpers too")]

mod bad_input;
mod clock;
mod faults;
mod first_contact;
mod limits;
mod mark;
mod nene;
mod rows;
mod sessions;
mod switched;
mod together;
