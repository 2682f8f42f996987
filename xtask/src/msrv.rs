//! `cargo xtask msrv`: checks the workspace with exactly the Rust version that it states.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

use crate::provision;
use crate::shell::{Outcome, capture, command, root, run, section, target};
use crate::tools;

/// Checks every target, or states why that could not be checked.
pub(crate) fn msrv() -> Outcome {
    let version = stated(&fs::read_to_string(root().join("Cargo.toml"))?)?;
    section(&format!("Rust {version}"));
    let toolchain = rustup(&version).or_else(|no_rustup| {
        debian(&version).map_err(|no_debian| format!("{no_rustup}; {no_debian}"))
    });
    match toolchain {
        Ok(toolchain) => {
            println!("found: {}", toolchain.bin.display());
            println!("not checked: {}, which state a newer version of their own", NEWER.join(", "));
            let mut check = toolchain.run_by(&tools::HACK.provide()?);
            check.args(["hack", "check", "--each-feature", "--exclude-all-features"]);
            check.args(["--exclude-features", &NEWER_FEATURES.join(",")]);
            check.args(["--workspace", "--lib", "--ignore-private", "--locked", "--quiet"]);
            for package in NEWER {
                check.args(["--exclude", package]);
            }
            run(check)
        }
        Err(why) => {
            println!("not checked: no toolchain of Rust {version} is available here ({why})");
            Ok(())
        }
    }
}

/// Published packages whose own `rust-version` is above the workspace's, because a driver's is.
const NEWER: &[&str] = &[
    "leasehold-mongodb",
    "leasehold-mysql",
    "leasehold-postgres",
    "leasehold-redis",
    "leasehold-spanner",
    "leasehold-cli",
];

/// The features that need one of them.
const NEWER_FEATURES: &[&str] = &["mongodb", "mysql", "postgres", "redis", "spanner", "tls"];

/// The workspace's `rust-version`, in full: 1.85 means 1.85.0.
fn stated(manifest: &str) -> Outcome<String> {
    #[derive(Deserialize)]
    struct Manifest {
        workspace: Workspace,
    }
    #[derive(Deserialize)]
    struct Workspace {
        package: Package,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "kebab-case")]
    struct Package {
        rust_version: String,
    }
    let version = toml::from_str::<Manifest>(manifest)?.workspace.package.rust_version;
    Ok(if version.matches('.').count() == 1 { format!("{version}.0") } else { version })
}

/// A cargo and a rustc of one version.
#[derive(Debug)]
struct Toolchain {
    bin: PathBuf,
    libraries: Vec<PathBuf>,
}

impl Toolchain {
    /// A toolchain that starts and has this version.
    fn new(bin: PathBuf, libraries: Vec<PathBuf>, version: &str) -> Result<Self, String> {
        let toolchain = Self { bin, libraries };
        for (program, mut command) in [("cargo", toolchain.cargo()), ("rustc", toolchain.rustc())] {
            command.arg("--version");
            let printed = capture(command).map_err(|error| error.to_string())?;
            if !printed.starts_with(&format!("{program} {version} ")) {
                return Err(format!("{program} reports {:?}", printed.trim()));
            }
        }
        Ok(toolchain)
    }

    fn cargo(&self) -> Command {
        self.run_by(&self.bin.join("cargo"))
    }

    fn rustc(&self) -> Command {
        self.run_by(&self.bin.join("rustc"))
    }

    /// A program that uses this cargo and this rustc.
    fn run_by(&self, program: &Path) -> Command {
        let mut program = command(program, &[]);
        program.env("CARGO", self.bin.join("cargo")).env("RUSTC", self.bin.join("rustc"));
        program.env_remove("RUSTUP_TOOLCHAIN");
        if !self.libraries.is_empty() {
            let path = std::env::join_paths(&self.libraries).unwrap_or_else(|_| OsString::new());
            program.env("LD_LIBRARY_PATH", path);
        }
        program
    }
}

