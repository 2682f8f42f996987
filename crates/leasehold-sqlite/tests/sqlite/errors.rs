//! Every mistake with a file, made for real: its kind and its message, and that nothing was harmed.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::common::{SECOND, Workplace, acquire, count, grant};
use leasehold_core::ErrorKind::{Corrupt, Incompatible, InvalidInput};
use leasehold_core::{Effect, Error, ErrorKind, Store};
use leasehold_sqlite::SqliteStore;
use leasehold_testkit::requests::{is_unreadable, purge_leaves};

#[track_caller]
fn assert_error(error: &Error, kind: ErrorKind, fragment: &[&str]) {
    assert_eq!((error.kind(), error.effect()), (kind, Effect::NotApplied), "{error}");
    let text = error.to_string();
    for part in fragment {
        assert!(text.contains(part), "{part:?} is missing in: {text}");
    }
}

async fn open_error(path: impl AsRef<Path>) -> Error {
    let error = SqliteStore::open(path.as_ref()).await.unwrap_err();
    assert_eq!((error.store(), error.operation()), (Some("sqlite"), Some("connect")));
    error
}

#[tokio::test]
async fn paths_that_are_not_files() {
    let place = Workplace::new();
    let directory = place.directory.path();
    fs::create_dir(directory.join("d")).unwrap();
    assert_error(&open_error(directory.join("d")).await, InvalidInput, &["is a directory"]);
    assert_error(&open_error("").await, InvalidInput, &["empty"]);
    assert_error(&open_error(":memory:").await, InvalidInput, &["in_memory()"]);
    let missing = open_error(directory.join("no/locks.db")).await;
    assert_error(&missing, InvalidInput, &["/no", "exist"]);
    fs::write(directory.join("f"), "").unwrap();
    assert_error(
        &open_error(directory.join("f/locks.db")).await,
        InvalidInput,
        &["not a directory"],
    );
    let pipe = directory.join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    assert_error(&open_error(&pipe).await, InvalidInput, &["not a regular file"]);
    let long = open_error(directory.join("l".repeat(300))).await;
    assert_error(&long, InvalidInput, &["could not"]);
}

#[tokio::test]
async fn a_link_is_refused_and_one_to_the_directory_is_followed() {
    let place = Workplace::new();
    let link = place.directory.path().join("link.db");
    symlink(&place.path, &link).unwrap();
    assert_error(&open_error(&link).await, InvalidInput, &["symbolic link"]);
    assert!(!place.path.exists(), "the link was not followed");
    let directory = place.directory.path().join("link");
    symlink(place.directory.path(), &directory).unwrap();
    let store = SqliteStore::open(directory.join("locks.db")).await.unwrap();
    grant(&store, "a", "k").await;
    assert!(place.path.exists());
}

#[tokio::test]
async fn a_directory_where_anybody_replaces_files() {
    let place = Workplace::new();
    for (mode, allowed) in [(0o777, false), (0o1777, true), (0o700, true)] {
        fs::set_permissions(place.directory.path(), Permissions::from_mode(mode)).unwrap();
        match SqliteStore::open(&place.path).await {
            Ok(_) => assert!(allowed, "{mode:o}"),
            Err(e) => {
                assert!(!allowed, "{mode:o}");
                assert_error(&e, Incompatible, &["0777", "chmod"]);
                assert!(!place.path.exists());
            }
        }
    }
}

#[tokio::test]
async fn an_unknown_file_system() {
    // The number of procfs in <linux/magic.h>.
    assert_error(&open_error("/proc/locks.db").await, Incompatible, &["0x9fa0", "ext4", "tmpfs"]);
}

#[tokio::test]
async fn a_file_that_is_not_a_database() {
    let place = Workplace::new();
    for content in ["hello".to_owned(), "x".repeat(8_192)] {
        fs::write(&place.path, &content).unwrap();
        assert_error(&open_error(&place.path).await, Corrupt, &["not a SQLite database"]);
        assert_eq!(fs::read_to_string(&place.path).unwrap(), content);
    }
    fs::write(&place.path, "").unwrap();
    SqliteStore::open(&place.path).await.unwrap();
}

#[tokio::test]
async fn another_programs_database_is_left_unchanged() {
    for statements in [
        "CREATE TABLE theirs (a)",
        "PRAGMA application_id = 7",
        "PRAGMA user_version = 3",
        "CREATE TABLE leasehold_mark (one TEXT)",
    ] {
        let place = Workplace::new();
        place.raw().execute_batch(statements).unwrap();
        let before = fs::read(&place.path).unwrap();
        assert_error(&open_error(&place.path).await, Incompatible, &["another program's"]);
        assert_eq!(fs::read(&place.path).unwrap(), before, "{statements}");
        assert!(!place.beside("-wal").exists(), "{statements}");
    }
}

#[tokio::test]
async fn a_newer_schema_names_both_versions() {
    let place = Workplace::new();
    place.open().await.close_database().await;
    place.change("PRAGMA user_version = 3");
    assert_error(&open_error(&place.path).await, Incompatible, &["version 3", "versions up to 2"]);
    place.change("PRAGMA user_version = 0");
    assert_error(&open_error(&place.path).await, Corrupt, &["user_version"]);
}

