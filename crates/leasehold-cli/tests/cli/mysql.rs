//! A MariaDB server, through the built command.

use leasehold_testkit::mysql::Server;
use nix::sys::signal::Signal;

use crate::sql::{Place, sql_tests};
use crate::support::{Running, until};

sql_tests!(Server, "mysql");

/// How many clients have ended without a farewell, once all have ended.
fn aborted(place: &Place<Server>) -> u64 {
    let status = |name| place.runtime.block_on(place.server.status(name));
    until("alone", || status("Threads_connected") == 1);
    status("Aborted_clients")
}

#[test]
fn every_process_ends_its_session_at_the_server() {
    let place = Place::<Server>::start();
    let before = aborted(&place);
    // One that fails, because there is no schema yet.
    assert_eq!(place.code("list"), 65);
    assert_eq!(place.code("init"), 0);
    for (line, expected) in [("run k -- true", 0), ("run k -- false", 1), ("list", 0), ("purge", 0)]
    {
        assert_eq!(place.code(line), expected, "{line}");
    }
    // One that ends after its time limit, one that ends for a signal, and the one whose lock is broken.
    let holder = place.hold();
    assert_eq!(place.code("run -w 2s k -- true"), 124);
    let mut waiter = Running::start(place.command("run k --json -v -- true"));
    waiter.event("waiting");
    waiter.signal(Signal::SIGTERM);
    assert_eq!(waiter.exit_code(), 143);
    assert_eq!(place.code("break k"), 0);
    assert_eq!(holder.code(), 123);
    let mut watcher = Running::start(place.command("leader job --watch"));
    watcher.line();
    watcher.signal(Signal::SIGINT);
    assert_eq!(watcher.exit_code(), 130);
    assert_eq!(aborted(&place), before);
}
