//! The public API of the crates that programs and stores depend on, as text in `docs/api/`.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use public_api::Builder;
use serde::Deserialize;

use crate::shell::{Outcome, cargo, root, run, section, target};

/// The format of rustdoc's JSON that `public_api` reads. It is unstable: another toolchain may write another.
const FORMAT: u64 = 57;

/// The crates whose API is frozen with a release.
const CRATES: &[&str] = &["leasehold", "leasehold-core"];

/// Writes the text.
pub(crate) fn write() -> Outcome {
    std::fs::create_dir_all(root().join("docs/api"))?;
    for (name, api) in current()?? {
        std::fs::write(page(name), api)?;
        println!("written: {}", page(name).display());
    }
    Ok(())
}

/// Compares the text with the code, if this toolchain's rustdoc is known.
pub(crate) fn check() -> Outcome {
    section("public API");
    let mut changes = Vec::new();
    let current = match current()? {
        Ok(current) => current,
        Err(other) => {
            println!("not compared: {other}");
            return Ok(());
        }
    };
    for (name, api) in current {
        let committed = std::fs::read_to_string(page(name)).unwrap_or_default();
        changes.extend(changed(&committed, &api));
    }
    if changes.is_empty() {
        return Ok(());
    }
    println!("{}", changes.join("\n"));
    let error = "docs/api/ shows another public API. If the change is meant, run `cargo xtask api` and commit the text; a \
                 change that breaks a user needs a line in CHANGELOG.md";
    Err(error.into())
}

/// The lines that were removed and added.
fn changed(before: &str, after: &str) -> Vec<String> {
    let only = |sign: char, lines: &str, others: &str| -> Vec<String> {
        let others: Vec<_> = others.lines().collect();
        let only = lines.lines().filter(|line| !others.contains(line));
        only.map(|line| format!("{sign} {line}")).collect()
    };
    [only('-', before, after), only('+', after, before)].concat()
}

fn page(name: &str) -> PathBuf {
    root().join(format!("docs/api/{name}.txt"))
}

/// The public API of each crate, with all features; or that rustdoc's format is another one.
fn current() -> Outcome<Result<Vec<(&'static str, String)>, String>> {
    // Only rustdoc gets the variable: build scripts react to it, and cargo would build the dependencies again.
    let folder = target().join("api");
    std::fs::create_dir_all(&folder)?;
    let rustdoc = folder.join("rustdoc");
    std::fs::write(&rustdoc, "#!/bin/sh\nRUSTC_BOOTSTRAP=1 exec rustdoc \"$@\"\n")?;
    std::fs::set_permissions(&rustdoc, Permissions::from_mode(0o755))?;
    // The whole workspace, so that the dependencies are those that the other checks have built.
    let mut json = cargo(&["doc", "--workspace", "--lib", "--no-deps", "--all-features"]);
    json.env("RUSTDOC", &rustdoc);
    json.env("RUSTDOCFLAGS", "-Z unstable-options --output-format json --cap-lints allow");
    run(json)?;
    let mut all = Vec::new();
    for name in CRATES {
        let file = target().join("doc").join(name.replace('-', "_")).with_extension("json");
        let json = std::fs::read_to_string(&file)?;
        let format = serde_json::from_str::<Format>(&json)?.format_version;
        if format != FORMAT {
            return Ok(Err(format!("rustdoc writes format {format}; xtask reads {FORMAT}")));
        }
        // Blanket implementations follow from the types.
        let api = Builder::from_rustdoc_json(file).omit_blanket_impls(true).build()?;
        all.push((*name, stable(&api.to_string())));
    }
    Ok(Ok(all))
}

/// Without the unstable traits, which are those of a toolchain.
fn stable(api: &str) -> String {
    let is_unstable = |line: &&str| {
        ["Freeze", "UnsafeUnpin"]
            .iter()
            .any(|name| line.contains(&format!("core::marker::{name} ")))
    };
    api.lines().filter(|line| !is_unstable(line)).map(|line| format!("{line}\n")).collect()
}

#[derive(Deserialize)]
struct Format {
    format_version: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unstable_traits_are_left_out() {
        let api = "impl core::marker::Freeze for a::B\nimpl core::marker::Send for a::B\n";
        assert_eq!(stable(api), "impl core::marker::Send for a::B\n");
    }

    #[test]
    fn changes_are_the_lines_of_one_side_only() {
        assert_eq!(changed("a\nb\n", "a\nb\n"), Vec::<String>::new());
        assert_eq!(changed("a\nb\n", "b\nc\n"), ["- a", "+ c"]);
    }
}