fn rustup(version: &str) -> Result<Toolchain, String> {
    let rustc = command(Path::new("rustup"), &["which", "--toolchain", version, "rustc"]);
    let rustc = capture(rustc).map_err(|error| error.to_string())?;
    let bin = Path::new(rustc.trim()).parent().unwrap_or(Path::new("")).to_path_buf();
    Toolchain::new(bin, Vec::new(), version)
}

/// Debian 12 has the compiler that it builds Firefox with. Its packages are unpacked next to our build and never
/// installed, so that they affect no other Rust.
fn debian(version: &str) -> Result<Toolchain, String> {
    let folder = target().join("msrv").join(version);
    unpacked(&folder, version).or_else(|_| {
        download_and_unpack(&folder, version).map_err(|error| error.to_string())?;
        unpacked(&folder, version)
    })
}

fn unpacked(folder: &Path, version: &str) -> Result<Toolchain, String> {
    let of_architecture = |lib: &str| {
        let folders = folder.join(lib).read_dir().into_iter().flatten().flatten();
        folders.map(|entry| entry.path()).filter(|path| path.is_dir()).collect::<Vec<_>>()
    };
    let libraries = [of_architecture("lib"), of_architecture("usr/lib")].concat();
    Toolchain::new(folder.join("usr/bin"), libraries, version)
}

fn download_and_unpack(folder: &Path, version: &str) -> Outcome {
    let apt = |program: &str, arguments: &[&str]| command(Path::new(program), arguments);
    let offered = || capture(apt("apt-cache", &["madison", "rustc-web"]));
    let mut exact = offered_version(&offered()?, version);
    if exact.is_none() {
        provision::refresh_index()?;
        exact = offered_version(&offered()?, version);
    }
    let exact = exact.ok_or("no package rustc-web has it")?;
    let packages =
        ["rustc-web", "cargo-web", "libstd-rust-web-dev"].map(|name| format!("{name}={exact}"));

    let archives = folder.join("archives");
    fs::create_dir_all(archives.join("partial"))?;
    let mut download = apt("apt-get", &["install", "--yes", "--download-only"]);
    download.args(["--no-install-recommends", "-o", "Debug::NoLocking=1", "-o"]);
    download.arg(format!("Dir::Cache::archives={}", archives.display())).args(packages);
    capture(download)?;

    for archive in fs::read_dir(&archives)? {
        let archive = archive?.path();
        if archive.extension().is_some_and(|extension| extension == "deb") {
            let mut unpack = apt("dpkg-deb", &["-x"]);
            unpack.arg(archive).arg(folder);
            run(unpack)?;
        }
    }
    fs::remove_dir_all(archives)?;
    Ok(())
}

/// The package version of this Rust in the output of `apt-cache madison`: `package | version | source`.
fn offered_version(offered: &str, version: &str) -> Option<String> {
    let mut versions = offered.lines().filter_map(|line| line.split('|').nth(1)).map(str::trim);
    let is_of_version = |offered: &&str| {
        offered.strip_prefix(version).is_some_and(|rest| rest.starts_with(['+', '-', '~']))
    };
    versions.find(is_of_version).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stated_version_is_read_in_full() {
        let manifest = |version: &str| {
            format!("[workspace]\n[workspace.package]\nrust-version = {version:?}\n")
        };
        assert_eq!(stated(&manifest("1.85")).unwrap(), "1.85.0");
        assert_eq!(stated(&manifest("1.85.1")).unwrap(), "1.85.1");
        assert!(stated("[workspace]\n").is_err());
    }

    #[test]
    fn the_package_of_exactly_that_version_is_chosen() {
        let offered = " rustc-web | 1.96.0+dfsg1-1~deb12u2 | source\n \
                        rustc-web | 1.85.0+dfsg3-1~deb12u3 | source\n";
        let exact = offered_version(offered, "1.85.0");
        assert_eq!(exact.as_deref(), Some("1.85.0+dfsg3-1~deb12u3"));
        assert_eq!(offered_version(offered, "1.85"), None);
        assert_eq!(offered_version("", "1.85.0"), None);
    }
}
