//! The PHP library's table in a SQLite file, through the built command.

use rusqlite::Connection;

use crate::support::{Running, Store, code, text};

#[test]
fn run_elect_and_break_work_after_init_beside_php() {
    let store = Store::with_options("?format=legacy");
    let early = store.output("run -n k -- true");
    assert_eq!(code(&early), 65);
    assert!(text(&early.stderr).contains("`leasehold init`"), "{}", text(&early.stderr));
    let init = store.output("init");
    assert_eq!(code(&init), 0, "{}", text(&init.stderr));
    assert!(text(&init.stdout).contains("the store sqlite is ready: L0"));

    let php = Connection::open(store.database()).unwrap();
    php.execute_batch(
        "INSERT INTO distributed_locks VALUES ('theirs', 'php', datetime('now', '+60 seconds'), datetime('now'))",
    )
    .unwrap();
    let run = |key: &str| code(&store.output(&format!("run -n {key} -- true")));
    assert_eq!(run("theirs"), 1);
    assert_eq!(run("ours"), 0);
    assert!(text(&store.output("status theirs").stdout).contains("php"));
    assert_eq!(code(&store.output("break theirs")), 0);
    assert_eq!(run("theirs"), 0);

    let mut command = store.command("elect job --");
    command.args(["sh", "-c", "echo leading; cat"]);
    let leader = Running::start(command);
    assert_eq!(leader.line(), "leading");
    assert_eq!(code(&store.output("leader job")), 0);
}
