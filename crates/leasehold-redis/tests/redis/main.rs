//! What is specific to Redis, on real servers.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking, in their helpers too")]

mod cluster;
mod cluster_errors;
mod commands;
mod connection;
#[cfg(feature = "credentials")]
mod credentials;
mod durability;
mod errors;
mod foreign;
mod histories;
mod metadata;
mod replicas;
mod rslock;
mod switched;
mod urls;
