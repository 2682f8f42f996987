//! The built command, with real processes, terminals and stores.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking, in their helpers too")]

mod bad_input;
mod command;
mod cron;
mod doctor;
mod elect;
mod exclusion;
mod exit_codes;
mod faults;
mod folder;
mod freed;
mod holder;
mod lease_commands;
mod limits;
mod listing;
mod loss;
#[cfg(feature = "mongodb")]
mod mongodb;
mod mysql;
mod nene;
mod nested;
mod passwords;
mod postgres;
mod privileges;
mod quorum;
mod readers;
mod redis;
mod shim;
mod signals;
mod sql;
mod sqlite;
mod supersede;
mod support;
mod terminal;
mod together;
mod torture;
mod wrapper;
