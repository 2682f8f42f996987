//! Where servers' programs are.

use std::path::PathBuf;

use leasehold_conformance::{Failure, Result};

/// A program of a server, on `PATH` or in these folders.
pub(crate) fn program(
    name: &str,
    folders: impl IntoIterator<Item = impl Into<PathBuf>>,
) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders = std::env::split_paths(&path).chain(folders.into_iter().map(Into::into));
    let found = folders.find_map(|folder| Some(folder.join(name)).filter(|file| file.is_file()));
    found.ok_or_else(|| {
        Failure::new(format!("there is no {name}, which `cargo xtask servers` installs"))
    })
}
