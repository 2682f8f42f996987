//! `leasehold doctor`.

use std::process::Command;

use serde_json::Value;

use crate::support::{Store, code, text};

/// On a store without hazards, or with some: the exit code states which.
pub(crate) fn a_store_is_examined(name: &str, mut command: impl FnMut(&str) -> Command) -> Value {
    let output = command("doctor --json").output().unwrap();
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let hazards = found["hazards"].as_array().unwrap().len();
    assert_eq!(code(&output), if hazards == 0 { 0 } else { 2 }, "{found}");
    assert_eq!(found["store"], name);
    assert!(found["latency_us"].as_u64() > Some(0), "{found}");
    assert_eq!(found["from"], "the environment variable LEASEHOLD_STORE");
    let printed = text(&command("doctor").output().unwrap().stdout);
    assert!(printed.starts_with(&format!("store:     {name}, ")), "{printed}");
    assert_eq!(printed.matches("hazard:    ").count(), hazards, "{printed}");
    found
}

#[test]
fn on_sqlite() {
    let store = Store::new();
    assert_eq!(code(&store.output("doctor")), 64, "there is none yet, and none is made");
    assert!(!store.database().exists());
    assert_eq!(store.code("init"), 0);
    let found = a_store_is_examined("sqlite", |line| store.command(line));
    assert_eq!(found["level"], "L2 fenced");
    assert_eq!(found["hazards"], Value::Array(Vec::new()));
    assert!(found["server"].as_str().unwrap().starts_with("SQLite 3."), "{found}");
    let unreachable = store.output("doctor --store redis://user:secret@127.0.0.1:1/");
    assert_eq!(code(&unreachable), 69);
    assert!(!text(&unreachable.stderr).contains("secret"));
}
