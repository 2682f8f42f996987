//! `cargo xtask package`: checks each published crate as its package has it.

use std::fs;
use std::path::Path;

use toml::{Table, Value};

use crate::shell::{Outcome, cargo, command, root, run, section, target};

const UNPUBLISHED: [&str; 4] =
    ["xtask", "leasehold-benches", "leasehold-testkit", "leasehold-model"];

/// Packages the crates, unpacks them beside each other, and checks each with no features but those it asks for itself.
///
/// Cargo's own verification would build the dependencies of each crate anew, for four minutes.
pub(crate) fn package() -> Outcome {
    section("packages");
    let (packages, unpacked) = (target().join("package"), target().join("unpacked"));
    for folder in [&packages, &unpacked] {
        if folder.exists() {
            fs::remove_dir_all(folder)?;
        }
    }
    fs::create_dir_all(&unpacked)?;
    let mut package = cargo(&["package", "--workspace", "--allow-dirty", "--no-verify", "--quiet"]);
    for name in UNPUBLISHED {
        package.args(["--exclude", name]);
    }
    run(package)?;

    let mut crates = Vec::new();
    for entry in fs::read_dir(packages)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "crate") {
            let mut unpack = command(Path::new("tar"), &["--extract", "--gzip", "--file"]);
            unpack.arg(&path).arg("--directory").arg(&unpacked);
            run(unpack)?;
            crates.push(Crate::read(&unpacked.join(path.file_stem().unwrap_or_default()))?);
        }
    }
    crates.sort_by(|one, other| one.name.cmp(&other.name));
    fs::write(unpacked.join("Cargo.toml"), workspace(&crates)?)?;
    fs::copy(root().join("Cargo.lock"), unpacked.join("Cargo.lock"))?;
    for one in &crates {
        println!("{}", one.name);
        let mut check = cargo(&["check", "--quiet", "--package", &one.name]);
        check.arg("--manifest-path").arg(unpacked.join("Cargo.toml"));
        check.arg("--target-dir").arg(target());
        run(check)?;
    }
    Ok(())
}

/// A crate as its package has it, in a folder of the workspace below.
struct Crate {
    name: String,
    folder: String,
}

impl Crate {
    fn read(folder: &Path) -> Outcome<Self> {
        let manifest: Table = toml::from_str(&fs::read_to_string(folder.join("Cargo.toml"))?)?;
        let name = manifest["package"]["name"].as_str().ok_or("a package has no name")?.to_owned();
        let folder = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Self { name, folder })
    }
}

/// A workspace of the packages, in which each is found although it is not published, with the profiles of ours: what was built for the
/// tests is used again.
fn workspace(crates: &[Crate]) -> Outcome<String> {
    let ours: Table = toml::from_str(&fs::read_to_string(root().join("Cargo.toml"))?)?;
    let members = crates.iter().map(|one| Value::from(one.folder.clone())).collect::<Vec<_>>();
    let found = crates.iter().map(|one| {
        let path = Table::from_iter([("path".to_owned(), Value::from(one.folder.clone()))]);
        (one.name.clone(), Value::from(path))
    });
    let mut workspace = Table::new();
    workspace.insert("members".to_owned(), members.into());
    workspace.insert("resolver".to_owned(), ours["workspace"]["resolver"].clone());
    let mut patch = Table::new();
    patch.insert("crates-io".to_owned(), Value::from(found.collect::<Table>()));
    let mut manifest = Table::new();
    manifest.insert("workspace".to_owned(), workspace.into());
    manifest.insert("patch".to_owned(), patch.into());
    manifest.insert("profile".to_owned(), ours["profile"].clone());
    Ok(toml::to_string(&manifest)?)
}
