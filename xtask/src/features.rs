//! Sets of features, checked by cargo-hack.

use crate::shell::{Outcome, command, run, section};
use crate::tools;

/// Runs clippy on the library without features and with each alone. What it enables in the stores' crates is checked with it.
pub(crate) fn check() -> Outcome {
    section("each feature");
    let mut hack = command(&tools::HACK.provide()?, &["hack", "clippy", "--each-feature"]);
    hack.args(["--exclude-all-features", "--package", "leasehold", "--quiet"]);
    hack.args(["--", "-D", "warnings"]);
    run(hack)
}
