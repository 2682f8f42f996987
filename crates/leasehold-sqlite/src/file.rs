//! Finds the database file, decides whether it may be where it is, and checks that it still is. Linux only.
//!
//! **Nothing here opens the database file, except to create it.** A process that closes any descriptor of a file
//! drops all its POSIX locks on that file, also those that SQLite took through another descriptor, and processes
//! would no longer exclude each other. So files are examined by path (`lstat`, `statfs`, `access`), and a new one
//! is created by [`create`] before SQLite can have it open.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{
    DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _,
    PermissionsExt as _,
};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use leasehold_core::{Error, Result};
use nix::sys::statfs::statfs;
use nix::unistd::{AccessFlags, eaccess};

use crate::config::FileMode;
use crate::error;

const STICKY: u32 = 0o1000;
const OTHERS_WRITE: u32 = 0o002;

/// Local file systems with working POSIX locks and shared memory, by the magic number of `statfs`. Two kernels on
/// one file, as through a network or a virtual machine's mount, would each use their own clock and not see each
/// other's locks.
const FILE_SYSTEMS: [(u32, &str); 12] = [
    (0xEF53, "ext2/ext3/ext4"),
    (0x5846_5342, "xfs"),
    (0x9123_683E, "btrfs"),
    (TMPFS, "tmpfs"),
    (RAMFS, "ramfs"),
    (OVERLAYFS, "overlayfs"),
    (0x2FC1_2FC1, "zfs"),
    (0xF2F5_2010, "f2fs"),
    (0xCA45_1A4E, "bcachefs"),
    (0x3153_464A, "jfs"),
    (0x5265_4973, "reiserfs"),
    (0xF15F, "ecryptfs"),
];
const TMPFS: u32 = 0x0102_1994;
const RAMFS: u32 = 0x8584_58F6;
const OVERLAYFS: u32 = 0x794C_7630;

/// The database file as it was when it was opened.
#[derive(Debug)]
pub(crate) struct DatabaseFile {
    path: PathBuf,
    device: u64,
    inode: u64,
    /// Who may use it.
    mode: FileMode,
}

/// What lowers the level or may surprise about the file's location.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) hazards: Vec<String>,
    /// The file is gone after a restart of the machine.
    pub(crate) volatile: bool,
}

impl DatabaseFile {
    /// Finds the file, and creates an empty one of this mode if there is none.
    ///
    /// # Errors
    /// `InvalidInput` if the path cannot name a database, `Incompatible` if the file must not be there, `Denied`
    /// if this user may not write it.
    pub(crate) fn locate(path: &Path, create_parent: bool, mode: FileMode) -> Result<Self> {
        let (parent, name) = split(path)?;
        if create_parent {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(parent)
                .map_err(|e| error::os("make the directory", parent, e))?;
        }
        // Absolute, so that the process may change its directory; without links, so that one file has one -wal
        // beside it.
        let parent =
            fs::canonicalize(parent).map_err(|e| error::os("find the directory", parent, e))?;
        check_directory(&parent)?;
        let path = parent.join(name);
        create(&path, mode)?;
        let found = look(&path).map_err(|e| error::os("look at", &path, e))?;
        check_file(&path, &found)?;
        Ok(Self { path, device: found.dev(), inode: found.ino(), mode })
    }

    /// Absolute, and without symbolic links.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Identifies the file itself, whatever its path.
    pub(crate) fn identity(&self) -> String {
        format!("sqlite:{:x}:{}", self.device, self.inode)
    }

