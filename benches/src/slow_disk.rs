//! The same on a disk that takes 2 ms longer to sync: the benchmark and its servers wait in `fsync` and `fdatasync`.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use leasehold::{Error, Result};

use crate::subjects::io;

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/slow_disk.c");

/// Runs the benchmark with these arguments so.
pub(crate) fn run(arguments: &[&str]) -> Result<()> {
    let folder = tempfile::tempdir().map_err(io)?;
    // Servers run as another user.
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).map_err(io)?;
    let library = folder.path().join("slow_disk.so");
    let flags = ["-shared", "-fPIC", "-O2", SOURCE, "-o"].map(OsStr::new);
    succeed(Command::new("cc").args(flags).arg(&library))?;
    println!("Each sync takes 2 ms longer.\n");
    let itself = std::env::current_exe().map_err(io)?;
    let mut slowed = Command::new(itself);
    // Not in memory, where MariaDB syncs nothing.
    slowed.env("LD_PRELOAD", &library).env("LEASEHOLD_TEST_DIRECTORY", std::env::temp_dir());
    succeed(slowed.args(arguments))
}

fn succeed(command: &mut Command) -> Result<()> {
    let status = command.status().map_err(io)?;
    if status.success() {
        return Ok(());
    }
    Err(Error::unexpected(format!("{} failed ({status})", command.get_program().display())))
}
