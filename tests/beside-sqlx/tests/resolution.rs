//! Which versions of `sqlx` Cargo finds beside the SQLite store: SQLite may be linked only once per program.

use std::path::Path;
use std::process::Command;

/// Whether Cargo finds versions for a program with these features of `leasehold` and this `sqlx`. It asks the registry.
fn resolves(stores: &str, sqlx: &str) -> bool {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/leasehold");
    let program = tempfile::tempdir().unwrap();
    std::fs::create_dir(program.path().join("src")).unwrap();
    std::fs::write(program.path().join("src/lib.rs"), "").unwrap();
    let manifest = format!(
        "[workspace]\n[package]\nname = \"program\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[dependencies]\n\
         leasehold = {{ path = {crates:?}, default-features = false, features = [{stores}] }}\n\
         sqlx = {sqlx}\n"
    );
    std::fs::write(program.path().join("Cargo.toml"), manifest).unwrap();
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let resolved = Command::new(cargo)
        .args(["generate-lockfile", "--quiet"])
        .current_dir(program.path())
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&resolved.stderr);
    assert!(
        resolved.status.success() || printed.contains("links to the native library `sqlite3`"),
        "Cargo could not tell: {printed}"
    );
    resolved.status.success()
}

#[test]
fn sqlx_0_9_resolves_with_all_its_databases() {
    let all = r#"{ version = "0.9", features = ["runtime-tokio", "mysql", "postgres", "sqlite"] }"#;
    assert!(resolves(r#""mysql", "postgres", "sqlite""#, all));
}

#[test]
fn sqlx_0_8_resolves_beside_sqlite_only_without_its_default_features() {
    let (stores, features) = (r#""postgres", "sqlite""#, r#""runtime-tokio", "postgres""#);
    let with = |more: &str| format!(r#"{{ version = "0.8", features = [{features}] {more} }}"#);
    let bare = format!(
        r#"{{ version = "0.8", default-features = false, features = [{features}, "macros"] }}"#
    );
    let migrate = format!(
        r#"{{ version = "0.8", default-features = false, features = [{features}, "migrate"] }}"#
    );
    assert!(resolves(stores, &bare));
    assert!(!resolves(stores, &with("")), "the default features name sqlx's SQLite");
    assert!(!resolves(stores, &migrate), "`migrate` names sqlx's SQLite");
    // Without the SQLite store there is nothing to conflict with.
    assert!(resolves(r#""postgres""#, &with("")));
}