    /// Checks that the path still names the open file: two files would not exclude each other.
    ///
    /// # Errors
    /// `Incompatible` if it does not, or if the file now has a second name.
    pub(crate) fn verify(&self) -> Result<()> {
        match look(&self.path) {
            Ok(found) if (found.dev(), found.ino()) == (self.device, self.inode) => {
                check_links(&self.path, &found)
            }
            Ok(_) => Err(error::replaced(&self.path.display().to_string())),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                Err(error::replaced(&self.path.display().to_string()))
            }
            Err(e) => Err(error::os("look at", &self.path, e)),
        }
    }

    /// Reads modes and the file system again.
    ///
    /// # Errors
    /// As the operating system's.
    pub(crate) fn findings(&self) -> Result<Findings> {
        let mut findings = Findings::default();
        for suffix in ["", "-wal", "-shm"] {
            let path = self.with_suffix(suffix);
            match look(&path) {
                Ok(found) if found.mode() & 0o077 & !self.mode.bits() != 0 => findings.hazards.push(format!(
                    "{} has mode {:04o}, so other users can read or change leases; chmod {:o} it",
                    path.display(),
                    found.mode() & 0o7777,
                    self.mode.bits(),
                )),
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => return Err(error::os("look at", &path, e)),
            }
        }
        let parent = self.path.parent().unwrap_or(Path::new("/"));
        let found = look(parent).map_err(|e| error::os("look at", parent, e))?;
        if found.mode() & 0o022 & !self.mode.bits() != 0 && found.mode() & STICKY == 0 {
            findings.hazards.push(format!(
                "the directory {} has mode {:04o}, so others can remove the database; chmod {} it",
                parent.display(),
                found.mode() & 0o7777,
                if self.mode == FileMode::Group { "2770" } else { "700" },
            ));
        }
        match magic(&self.path)? {
            TMPFS | RAMFS => {
                findings.volatile = true;
                findings.hazards.push(format!(
                    "{} is in memory and is lost at a restart of the machine, with leases without end and tokens; \
                     put it on a disk",
                    self.path.display()
                ));
            }
            OVERLAYFS => findings.hazards.push(format!(
                "{} is on overlayfs: in a container it belongs to that container and is lost with it; put it on a \
                 volume",
                self.path.display()
            )),
            _ => {}
        }
        Ok(findings)
    }

    fn with_suffix(&self, suffix: &str) -> PathBuf {
        let mut path = self.path.clone().into_os_string();
        path.push(suffix);
        path.into()
    }
}

fn split(path: &Path) -> Result<(&Path, &OsStr)> {
    let bytes = path.as_os_str().as_bytes();
    let refuse = |why: &str| {
        Err(Error::invalid_input(format!(
            "the database path is {path:?}, {why}; give the path of a file, for example locks.db"
        )))
    };
    if bytes.is_empty() {
        return refuse("which is empty");
    }
    if bytes == b":memory:" {
        return refuse("which means a database in memory to SQLite; for that use in_memory()");
    }
    if bytes.contains(&0) {
        return refuse("which has a NUL byte");
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    match path.file_name() {
        Some(name) if !bytes.ends_with(b"/") => Ok((parent.unwrap_or(Path::new(".")), name)),
        _ => refuse("which names a directory"),
    }
}

fn check_directory(parent: &Path) -> Result<()> {
    let found = look(parent).map_err(|e| error::os("look at the directory", parent, e))?;
    if !found.is_dir() {
        return Err(Error::invalid_input(format!(
            "{} is not a directory; give the path of a file in a directory",
            parent.display()
        )));
    }
    if found.mode() & OTHERS_WRITE != 0 && found.mode() & STICKY == 0 {
        return Err(Error::incompatible(format!(
            "the directory {} has mode {:04o}, so every user may replace files in it; use a directory of mode 0700, \
             or chmod o-w it",
            parent.display(),
            found.mode() & 0o7777,
        )));
    }
    check_file_system(parent)?;
    // SQLite creates the -wal and -shm files there.
    eaccess(parent, AccessFlags::W_OK | AccessFlags::X_OK)
        .map_err(|e| error::os("write into the directory", parent, e.into()))
}

/// Creates the file unless it exists. The mode is set here, whatever the umask, because SQLite would make it 0644, and
/// gives -wal and -shm the mode of the file.
fn create(path: &Path, mode: FileMode) -> Result<()> {
    // Held until the new file is closed, so that no other thread opens it in SQLite before that. Only locks on a
    // file that this call created could be lost: an existing one is not opened.
    static CREATING: Mutex<()> = Mutex::new(());
    let _creating = CREATING.lock().unwrap_or_else(PoisonError::into_inner);
    // O_CREAT with O_EXCL follows no symbolic link.
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(file) => file
            .set_permissions(Permissions::from_mode(mode.bits()))
            .map_err(|e| error::os("set the mode of", path, e)),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(e) => Err(error::os("create", path, e)),
    }
}

fn check_file(path: &Path, found: &Metadata) -> Result<()> {
    let kind = found.file_type();
    let what = if kind.is_symlink() {
        "a symbolic link; give the path that it leads to"
    } else if kind.is_dir() {
        "a directory; give the path of a file in it"
    } else if kind.is_fifo() || kind.is_socket() || kind.is_block_device() || kind.is_char_device()
    {
        "not a regular file; give another path"
    } else {
        check_links(path, found)?;
        check_mount(path)?;
        check_file_system(path)?;
        return eaccess(path, AccessFlags::R_OK | AccessFlags::W_OK)
            .map_err(|e| error::os("read and write", path, e.into()));
    };
    Err(Error::invalid_input(format!("{} is {what}", path.display())))
}

