//! A PostgreSQL server, through the built command.

use leasehold_conformance::Proxy;
use leasehold_testkit::postgres::{Server, url};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::sql::{Place, sql_tests};
use crate::support::Running;

sql_tests!(Server, "postgres");

#[test]
fn elect_again_and_leader_watch_follow_a_switch_over() {
    let old = Place::<Server>::start();
    assert_eq!(old.code("init"), 0);
    let new = old.runtime.block_on(old.server.standby()).unwrap();
    let at = |server: &Server| ([127, 0, 0, 1], server.port()).into();
    let address = old.runtime.block_on(Proxy::before(at(&old.server))).unwrap();
    let through = |line: &str| {
        let mut command = old.command(line);
        command.env("LEASEHOLD_STORE", url(address.address().port()));
        command
    };
    let mut command = through("elect job --again --ttl 2s --json -v --");
    command.args(["sh", "-c", "echo $LEASEHOLD_TOKEN; exec cat"]);
    let candidate = Running::start(command);
    let early = candidate.line();
    let mut watching = Running::start(through("leader job --watch --json"));
    let token = |change: &str| {
        let change: Value = serde_json::from_str(change).unwrap();
        change["leader"]["token"].to_string()
    };
    assert_eq!(token(&watching.line()), early);
    old.runtime.block_on(async {
        new.has_all_of(&old.server).await;
        old.server.demote().await;
    });
    let unknown = watching.event("leader_unknown");
    assert_eq!((&unknown["name"], &unknown["kind"]), (&"job".into(), &"unavailable".into()));
    candidate.event("exited");
    candidate.event("store_awaited");
    old.runtime.block_on(new.promote());
    address.lead_to(at(&new));
    let late = candidate.line();
    assert!(late > early, "{late} after {early}");
    while token(&watching.line()) != late {}
    watching.signal(Signal::SIGTERM);
    watching.exit_code();
    assert_eq!(watching.events(), [""; 0], "told once");
    assert_eq!(candidate.code(), 0);
}

#[test]
fn contention_time_outs_and_signals_leave_no_line_in_the_servers_log() {
    let place = Place::<Server>::start();
    assert_eq!(place.code("init"), 0);
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                for _ in 0..8 {
                    assert_eq!(place.code("run k -- true"), 0);
                }
            });
        }
    });
    let holder = place.hold();
    let late: Vec<_> =
        (0..6).map(|_| Running::start(place.command("run -w 2s k -- true"))).collect();
    let mut waiter = Running::start(place.command("run k --json -v -- true"));
    waiter.event("waiting");
    waiter.signal(Signal::SIGTERM);
    assert_eq!(waiter.exit_code(), 143);
    for waiter in late {
        assert_eq!(waiter.code(), 124);
    }
    assert_eq!(holder.code(), 0);
    let log = place.server.log();
    for unwanted in ["ERROR:", "unexpected EOF", "reset by peer"] {
        assert!(!log.contains(unwanted), "{log}");
    }
}
