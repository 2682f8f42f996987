//! `cargo xtask test`.

use std::process::Command;
use std::thread;

use crate::programs;
use crate::report::{Required, Tally};
use crate::shell::{Outcome, cargo, root, run, section, target};
use crate::stores;
use crate::times::{Stopwatch, Times};

/// Which tests to run.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Only this package's tests; may be repeated
    #[arg(short, long = "package", value_name = "NAME")]
    packages: Vec<String>,
    /// Also run what is otherwise tried in part: quorums of five on every store, elections with 200 leaders
    #[arg(long)]
    all: bool,
    /// Passed on to each test program: parts of names, or options of the harness
    #[arg(last = true)]
    arguments: Vec<String>,
}

/// Runs the tests, including doc tests, and reports on which stores they ran and how long each step took.
pub(crate) fn test(arguments: &Arguments) -> Outcome {
    let required = Required::parse(&std::env::var("LEASEHOLD_REQUIRE").unwrap_or_default())?;
    let mut times = Times::default();
    let (reports, logs) = (target().join("conformance"), target().join("test-logs"));
    programs::make_empty(&reports)?;

    section("tests");
    let cargo_test = |what: &str| {
        let mut tests = cargo(&["test", what, "--all-features"]);
        if arguments.packages.is_empty() {
            tests.arg("--workspace");
        }
        for package in &arguments.packages {
            tests.args(["--package", package]);
        }
        tests
    };
    // Servers come over the network while the processors build.
    let (provided, programs) = thread::scope(|scope| {
        let servers = scope.spawn(|| {
            let watch = Stopwatch::start();
            (stores::provide(), watch.elapsed())
        });
        let build = || programs::build(cargo_test("--no-run"));
        let programs = times.take("build of the tests", build);
        let (provided, took) = servers.join().expect("providing servers does not panic");
        times.within([("servers, meanwhile".to_owned(), took)]);
        (provided, programs)
    });
    let programs = programs?;
    let path = stores::path(&provided)?;
    let commands = programs.iter().map(|program| {
        let mut command = program.command(&arguments.arguments);
        command.env("LEASEHOLD_REPORT", &reports).env("PATH", &path);
        if arguments.all {
            command.env("LEASEHOLD_TEST_ALL", "1");
        }
        (program.name.clone(), command)
    });
    let ran = times.take("tests", || programs::run(commands.collect(), &logs))?;
    times.within(ran.iter().map(|ran| (ran.name.clone(), ran.took)));
    let (mut failed, mut failures) = (Vec::new(), Vec::new());
    for ran in ran {
        if let Some(failure) = ran.failures {
            failed.push(ran.name.clone());
            failures.push((ran.name, failure));
        }
    }
    if arguments.arguments.is_empty() {
        section("doc tests");
        if let Err(error) = times.take("doc tests", || run(cargo_test("--doc"))) {
            failed.push(error.to_string());
        }
    }
    if arguments.packages.is_empty() && arguments.arguments.is_empty() {
        for name in APART {
            section(&format!("tests/{name}"));
            if let Err(error) = times.take(name, || run(apart(name, "test"))) {
                failed.push(error.to_string());
            }
        }
    }

    section("stores");
    let tally = Tally::of(&reports, &provided)?;
    tally.print();
    section("time");
    times.print();
    if !failed.is_empty() {
        for (program, failure) in failures {
            section(&format!("failures of {program}"));
            println!("{failure}");
        }
        return Err(format!("failed: {}", failed.join("; ")).into());
    }
    required.judge(&tally)
}

/// The folders of tests which need dependencies or features that nothing else may have, and so workspaces of their own.
pub(crate) const APART: [&str; 2] = ["beside-sqlx", "crypto-provider"];

/// Runs Cargo on the tests of such a folder.
pub(crate) fn apart(name: &str, subcommand: &str) -> Command {
    let manifest = root().join("tests").join(name).join("Cargo.toml");
    let mut tests = cargo(&[subcommand, "--locked", "--manifest-path"]);
    tests.arg(manifest).arg("--target-dir").arg(target());
    tests
}
