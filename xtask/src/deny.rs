//! `cargo xtask deny`: runs cargo-deny, and builds it if it is missing.

use std::path::PathBuf;

use crate::shell::{Outcome, capture, cargo, command, on_path, run, section, target};

/// The versions whose rules deny.toml follows.
const VERSION: &str = "~0.20";

/// Checks the dependencies against deny.toml.
pub(crate) fn deny() -> Outcome {
    section("cargo-deny");
    let cargo_deny = cargo_deny()?;
    let deny = |arguments: &[&str]| command(&cargo_deny, arguments);
    // Fetches the packages of every platform, so that the check itself needs no network.
    run(cargo(&["fetch", "--locked"]))?;

    section("licences, bans, sources");
    run(deny(&["--offline", "check", "licenses", "bans", "sources"]))?;

    section("advisories");
    match capture(deny(&["fetch", "db"])) {
        Ok(_) => run(deny(&["check", "--disable-fetch", "advisories"])),
        Err(error) => {
            println!("not checked: the advisory database is not available here ({error})");
            Ok(())
        }
    }
}

/// Finds cargo-deny, else builds it from the registry (about a minute).
fn cargo_deny() -> Outcome<PathBuf> {
    let tools = target().join("tools");
    let built = tools.join("bin/cargo-deny");
    let is_good = |program: &PathBuf| {
        let version = capture(command(program, &["--version"])).unwrap_or_default();
        version.contains(&format!(" {}.", VERSION.trim_start_matches('~')))
    };
    if let Some(found) = on_path("cargo-deny").into_iter().chain([built.clone()]).find(is_good) {
        println!("found: {}", found.display());
        return Ok(found);
    }
    // Unoptimised, which halves the time to build and costs a second to run.
    let mut install = cargo(&["install", "cargo-deny", "--locked", "--debug"]);
    install.args(["--version", VERSION, "--root"]).arg(&tools);
    install.arg("--target-dir").arg(tools.join("build"));
    run(install).map_err(|error| {
        format!("licences are not checked: cargo-deny is not available ({error})")
    })?;
    Ok(built)
}
