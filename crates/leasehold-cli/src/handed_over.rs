//! A lease that a process has left held, as a file for the next one.

use std::fs::OpenOptions;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use leasehold::Lease;

use crate::failure::Failure;

/// A lease that was read from a file, or from stdin.
#[derive(Debug)]
pub(crate) struct HandedOver {
    file: PathBuf,
    pub(crate) lease: Lease,
}

impl HandedOver {
    /// Reads it; `-` is stdin.
    pub(crate) fn read(file: &Path) -> Result<Self, Failure> {
        let mut text = String::new();
        let is_read = match file.as_os_str() == "-" {
            true => io::stdin().lock().read_to_string(&mut text).map(drop),
            false => std::fs::read_to_string(file).map(|read| text = read),
        };
        let of_file = |why: String| Failure::usage(format!("the lease {}: {why}", file.display()));
        is_read.map_err(|error| of_file(format!("it cannot be read: {error}")))?;
        let lease = serde_json::from_str(&text);
        let lease = lease.map_err(|error| of_file(format!("it is no lease: {error}")))?;
        Ok(Self { file: file.to_owned(), lease })
    }

    /// Removes the file, which describes nothing any more. A pipe or a link, such as `/dev/stdin`, stays.
    pub(crate) fn remove(&self) {
        if self.file.symlink_metadata().is_ok_and(|file| file.is_file()) {
            // One that stays keeps `acquire` from writing another.
            drop(std::fs::remove_file(&self.file));
        }
    }
}

/// Writes a lease to a new file that only this user can read.
pub(crate) fn write(lease: &str, file: &Path) -> Result<(), Failure> {
    let mut created = OpenOptions::new();
    let written = created.write(true).create_new(true).mode(0o600).open(file);
    let written = written.and_then(|mut file| writeln!(file, "{lease}"));
    written.map_err(|error| {
        if error.kind() != io::ErrorKind::AlreadyExists {
            drop(std::fs::remove_file(file));
        }
        Failure::of_system(&format!("the lease cannot be written to {}", file.display()), &error)
    })
}
