//! Finds the command and prepares its environment.

use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use leasehold::{Key, Lease};
use nix::errno::Errno;
use nix::unistd::{AccessFlags, access};

use crate::failure::Failure;
use crate::folder::{self, Folder};
use crate::store;

/// The program and its arguments as given.
#[derive(Debug)]
pub(crate) struct Program {
    words: Vec<OsString>,
}

impl Program {
    /// Takes the words of the command line; the first is the program.
    ///
    /// # Errors
    /// Fails at once if the program does not exist or cannot be executed, so that nobody waits for a lock in vain.
    /// Starting it may show more.
    pub(crate) fn find(words: Vec<OsString>) -> Result<Self, Failure> {
        let program = Self { words };
        match program.look_up() {
            Some(Err(error)) => Err(Failure::not_started(program.name(), &error)),
            _ => Ok(program),
        }
    }

    /// Why it was not started, which the system answered with `error`.
    pub(crate) fn not_started(&self, error: &io::Error) -> Failure {
        let is_there = matches!(self.look_up(), Some(Ok(())));
        if error.kind() == io::ErrorKind::NotFound && is_there {
            return Failure::no_interpreter(self.name(), error);
        }
        Failure::not_started(self.name(), error)
    }

    /// Looks for its file. Without `PATH` the C library has its own default, which only starting the program shows.
    fn look_up(&self) -> Option<io::Result<()>> {
        let name = self.name();
        match std::env::var_os("PATH") {
            None if !has_slash(name) => None,
            path => Some(look_up(name, &path.unwrap_or_default())),
        }
    }

    /// The program and its arguments as given.
    pub(crate) fn words(&self) -> &[OsString] {
        &self.words
    }

    /// Its name.
    pub(crate) fn name(&self) -> &OsStr {
        self.words.first().map(OsString::as_os_str).unwrap_or_default()
    }
}

/// The lease as JSON in a file that only this user can read; removed when dropped.
#[derive(Debug)]
pub(crate) struct LeaseFile {
    path: PathBuf,
    _folder: Folder,
}

impl LeaseFile {
    /// Writes it into a runtime folder, and beside it the URL of the store, for a `leasehold` under the lock.
    pub(crate) fn write(lease: &Lease, store: Option<&str>) -> io::Result<Self> {
        let mut written = folder::places().map(|place| Self::write_in(&place, lease, store));
        let first = written.next().expect("there is always a temporary directory");
        first.or_else(|error| written.find_map(Result::ok).ok_or(error))
    }

    fn write_in(place: &Path, lease: &Lease, store: Option<&str>) -> io::Result<Self> {
        let folder = Folder::make(place)?;
        let write = |name: &str, mut text: Vec<u8>| {
            text.push(b'\n');
            let path = folder.path().join(name);
            let mut file = OpenOptions::new();
            file.write(true).create_new(true).mode(0o600).open(&path)?.write_all(&text)?;
            Ok::<_, io::Error>(path)
        };
        let path = write(folder::LEASE_FILE, serde_json::to_vec(lease)?)?;
        if let Some(url) = store {
            write(folder::STORE_FILE, url.into())?;
        }
        Ok(Self { path, _folder: folder })
    }
}

/// Sets the environment of the command: it includes the lease but not the store.
pub(crate) fn show(lease: &Lease, file: Option<&LeaseFile>, keys: &[Key], command: &mut Command) {
    for (name, _) in std::env::vars_os().filter(|(name, _)| store::is_setting(name)) {
        command.env_remove(name);
    }
    let names: Vec<_> = keys.iter().map(Key::as_str).collect();
    command.env(store::KEY_VARIABLE, names.join("\n"));
    // Those of an outer `leasehold run` are not ours.
    let mut set = |name: &str, value: Option<OsString>| match value {
        Some(value) => drop(command.env(name, value)),
        None => drop(command.env_remove(name)),
    };
    set(store::LEASE_FILE_VARIABLE, file.map(|file| file.path.clone().into()));
    set("LEASEHOLD_TOKEN", lease.token.map(|token| token.to_string().into()));
}

fn has_slash(name: &OsStr) -> bool {
    name.as_encoded_bytes().contains(&b'/')
}

/// Looks for an executable file in `PATH`, as `execvp` does.
fn look_up(name: &OsStr, path: &OsStr) -> io::Result<()> {
    if has_slash(name) {
        return executable(Path::new(name));
    }
    if name.is_empty() {
        return Err(Errno::ENOENT.into());
    }
    let mut result = Err(Errno::ENOENT.into());
    for directory in std::env::split_paths(path) {
        match executable(&directory.join(name)) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => result = Err(error),
            Err(_) => {}
        }
    }
    result
}

fn executable(path: &Path) -> io::Result<()> {
    if path.metadata()?.is_dir() {
        return Err(Errno::EACCES.into());
    }
    Ok(access(path, AccessFlags::X_OK)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_looked_up_as_execvp_does() {
        let directory = tempfile::tempdir().unwrap();
        let other = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("data"), "").unwrap();
        std::os::unix::fs::symlink("/bin/sh", other.path().join("shell")).unwrap();
        let path = std::env::join_paths([directory.path(), other.path()]).unwrap();
        let kind = |name: &OsStr| look_up(name, &path).map_err(|error| error.kind());
        assert_eq!(kind(OsStr::new("shell")), Ok(()));
        assert_eq!(kind(OsStr::new("data")), Err(io::ErrorKind::PermissionDenied));
        assert_eq!(kind(OsStr::new("absent")), Err(io::ErrorKind::NotFound));
        assert_eq!(kind(directory.path().as_os_str()), Err(io::ErrorKind::PermissionDenied));
        assert_eq!(kind(directory.path().join("absent").as_os_str()), Err(io::ErrorKind::NotFound));
        assert_eq!(
            kind(OsStr::new("")),
            Err(io::ErrorKind::NotFound),
            "not a directory of the path"
        );
    }
}
