//! The runtime folder of a run: a directory with the lease file and the URL of the store.
//!
//! `leasehold` and the shim each hold a shared lock (flock(2)) on it as long as they live. So a folder that can be locked
//! exclusively is one of a run that was killed, and the next run removes it; systemd-tmpfiles, which removes what is
//! old, skips a folder that it cannot lock.

use std::ffi::OsString;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag};
use nix::unistd::{UnlinkatFlags, geteuid, unlinkat};

/// The name of the lease file.
pub(crate) const LEASE_FILE: &str = "lease.json";

/// The name of the file with the URL of the store.
pub(crate) const STORE_FILE: &str = "store";

const PREFIX: &str = "leasehold-";

const MODE: u32 = 0o700;

/// How often to make a folder: another process may lock a new one first, for a moment, to see whether it is old.
const TRIES: usize = 8;

/// Where a folder can be: `TMPDIR`, or `XDG_RUNTIME_DIR` if that cannot be written.
pub(crate) fn places() -> impl Iterator<Item = PathBuf> {
    let second = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    std::iter::once(std::env::temp_dir()).chain(second)
}

/// A folder that this process uses. Removed with its files when dropped.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    _lock: Option<Flock<File>>,
}

impl Folder {
    /// Makes one in `place`, with mode 0700.
    pub(crate) fn make(place: &Path) -> io::Result<Self> {
        for _ in 0..TRIES {
            let directory = tempfile::Builder::new()
                .prefix(PREFIX)
                .permissions(Permissions::from_mode(MODE))
                .tempdir_in(place)?;
            match lock(directory.path(), FlockArg::LockSharedNonblock) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // A file system without such locks lets nobody lock it exclusively either.
                lock => return Ok(Self { path: directory.keep(), _lock: lock.ok() }),
            }
        }
        Err(ErrorKind::WouldBlock.into())
    }

    /// The folder with this file, which the parent of this process has made.
    pub(crate) fn of(file: &Path) -> Option<Self> {
        let path = file.parent()?.to_owned();
        Some(Self { _lock: lock(&path, FlockArg::LockSharedNonblock).ok(), path })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // The other process of this run may have removed it.
        for name in [STORE_FILE, LEASE_FILE] {
            let _ = std::fs::remove_file(self.path.join(name));
        }
        let _ = std::fs::remove_dir(&self.path);
    }
}

/// Removes the folders that killed runs of this user have left. What cannot be removed stays.
pub(crate) fn remove_abandoned() {
    for place in places() {
        for entry in std::fs::read_dir(place).into_iter().flatten().flatten() {
            if entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes()) {
                let _ = remove_if_abandoned(&entry.path());
            }
        }
    }
}

fn remove_if_abandoned(path: &Path) -> io::Result<()> {
    // A run locks its folder before it makes the first file, and only a folder with a lease file is removed: so none is
    // taken from a run that has not locked it yet.
    let folder = lock(path, FlockArg::LockExclusiveNonblock)?;
    let metadata = folder.metadata()?;
    if metadata.uid() != geteuid().as_raw() || metadata.mode() & 0o7777 != MODE {
        return Ok(());
    }
    let mut names = Vec::new();
    for entry in std::fs::read_dir(format!("/proc/self/fd/{}", folder.as_raw_fd()))? {
        names.push(entry?.file_name());
    }
    let is_of_a_run = |name: &OsString| name == LEASE_FILE || name == STORE_FILE;
    if !names.iter().any(|name| name == LEASE_FILE) || !names.iter().all(is_of_a_run) {
        return Ok(());
    }
    // The lease file last: without it the folder would stay for ever.
    names.sort_by_key(|name| name == LEASE_FILE);
    for name in &names {
        unlinkat(&*folder, name.as_os_str(), UnlinkatFlags::NoRemoveDir)?;
    }
    std::fs::remove_dir(path)
}

/// Opens a directory, not a link to one, and locks it as long as the result lives.
fn lock(path: &Path, how: FlockArg) -> io::Result<Flock<File>> {
    let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW;
    let directory = OpenOptions::new().read(true).custom_flags(flags.bits()).open(path)?;
    Flock::lock(directory, how).map_err(|(_, errno): (File, Errno)| errno.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_abandoned_folder_with_nothing_but_files_of_a_run_is_removed() {
        let place = tempfile::tempdir().unwrap();
        let folder = |name: &str, mode, files: &[&str]| {
            let path = place.path().join(name);
            std::fs::create_dir(&path).unwrap();
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            for file in files {
                std::fs::write(path.join(file), "").unwrap();
            }
            path
        };
        let spared = [
            folder("leasehold-empty", MODE, &[]),
            folder("leasehold-others", MODE, &["store"]),
            folder("leasehold-mixed", MODE, &["lease.json", "store", "notes"]),
            folder("leasehold-shared", 0o755, &["lease.json", "store"]),
        ];
        let abandoned = folder("leasehold-abandoned", MODE, &["lease.json", "store"]);
        let bare = folder("leasehold-bare", MODE, &["lease.json"]);
        let link = place.path().join("leasehold-link");
        std::os::unix::fs::symlink(&abandoned, &link).unwrap();
        let mut live = Folder::make(place.path()).unwrap();
        std::fs::write(live.path().join(LEASE_FILE), "").unwrap();

        assert!(remove_if_abandoned(&link).is_err() && abandoned.exists());
        for path in [&abandoned, &bare] {
            remove_if_abandoned(path).unwrap();
            assert!(!path.exists());
        }
        for path in &spared {
            let files = |path| std::fs::read_dir(path).unwrap().count();
            let before = files(path);
            remove_if_abandoned(path).unwrap();
            assert_eq!(files(path), before, "{}", path.display());
        }
        let path = live.path().to_owned();
        assert!(remove_if_abandoned(&path).is_err(), "locked by leasehold");
        let second = Folder::of(&path.join(LEASE_FILE)).unwrap();
        live._lock = None;
        assert!(remove_if_abandoned(&path).is_err(), "locked by the shim");
        drop(second);
        assert!(!path.exists());
    }
}