#[tokio::test]
async fn a_dropped_table_is_not_created_again() {
    for table in ["boots", "mark", "holders"] {
        let place = Workplace::new();
        let store = place.open().await;
        grant(&store, "a", "k").await;
        place.change(&format!("DROP TABLE leasehold_{table}"));
        let fragment = ["schema version 2", "dropped", "restore it"];
        assert_error(&acquire(&store, "b", "k").await.unwrap_err(), Corrupt, &fragment);
        assert_error(&store.prepare().await.unwrap_err(), Corrupt, &fragment);
        assert_error(&open_error(&place.path).await, Corrupt, &fragment);
    }
}

#[tokio::test]
async fn a_damaged_file() {
    let place = Workplace::new();
    let store = place.open().await;
    grant(&store, "a", "k").await;
    store.close_database().await;
    let raw = place.raw();
    let number = |text| -> usize {
        raw.query_row(text, [], |row| row.get::<_, u32>(0)).unwrap().try_into().unwrap()
    };
    let size = number("PRAGMA page_size");
    assert_eq!(size, 2_048);
    let page = number("SELECT rootpage FROM sqlite_schema WHERE name = 'leasehold_holders'");
    drop(raw);
    let mut bytes = fs::read(&place.path).unwrap();
    bytes[(page - 1) * size..page * size].fill(0xff);
    fs::write(&place.path, bytes).unwrap();
    let store = place.open().await;
    let error = acquire(&store, "b", "k").await.unwrap_err();
    assert_error(&error, Corrupt, &["is damaged", "restore it"]);
    assert_eq!(error.operation(), Some("acquire"));
}

#[tokio::test]
async fn values_that_leasehold_cannot_have_written() {
    for (change, fragment) in [
        ("UPDATE leasehold_holders SET token = 0", "token"),
        ("UPDATE leasehold_holders SET token = 9007199254740992", "token"),
        ("UPDATE leasehold_holders SET token = -1", "token"),
        ("UPDATE leasehold_holders SET state = 'gone'", "state"),
        ("UPDATE leasehold_holders SET mode = 'upgrade'", "mode"),
        ("UPDATE leasehold_holders SET expires = -5", "expires"),
        ("UPDATE leasehold_holders SET granted_at = -5", "granted_at"),
        ("UPDATE leasehold_holders SET renewed_at = -5", "renewed_at"),
        ("UPDATE leasehold_holders SET id = x''", "id"),
        ("UPDATE leasehold_holders SET group_name = ''", "group_name"),
        ("UPDATE leasehold_holders SET comment = char(10)", "comment"),
        ("UPDATE leasehold_holders SET pid = -1", "Leasehold cannot have written"),
    ] {
        let place = Workplace::new();
        let store = place.open().await;
        grant(&store, "a", "k").await;
        place.change(&format!("PRAGMA ignore_check_constraints = ON; {change}"));
        let error = acquire(&store, "b", "k").await.unwrap_err();
        assert_error(&error, Corrupt, &[fragment, "remove that row"]);
        grant(&store, "b", "another key").await;
        is_unreadable(&store, "k").await;
        place.clock.advance(60 * SECOND);
        grant(&store, "b", "live").await;
        purge_leaves(&store, &["k"]).await;
        assert_eq!(
            count(&place.raw(), "leasehold_holders WHERE key <> 'k'"),
            1,
            "others are purged"
        );
    }
}

#[tokio::test]
async fn a_mark_below_a_token() {
    for change in [
        "UPDATE leasehold_mark SET mark = 0",
        "UPDATE leasehold_mark SET mark = -1",
        "DELETE FROM leasehold_mark",
    ] {
        let place = Workplace::new();
        let store = place.open().await;
        grant(&store, "a", "k").await;
        place.change(&format!("PRAGMA ignore_check_constraints = ON; {change}"));
        let error = acquire(&store, "b", "k").await.unwrap_err();
        assert_error(&error, Corrupt, &["the mark of all tokens", "restore it"]);
    }
}

#[tokio::test]
async fn missing_epochs() {
    let place = Workplace::new();
    let store = place.open().await;
    place.change("DELETE FROM leasehold_boots");
    let error = acquire(&store, "a", "k").await.unwrap_err();
    assert_error(&error, Incompatible, &["epoch none", "open the store again"]);
    grant(&place.open().await, "a", "k").await;
}

#[tokio::test]
async fn wrong_options() {
    let place = Workplace::new();
    for (config, fragment) in [
        (place.config().prefix("a-b"), "prefix"),
        (place.config().prefix("sqlite_x"), "prefix"),
        (place.config().timeout(Duration::ZERO), "timeout"),
    ] {
        assert_error(&config.connect().await.unwrap_err(), InvalidInput, &[fragment]);
    }
    assert!(!place.path.exists());
    let error = SqliteStore::connect("sqlite:x.db?cache=shared").await.unwrap_err();
    assert_error(&error, InvalidInput, &["\"cache\"", "timeout, prefix, mode"]);
    assert_eq!(error.store(), Some("sqlite"));
}

#[tokio::test]
async fn triggers_views_and_functions_in_the_file_never_run() {
    let place = Workplace::new();
    let store = place.open().await;
    place.change(
        "CREATE TRIGGER evil AFTER INSERT ON leasehold_holders BEGIN DELETE FROM leasehold_holders; END",
    );
    grant(&store, "a", "k").await;
    assert_eq!(count(&place.raw(), "leasehold_holders"), 1, "the trigger did not fire");
}
