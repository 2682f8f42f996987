//! `cargo xtask bench`.

use crate::programs;
use crate::shell::{self, Outcome, cargo, command};
use crate::stores;
use crate::times::Times;

/// Runs one, in release mode.
pub(crate) fn run(arguments: &[String]) -> Outcome {
    let mut program = cargo(&["run", "--release", "--package", "leasehold-benches", "--"]);
    program.args(arguments);
    shell::run(program)
}

/// Every benchmark, the longest first. The one without a name is of the embedded stores.
const ALL: [&[&str]; 10] = [
    &["redis"],
    &["postgres"],
    &["mariadb"],
    &["mongodb"],
    &["spanner"],
    &["redlock"],
    &["sqlite"],
    &["slow-disk", "sqlite", "pairs"],
    &["local"],
    &[],
];

/// Runs all in debug mode, several at a time: their figures mean nothing.
pub(crate) fn smoke() -> Outcome {
    let path = stores::path(&stores::provide())?;
    shell::run(cargo(&["build", "--package", "leasehold-benches"]))?;
    let program = shell::target().join("debug/leasehold-benches");
    let commands = ALL.iter().map(|arguments| {
        let mut command = command(&program, arguments);
        command.env("PATH", &path);
        ([&["bench"], *arguments].concat().join(" "), command)
    });
    let ran = programs::run(commands.collect(), &shell::target().join("bench-logs"))?;
    let mut times = Times::default();
    times.within(ran.iter().map(|ran| (ran.name.clone(), ran.took)));
    times.print();
    let failed = ran.into_iter().filter(|ran| ran.failures.is_some()).map(|ran| ran.name);
    match failed.collect::<Vec<_>>()[..] {
        [] => Ok(()),
        ref names => Err(format!("failed: {}", names.join(", ")).into()),
    }
}
