//! Locks by key inside one process: `LocalLocks` against a map of locks written by hand, and against other crates.

mod contended;
mod memory;
mod subjects;
mod sweep;
mod uncontended;

use leasehold::{Error, Result};

use crate::measure;

pub(crate) use memory::child;

/// Runs the named parts, or all of them.
pub(crate) async fn run(parts: &[&str]) -> Result<()> {
    const PARTS: [&str; 4] = ["pairs", "handover", "memory", "sweep"];
    if let Some(unknown) = parts.iter().find(|part| !PARTS.contains(part)) {
        return Err(Error::invalid_input(format!(
            "there is no part {unknown:?}; there is {PARTS:?}"
        )));
    }
    let wants = |part| parts.is_empty() || parts.contains(&part);
    println!("# Locks by key in one process\n");
    measure::print_machine(&[
        ("dashmap", measure::version("dashmap")),
        ("tokio", measure::version("tokio")),
        ("lockable", measure::version("lockable")),
        ("key-lock", measure::version("key-lock")),
        ("keyed-lock", measure::version("keyed-lock")),
    ]);
    println!("{}", subjects::SIDES);
    if wants("pairs") {
        uncontended::run();
    }
    if wants("handover") {
        contended::run().await;
    }
    if wants("memory") {
        memory::run()?;
    }
    if wants("sweep") {
        sweep::run();
    }
    Ok(())
}
