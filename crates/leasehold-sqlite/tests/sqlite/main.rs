//! What is specific to SQLite: its file, the processes that share it, and what may happen to it.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "tests fail by panicking, in their helpers too")]

mod common;
mod errors;
mod nene;
mod processes;
mod quirks;
mod rules;
mod scans;
mod together;
mod upgrade;
mod version_1;
mod waiting;
mod wakeups;
