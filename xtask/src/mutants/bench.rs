//! Runs tests in the copy of the tree and judges how they end.

use std::fmt;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::list::Tests;
use crate::programs;
use crate::shell::{Outcome, capture, cargo, command, run, target, within};

/// A test that takes longer than this hangs because of the fault.
const STUCK: Duration = Duration::from_secs(60);

/// The verdict of the tests on a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Judgement {
    Caught,
    Stuck,
    Missed,
    NotCompiled,
    NothingRun,
}

impl Judgement {
    pub(super) fn is_caught(self) -> bool {
        matches!(self, Self::Caught | Self::Stuck)
    }
}

impl fmt::Display for Judgement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Caught => "fail: caught",
            Self::Stuck => "get stuck: caught",
            Self::Missed => "pass: MISSED",
            Self::NotCompiled => "do not compile: NOT TRIED",
            Self::NothingRun => "are not there: NOT TRIED",
        })
    }
}

/// Where tests run.
#[derive(Debug)]
pub(super) struct Bench {
    folder: PathBuf,
}

impl Bench {
    /// Keeps the tree, its build and logs in `folder`. Starts from a copy of the tree's own build.
    pub(super) fn new(folder: &Path) -> Outcome<Self> {
        fs::create_dir_all(folder.join("logs"))?;
        let built = folder.join("target/debug");
        if !built.exists() {
            fs::create_dir_all(&built)?;
            // Shared by hard links: cargo and rustc replace a library or program, they never write in it.
            copy("deps", &built, &["--link"])?;
            copy("build", &built, &[])?;
            copy(".fingerprint", &built, &[])?;
            // Its tests contain the path of the command in the original tree, which has no fault.
            run(Self::cargo(folder, &["clean", "--quiet", "--package", "leasehold-cli"]))?;
        }
        Ok(Self { folder: folder.to_path_buf() })
    }

    fn cargo(folder: &Path, arguments: &[&str]) -> Command {
        let mut cargo = cargo(arguments);
        cargo.current_dir(folder.join("tree")).env("CARGO_TARGET_DIR", folder.join("target"));
        cargo
    }

    /// The output of the tests.
    pub(super) fn log(&self, name: &str) -> PathBuf {
        self.folder.join("logs").join(name).with_extension("txt")
    }

    /// Builds and runs these tests.
    pub(super) fn judge(&self, tests: &Tests, name: &str) -> Outcome<Judgement> {
        let log = File::create(self.log(name))?;
        let mut build = Self::cargo(&self.folder, &["test", "--no-run", "--all-features"]);
        build.arg("--workspace").args(tests.test.split_whitespace()).stderr(log.try_clone()?);
        let Ok(programs) = programs::build(build) else { return Ok(Judgement::NotCompiled) };
        let mut verdict = Judgement::NothingRun;
        for program in programs {
            let listed =
                capture(program.command(&[&["--list".to_owned()], &tests.only[..]].concat()))?;
            if !listed.lines().any(|line| line.ends_with(": test")) {
                continue;
            }
            let mut run = program.command(&tests.only);
            run.stdout(log.try_clone()?).stderr(log.try_clone()?);
            verdict = match within(STUCK, run)? {
                None => Judgement::Stuck,
                Some(status) if status.success() => Judgement::Missed,
                Some(_) => Judgement::Caught,
            };
            if verdict.is_caught() {
                break;
            }
        }
        Ok(verdict)
    }
}

/// Copies a part of the tree's own build, if it was built. Its times tell cargo that nothing changed.
fn copy(part: &str, built: &Path, options: &[&str]) -> Outcome {
    let part = target().join("debug").join(part);
    if !part.exists() {
        return Ok(());
    }
    let mut copy = command(Path::new("cp"), &["--recursive", "--preserve=timestamps,mode"]);
    copy.args(options).arg(part).arg(built);
    run(copy)
}
