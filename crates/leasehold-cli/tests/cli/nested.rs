//! A `leasehold` inside a command that runs under a lock uses the same store.

use crate::support::{Store, code, leasehold, text};

const INNER: &str = "cd / && $LEASEHOLD run -n k -- true; echo $?; $LEASEHOLD status k --json";

#[test]
fn it_is_excluded_by_the_outer_one_whatever_its_directory() {
    let store = Store::new();
    let mut relative = leasehold("run k -- sh -c");
    relative.env("LEASEHOLD_STORE", "sqlite:here.db").current_dir(store.file(""));
    relative.arg(INNER);
    for mut command in [store.script("k", INNER), relative] {
        let output = command.env("LEASEHOLD", env!("CARGO_BIN_EXE_leasehold")).output().unwrap();
        assert_eq!(code(&output), 0, "{}", text(&output.stderr));
        let printed = text(&output.stdout);
        assert!(printed.starts_with("1\n"), "{printed}");
        assert!(printed.contains("\"held\":true"), "{printed}");
    }
}

#[test]
fn only_its_user_can_read_the_url_and_the_file_goes_with_the_run() {
    let store = Store::new();
    let script =
        "directory=$(dirname $LEASEHOLD_LEASE_FILE); stat -c %a $directory/store; echo $directory";
    let output = store.script("k", script).output().unwrap();
    let printed = text(&output.stdout);
    let (mode, directory) = printed.trim().split_once('\n').unwrap();
    assert_eq!(mode, "600");
    assert!(!std::path::Path::new(directory).exists());
}

#[test]
fn without_the_outer_store_it_is_refused_and_names_the_options() {
    let store = Store::new();
    let script = "$LEASEHOLD list; echo $?; $LEASEHOLD list --store sqlite::memory:; echo $?";
    let mut command = store.script("--store sqlite::memory: k", script);
    let output = command.env("LEASEHOLD", env!("CARGO_BIN_EXE_leasehold")).output().unwrap();
    assert_eq!(text(&output.stdout), "64\n0\n", "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("give --store, --store-file or LEASEHOLD_STORE"));
}

#[test]
fn a_store_file_that_is_a_pipe_is_read_once() {
    let store = Store::new();
    let fifo = store.fifo("url");
    let url = store.url();
    let writer = std::thread::spawn(move || std::fs::write(fifo, url + "\n").unwrap());
    let mut command = store.script("--store-file url k", "$LEASEHOLD run -n k -- true; echo $?");
    command.env_remove("LEASEHOLD_STORE").env("LEASEHOLD", env!("CARGO_BIN_EXE_leasehold"));
    let output = command.output().unwrap();
    writer.join().unwrap();
    assert_eq!(text(&output.stdout), "1\n", "{}", text(&output.stderr));
}
