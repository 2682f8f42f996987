//! What a server's directory has before it starts.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use leasehold_conformance::{Failure, Result, unprivileged};
use tempfile::TempDir;

use crate::authority::Authority;
use crate::directory::new_directory;

/// The data of a new server, made once: all others are copies.
pub(crate) struct Data(OnceLock<std::result::Result<TempDir, String>>);

impl Data {
    pub(crate) const fn new() -> Self {
        Self(OnceLock::new())
    }

    /// Copies it into the folder `data` of this directory. It is made by the program and the words that `maker` returns for
    /// the folder.
    pub(crate) fn copy_to(
        &self,
        directory: &Path,
        maker: impl FnOnce(&str) -> Result<(PathBuf, Vec<String>)>,
    ) -> Result<()> {
        let make = || {
            let made = new_directory()?;
            let (program, words) = maker(&made.path().join("data").display().to_string())?;
            run(made.path(), &program, &words)?;
            Ok(made)
        };
        let made = self.0.get_or_init(|| make().map_err(|failure: Failure| failure.to_string()));
        let made = made.as_ref().map_err(|failure| Failure::new(failure.clone()))?;
        let from = made.path().join("data").display().to_string();
        run(directory, Path::new("cp"), &["-a".to_owned(), from, ".".to_owned()])
    }
}

/// Runs a program in this directory, which is then a user's who is not root.
pub(crate) fn run(directory: &Path, program: &Path, words: &[String]) -> Result<()> {
    let mut command = unprivileged(directory)?;
    command.push(program.display().to_string());
    command.extend_from_slice(words);
    let ran = Command::new(&command[0]).args(&command[1..]).current_dir(directory).output()?;
    if ran.status.success() {
        return Ok(());
    }
    let printed = String::from_utf8_lossy(&ran.stderr).into_owned();
    Err(Failure::new(format!("{}: {printed}", program.display())))
}

/// The files of the certificate `NAME.pem` of this authority and of its key, which only the server's user may read.
pub(crate) fn put_certificate(authority: &Authority, name: &str) -> Result<[String; 2]> {
    // It ends with the directories of all servers.
    let directory = new_directory()?.keep();
    let prefix = unprivileged(&directory)?;
    let [certificate, key] = ["pem", "key"].map(|part| directory.join(format!("server.{part}")));
    for (file, part) in [(&certificate, "pem"), (&key, "key")] {
        std::fs::copy(authority.file(&format!("{name}.{part}")), file)?;
        std::fs::set_permissions(file, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
        if !prefix.is_empty() {
            unprivileged(file)?;
        }
    }
    Ok([certificate, key].map(|file| file.display().to_string()))
}
