//! `cargo xtask deny`: runs cargo-deny.

use crate::shell::{Outcome, capture, cargo, command, run, section};
use crate::tools;

/// Checks the dependencies against deny.toml.
pub(crate) fn deny() -> Outcome {
    section("cargo-deny");
    let cargo_deny = tools::DENY.provide()?;
    let deny = |arguments: &[&str]| command(&cargo_deny, arguments);
    // Fetches the packages of every platform, so that the check itself needs no network.
    run(cargo(&["fetch", "--locked"]))?;

    section("licences, bans, sources");
    run(deny(&["--offline", "check", "--hide-inclusion-graph", "licenses", "bans", "sources"]))?;

    section("advisories");
    match capture(deny(&["fetch", "db"])) {
        Ok(_) => run(deny(&["check", "--disable-fetch", "advisories"])),
        Err(error) => {
            println!("not checked: the advisory database is not available here ({error})");
            Ok(())
        }
    }
}
