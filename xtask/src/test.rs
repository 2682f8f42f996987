//! `cargo xtask test`.

use std::fs;
use std::path::Path;

use crate::report::{Required, Tally};
use crate::shell::{Outcome, cargo, root, run, section, target};
use crate::stores;

/// What of the tests is run.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Only this package's tests; may be repeated
    #[arg(short, long = "package", value_name = "NAME")]
    packages: Vec<String>,
    /// Passed on to `cargo test`
    #[arg(last = true)]
    arguments: Vec<String>,
}

/// Runs the tests, doc tests included, and says which stores they were run on.
pub(crate) fn test(arguments: &Arguments) -> Outcome {
    let required = Required::parse(&std::env::var("LEASEHOLD_REQUIRE").unwrap_or_default())?;
    let provided = stores::provide();
    let reports = target().join("conformance");
    make_empty(&reports)?;

    section("tests");
    let mut tests = cargo(&["test", "--all-features", "--no-fail-fast"]);
    if arguments.packages.is_empty() {
        tests.arg("--workspace");
    }
    for package in &arguments.packages {
        tests.args(["--package", package]);
    }
    tests.args(&arguments.arguments).env("LEASEHOLD_REPORT", &reports);
    let tests = run(tests);
    let apart = if arguments.packages.is_empty() { test_apart() } else { Ok(()) };

    section("stores");
    let tally = Tally::of(&reports, &provided)?;
    tally.print();
    tests?;
    apart?;
    required.judge(&tally)
}

/// The tests that need other dependencies than all else has, in a workspace of their own.
fn test_apart() -> Outcome {
    section("tests with two providers of cryptography");
    let manifest = root().join("apart/two-providers/Cargo.toml");
    let mut tests = cargo(&["test", "--locked", "--manifest-path"]);
    tests.arg(manifest).arg("--target-dir").arg(target().join("apart"));
    run(tests)
}

fn make_empty(folder: &Path) -> Outcome {
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    Ok(())
}
