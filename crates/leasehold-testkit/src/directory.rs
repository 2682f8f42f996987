//! Directories of servers and of tests, which end with the test program, however it ends.

use std::env;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use leasehold_conformance::{Failure, Result};
use nix::sys::statvfs::statvfs;
use tempfile::{Builder, TempDir};

/// Where Linux keeps files in memory.
const MEMORY: &str = "/dev/shm";

/// The bytes that must be free there. The servers of all tests that run at a time have a third of them.
const ROOM: u64 = 8 << 30;

/// Waits until its standard input ends, as it does when the test program has ended, and removes a directory, to which
/// servers that are being killed may still write, and the shared memory of those of PostgreSQL.
const REMOVER: &str = r#"
trap '' HUP INT TERM
read -r line
for file in "$1"/.tmp*/data/postmaster.pid; do ipcrm -m "$(sed -n '7s/.* //p' "$file")"; done 2>&-
for _ in 1 2 3 4 5 6 7 8 9; do rm -rf -- "$1" 2>&- && break; sleep 1; done
"#;

/// A new directory.
///
/// It is in memory if there is room, unless the environment names a place: a server that is killed loses nothing there either, and a busy disk that takes a
/// second to sync would end short leases.
pub fn new_directory() -> Result<TempDir> {
    static ALL: OnceLock<std::result::Result<All, String>> = OnceLock::new();
    let all = ALL.get_or_init(|| All::new().map_err(|failure| failure.to_string()));
    let all = all.as_ref().map_err(|failure| Failure::new(failure.clone()))?;
    Ok(tempfile::tempdir_in(&all.path)?)
}

/// The directory of them all, and the process that removes it.
struct All {
    path: PathBuf,
    _remover: Child,
}

impl All {
    fn new() -> Result<Self> {
        // A server that runs as another user finds its own directory through it.
        let passable = Permissions::from_mode(0o711);
        let directory = Builder::new().permissions(passable).tempdir_in(place())?;
        let remover = Command::new("sh")
            .args(["-c", REMOVER, "sh"])
            .arg(directory.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self { path: directory.keep(), _remover: remover })
    }
}

fn place() -> PathBuf {
    if let Some(named) = env::var_os("LEASEHOLD_TEST_DIRECTORY") {
        return named.into();
    }
    let is_roomy =
        statvfs(MEMORY).is_ok_and(|at| at.blocks_available() * at.fragment_size() >= ROOM);
    if is_roomy { Path::new(MEMORY).to_owned() } else { std::env::temp_dir() }
}
