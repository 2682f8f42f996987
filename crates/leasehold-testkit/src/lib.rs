//! What the tests of Leasehold's own crates share: requests, contending clients, real servers, and ways to read
//! their data. What tests of stores outside this repository also need is in `leasehold-conformance`.
#![allow(
    missing_docs,
    missing_debug_implementations,
    clippy::exhaustive_enums,
    clippy::exhaustive_structs,
    clippy::unwrap_used,
    reason = "for the tests of this repository, which fail by panicking"
)]

#[cfg(any(feature = "mongodb", feature = "mysql", feature = "postgres", feature = "redis"))]
pub mod authority;
pub mod contender;
pub mod crowd;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod data;
#[cfg(any(
    feature = "mongodb",
    feature = "mysql",
    feature = "postgres",
    feature = "redis",
    feature = "spanner"
))]
mod directory;
pub mod faulty;
pub mod limits;
#[cfg(feature = "mongodb")]
pub mod mongodb;
#[cfg(feature = "mysql")]
pub mod mysql;
#[cfg(feature = "nene")]
pub mod nene;
pub mod page;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(any(feature = "mongodb", feature = "mysql", feature = "postgres", feature = "spanner"))]
mod program;
pub mod read_only;
#[cfg(feature = "redis")]
pub mod redis;
pub mod requests;
#[cfg(any(
    feature = "mongodb",
    feature = "mysql",
    feature = "postgres",
    feature = "redis",
    feature = "spanner"
))]
pub mod server_process;
#[cfg(feature = "quorum")]
pub mod settled;
#[cfg(feature = "spanner")]
pub mod spanner;
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub mod sql;
#[cfg(feature = "sqlite")]
pub mod sqlite;
pub mod stalls;
pub mod urls;
mod waiting;

#[cfg(any(
    feature = "mongodb",
    feature = "mysql",
    feature = "postgres",
    feature = "redis",
    feature = "spanner"
))]
pub use directory::new_directory;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
use leasehold_core::Note;
pub use waiting::{LONG, SECOND, fails_within, in_time, until};

/// The note of a stored lease.
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
fn note(
    host: Option<&str>,
    pid: Option<u32>,
    program: Option<&str>,
    comment: Option<&str>,
) -> leasehold_conformance::Result<Note> {
    let mut note = Note::default();
    if let Some(host) = host {
        note = note.with_host(host)?;
    }
    if let Some(pid) = pid {
        note = note.with_pid(pid);
    }
    if let Some(program) = program {
        note = note.with_program(program)?;
    }
    if let Some(comment) = comment {
        note = note.with_comment(comment)?;
    }
    Ok(note)
}

/// Whether to try everything: by default, what takes long is tried in part.
pub fn all() -> bool {
    std::env::var_os("LEASEHOLD_TEST_ALL").is_some_and(|all| !all.is_empty())
}
