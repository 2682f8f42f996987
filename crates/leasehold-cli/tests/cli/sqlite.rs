//! The files of the default store.

use crate::support::{Running, Store, code, hold};

/// The names of the files of the store.
fn files(store: &Store) -> Vec<String> {
    let directory = store.file(".").read_dir().unwrap();
    let names = directory.map(|file| file.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.filter(|name| name.starts_with("locks.db")).collect();
    names.sort();
    names
}

#[test]
fn the_last_run_leaves_nothing_but_the_database() {
    let store = Store::new();
    for nth in 0..20 {
        assert_eq!(code(&store.command("run k -- true").output().unwrap()), 0);
        assert_eq!(files(&store), ["locks.db"], "run {nth}");
    }
    let holder = hold(&store, "k");
    let waiter = Running::start(store.command("run --json -v k -- true"));
    waiter.event("waiting");
    assert_eq!(files(&store), ["locks.db", "locks.db-shm", "locks.db-wal"]);
    assert_eq!(holder.code(), 0);
    assert_eq!(waiter.code(), 0);
    assert_eq!(files(&store), ["locks.db"], "after a wait, which reads the file too");
    for (line, expected) in
        [("list", 0), ("status k", 3), ("break k", 3), ("purge", 0), ("init", 0)]
    {
        assert_eq!(store.code(line), expected, "{line}");
        assert_eq!(files(&store), ["locks.db"], "{line}");
    }
}
