//! Small faults in each function of `leasehold-core`, made by cargo-mutants.

use crate::shell::{Outcome, command, run, section, target};
use crate::tools;

/// Makes each fault that fits what `.cargo/mutants.toml` examines, and checks that the crate's own tests fail.
pub(super) fn check(only: Option<&str>) -> Outcome {
    section("faults made in leasehold-core");
    let mut mutants = command(&tools::MUTANTS.provide()?, &["mutants", "--jobs", "2", "--output"]);
    mutants.arg(target().join("mutants"));
    if let Some(name) = only {
        mutants.args(["--re", name]);
    }
    run(mutants)
}
