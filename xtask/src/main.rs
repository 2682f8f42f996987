//! The commands of a developer: `cargo xtask help`.

mod api;
mod circles;
mod deny;
mod features;
mod msrv;
mod mutants;
mod package;
mod programs;
mod prose;
mod provision;
mod report;
mod shell;
mod stores;
mod table;
mod test;
mod times;
mod tools;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use shell::{Outcome, cargo, command, run, section};

/// The commands of a developer of Leasehold.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run every test, then report which stores were tested, which were not, and why
    ///
    /// Provides the servers that the tests need first, as `servers` does. Stores named in LEASEHOLD_REQUIRE
    /// (separated by commas) must be tested, with no case ignored.
    Test(test::Arguments),
    /// Run the models of LocalLocks, in each order in which their threads can run
    Loom,
    /// Run clippy on every target with every feature, warnings denied
    Check,
    /// Format the code
    Fmt,
    /// Check formatting, clippy, each feature alone, circles of imports, spelling, links in the documents, and test
    /// names there and in the list of planted faults; change nothing
    Lint,
    /// Build the documentation of every library, warnings denied, and compare the public API with docs/api
    Docs,
    /// Write the public API of leasehold and leasehold-core to docs/api
    Api,
    /// Check the dependencies against deny.toml: licences, bans, sources, advisories
    ///
    /// The advisory database is downloaded; if that fails, advisories are not checked.
    Deny,
    /// Check the workspace with exactly the Rust version that it states
    ///
    /// The toolchain is rustup's, or Debian's package, unpacked under target/ and not installed. If neither is
    /// available, nothing is checked.
    Msrv,
    /// Package every published crate, and check each from its package alone
    Package,
    /// Find or install the servers that the tests need, or state why not
    Servers,
    /// Plant the faults of xtask/mutants.toml in a copy and check that tests catch them
    Mutants(mutants::Arguments),
    /// Run a benchmark, in release mode
    Bench {
        /// Run every part of every benchmark for a moment, in debug mode, to see that it runs; the figures mean nothing
        #[arg(long, conflicts_with = "arguments")]
        smoke: bool,
        /// Nothing for the embedded stores, or `local`, `redis`, `redlock`, `sqlite`, `mariadb`, `postgres`, `mongodb` or `spanner`
        #[arg(value_name = "WHAT")]
        arguments: Vec<String>,
    },
    /// Run everything that CI runs, by the same script: .ci/run
    Ci,
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Test(arguments) => test::test(&arguments),
        Command::Loom => loom(),
        Command::Check => check(),
        Command::Fmt => run(cargo(&["fmt", "--all"])),
        Command::Lint => lint(),
        Command::Docs => docs(),
        Command::Api => api::write(),
        Command::Deny => deny::deny(),
        Command::Msrv => msrv::msrv(),
        Command::Package => package::package(),
        Command::Servers => stores::servers(),
        Command::Mutants(arguments) => mutants::mutants(&arguments),
        Command::Bench { smoke: true, .. } => smoke(),
        Command::Bench { arguments, .. } => bench(&arguments),
        Command::Ci => run(command(&shell::root().join(".ci/run"), &[])),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}

fn loom() -> Outcome {
    let mut models = cargo(&["test", "--package", "leasehold-local", "--test", "loom"]);
    // So the models run as fast as in a release build, which takes twice as long to compile.
    for package in ["generator", "leasehold-local", "loom"] {
        models.arg("--config").arg(format!("profile.dev.package.{package}.opt-level=2"));
    }
    // In a folder of its own: the flag has everything built anew.
    models.arg("--target-dir").arg(shell::target().join("loom"));
    models.env("RUSTFLAGS", "--cfg leasehold_loom");
    run(models)
}

fn check() -> Outcome {
    let denied = ["--", "-D", "warnings"];
    let mut all = cargo(&["clippy", "--workspace", "--all-targets", "--all-features"]);
    all.args(denied);
    run(all)?;
    features::check()?;
    for name in test::APART {
        let mut tests = test::apart(name, "clippy");
        tests.arg("--all-targets").args(denied);
        run(tests)?;
    }
    Ok(())
}

fn lint() -> Outcome {
    section("formatting");
    run(cargo(&["fmt", "--all", "--check"]))?;
    section("clippy");
    check()?;
    section("imports");
    circles::check()?;
    section("planted faults");
    mutants::check()?;
    section("documents");
    prose::check()?;
    spelling()
}

fn spelling() -> Outcome {
    section("spelling");
    run(command(&tools::prebuilt(&tools::TYPOS)?, &["--force-exclude"]))
}

fn docs() -> Outcome {
    // The command `leasehold` would overwrite the pages of the library of that name.
    let mut rustdoc = cargo(&["doc", "--workspace", "--lib", "--no-deps", "--all-features"]);
    rustdoc.env("RUSTDOCFLAGS", "-D warnings");
    run(rustdoc)?;
    api::check()
}

fn bench(arguments: &[String]) -> Outcome {
    // The program that some of them measure.
    run(cargo(&["build", "--release", "--package", "leasehold-cli"]))?;
    let mut program = cargo(&["run", "--profile", "bench", "--package", "leasehold-benches", "--"]);
    program.args(arguments);
    run(program)
}

/// With the packages and features of the other tests, so that hardly anything is built anew. Several at a time, for the figures mean
/// nothing.
fn smoke() -> Outcome {
    let path = stores::path(&stores::provide())?;
    // Builds the command too, which one of them measures.
    run(cargo(&["test", "--no-run", "--workspace", "--all-features", "--test", "cli"]))?;
    let mut tests = cargo(&["test", "--workspace", "--all-features", "--test", "smoke"]);
    tests.args(["--", "--ignored", "--test-threads", "3"]).env("PATH", path);
    run(tests)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn commands_are_well_formed() {
        Cli::command().debug_assert();
    }
}