/// SQLite names the write-ahead log after the path, so two names of one file would have two logs.
fn check_links(path: &Path, found: &Metadata) -> Result<()> {
    if found.nlink() == 1 {
        return Ok(());
    }
    Err(Error::incompatible(format!(
        "{} has {} names (hard links), and users of different names would not exclude each other; leave one name",
        path.display(),
        found.nlink()
    )))
}

/// A file that is mounted alone, as by `-v locks.db:/locks.db`, has its log outside of the mount, so each of two
/// containers would have its own log.
fn check_mount(path: &Path) -> Result<()> {
    let mounts = fs::read("/proc/self/mountinfo")
        .map_err(|e| error::os("read", Path::new("/proc/self/mountinfo"), e))?;
    if !is_mount_point(&mounts, path.as_os_str().as_bytes()) {
        return Ok(());
    }
    Err(Error::incompatible(format!(
        "{} is mounted by itself, so its write-ahead log is not shared with other users of the file; mount its \
         directory",
        path.display()
    )))
}

/// The fifth field of a line is the mount point, with blanks and similar characters as `\` and three octal digits.
fn is_mount_point(mountinfo: &[u8], path: &[u8]) -> bool {
    let escaped: Vec<u8> = path
        .iter()
        .flat_map(|byte| match byte {
            b' ' | b'\t' | b'\n' | b'\\' => format!("\\{byte:03o}").into_bytes(),
            _ => vec![*byte],
        })
        .collect();
    mountinfo
        .split(|byte| *byte == b'\n')
        .filter_map(|line| line.split(|byte| *byte == b' ').nth(4))
        .any(|mount| mount == escaped)
}

fn check_file_system(path: &Path) -> Result<()> {
    let found = magic(path)?;
    if FILE_SYSTEMS.iter().any(|(magic, _)| *magic == found) {
        return Ok(());
    }
    let allowed: Vec<&str> = FILE_SYSTEMS.iter().map(|(_, name)| *name).collect();
    Err(Error::incompatible(format!(
        "{} is on a file system ({found:#x}) that is not known to be local; use one of: {}",
        path.display(),
        allowed.join(", ")
    )))
}

fn magic(path: &Path) -> Result<u32> {
    let found =
        statfs(path).map_err(|e| error::os("look at the file system of", path, e.into()))?;
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a magic number has 32 bits, whatever width and sign the platform's C type has"
    )]
    let magic = found.filesystem_type().0 as u32;
    Ok(magic)
}

/// Follows no link and opens nothing.
fn look(path: &Path) -> io::Result<Metadata> {
    fs::symlink_metadata(path)
}

#[cfg(test)]
mod tests {
    use leasehold_core::ErrorKind;

    use super::*;

    #[test]
    fn paths_that_name_no_file_are_reported() {
        for (path, fragment) in [
            ("", "empty"),
            ("/", "directory"),
            ("a/", "directory"),
            ("..", "directory"),
            (":memory:", "in_memory()"),
            ("a\0b", "NUL"),
        ] {
            let error = split(Path::new(path)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert!(error.to_string().contains(fragment), "{error}");
        }
        assert_eq!(split(Path::new("a")).unwrap(), (Path::new("."), OsStr::new("a")));
        assert_eq!(split(Path::new("/a")).unwrap(), (Path::new("/"), OsStr::new("a")));
        assert_eq!(split(Path::new("b/a")).unwrap(), (Path::new("b"), OsStr::new("a")));
    }

    #[test]
    fn mount_points_are_compared_unescaped() {
        let mounts = b"22 1 254:0 / / rw - ext4 /dev/vda rw\n\
            29 22 0:25 /x /data/my\\040locks.db rw - ext4 /dev/vda rw\n";
        assert!(is_mount_point(mounts, b"/data/my locks.db"));
        assert!(!is_mount_point(mounts, b"/data/my"));
        assert!(!is_mount_point(mounts, b"/data/my\\040locks.db"));
    }

    #[test]
    fn magic_numbers_differ() {
        let mut magics = FILE_SYSTEMS.map(|(magic, _)| magic);
        magics.sort_unstable();
        assert!(magics.windows(2).all(|pair| pair[0] != pair[1]));
    }
}
