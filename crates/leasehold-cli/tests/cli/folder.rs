//! The runtime folder: it lasts as long as its run, and no longer than to the next one.

use std::process::Command;

use crate::support::{Running, Store, code, group, hold, runs, shim_of, text, until};
use nix::sys::signal::{Signal, kill};

#[test]
fn the_next_run_removes_the_folder_of_a_killed_one_and_no_other() {
    let store = Store::new();
    let killed = Running::start(store.script("--json -v --on-lost ignore a", "exec sleep 60"));
    let command = group(&killed.event("started"));
    let shim = shim_of(command);
    let folder = store.folders().remove(0);
    let live = hold(&store, "b");
    assert_eq!(store.folders().len(), 2);
    killed.signal(Signal::SIGKILL);
    assert_eq!(store.code("run -n c -- true"), 0);
    assert!(folder.exists(), "its shim lives");
    kill(shim, Signal::SIGKILL).unwrap();
    until("dead", || !runs(&shim.to_string()));
    kill(command, Signal::SIGKILL).unwrap();
    // Held, so it asks the store and starts nothing.
    assert_eq!(store.code("run -n a -- true"), 1);
    assert!(!folder.exists());
    assert_eq!(store.folders().len(), 1);
    assert_eq!(live.code(), 0);
    assert!(store.folders().is_empty());
}

#[test]
fn systemd_tmpfiles_spares_the_folder_of_a_run() {
    let store = Store::new();
    let run = hold(&store, "k");
    let rules = tempfile::NamedTempFile::new().unwrap();
    std::fs::create_dir(store.file("old")).unwrap();
    // Everything is old.
    std::fs::write(&rules, format!("e {} - - - 0\n", store.file("").display())).unwrap();
    let Ok(clean) = Command::new("systemd-tmpfiles").arg("--clean").arg(rules.path()).output()
    else {
        println!("ignored: systemd-tmpfiles is not installed");
        return;
    };
    assert!(!store.file("old").exists(), "{}", text(&clean.stderr));
    let folder = store.folders().remove(0);
    assert!(folder.join("lease.json").exists() && folder.join("store").exists());
    drop(run);
}

#[test]
fn a_nested_command_is_refused_with_advice_when_the_folder_is_gone() {
    let store = Store::new();
    let script = "rm -r ${LEASEHOLD_LEASE_FILE%/*}; $LEASEHOLD run -n k -- true; echo $?
        $LEASEHOLD run -n --store-file url k -- true; echo $?";
    std::fs::write(store.file("url"), store.url()).unwrap();
    let mut command = store.script("k", script);
    let output = command.env("LEASEHOLD", env!("CARGO_BIN_EXE_leasehold")).output().unwrap();
    assert_eq!(code(&output), 0);
    assert_eq!(text(&output.stdout), "64\n1\n", "the other way finds the store of the outer one");
    let told = text(&output.stderr);
    assert!(
        told.contains("cannot be read; give --store, --store-file or LEASEHOLD_STORE"),
        "{told}"
    );
}
