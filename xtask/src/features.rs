//! Sets of features, checked by cargo-hack.

use crate::shell::{Outcome, command, run, section};
use crate::tools;

/// Runs clippy on each published package without its default features, with each feature alone, and with all.
pub(crate) fn check() -> Outcome {
    section("each feature");
    let mut hack = command(&tools::HACK.provide()?, &["hack", "clippy", "--each-feature"]);
    hack.args(["--workspace", "--ignore-private", "--quiet", "--", "-D", "warnings"]);
    run(hack)
}
