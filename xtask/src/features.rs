//! Sets of features, checked by cargo-hack.

use crate::shell::{Outcome, command, run, section};
use crate::tools;

/// Runs clippy on the library without features, with each alone, and with all. What it enables in the stores' crates is
/// checked with it.
pub(crate) fn check() -> Outcome {
    section("each feature");
    let mut hack = command(&tools::HACK.provide()?, &["hack", "clippy", "--each-feature"]);
    hack.args(["--package", "leasehold", "--quiet", "--", "-D", "warnings"]);
    run(hack)
}
