//! Servers that tests start, pause and kill.

use leasehold_conformance::{Process, unprivileged};
use leasehold_testkit::until;

#[test]
fn a_server_ends_when_its_value_is_dropped() {
    let directory = tempfile::tempdir().unwrap();
    let process = Process::start("sleep", ["1000"], directory.path()).unwrap();
    let pid = process.pid();
    let lives = || nix::sys::signal::kill(pid, None).is_ok();
    assert!(lives());
    process.pause().unwrap();
    process.resume().unwrap();
    process.kill();
    assert!(!lives());
}

/// The fields of `/proc/PID/stat` after the program's name, from the state on.
fn stat(pid: i32) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(stat.rsplit_once(") ")?.1.to_owned())
}

#[tokio::test]
async fn a_server_of_many_processes_is_paused_and_killed_with_all_of_them() {
    let directory = tempfile::tempdir().unwrap();
    // One leaves the session, as a server's own children may.
    let script = "sleep 1000 & echo $!; setsid sh -c 'echo $$; sleep 1000; true' & wait";
    let process = Process::start("sh", ["-c", script], directory.path()).unwrap();
    let log = directory.path().join("server.log");
    let told = || std::fs::read_to_string(&log).unwrap_or_default();
    until(async || told().matches('\n').count() == 2).await;
    let pids: Vec<i32> = told().lines().map(|line| line.parse().unwrap()).collect();
    let all_are = |states: &str| {
        pids.iter().all(|pid| stat(*pid).is_some_and(|stat| states.contains(&stat[..1])))
    };
    process.pause().unwrap();
    assert!(all_are("T"), "{:?}", pids.iter().map(|pid| stat(*pid)).collect::<Vec<_>>());
    process.resume().unwrap();
    until(async || all_are("SR")).await;
    process.kill();
    // The process that adopts orphans may take its time to reap them.
    let is_dead = |pid: &i32| stat(*pid).is_none_or(|stat| stat.starts_with(['Z', 'X']));
    until(async || pids.iter().all(is_dead)).await;
}

#[tokio::test]
async fn a_server_that_refuses_root_runs_as_another_user() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = unprivileged(directory.path()).unwrap();
    command.extend(["sh", "-c", "id -u > who && echo done >> who"].map(str::to_owned));
    let _process = Process::start(&command[0], &command[1..], directory.path()).unwrap();
    let who = || std::fs::read_to_string(directory.path().join("who")).unwrap_or_default();
    until(async || who().ends_with("done\n")).await;
    assert_ne!(who().lines().next(), Some("0"));
}

#[tokio::test]
async fn the_processor_time_of_a_server_counts_its_descendants() {
    let directory = tempfile::tempdir().unwrap();
    let process =
        Process::start("sh", ["-c", "sh -c 'while :; do :; done' & wait"], directory.path())
            .unwrap();
    let long = std::time::Duration::from_millis(50);
    until(async || process.processor_time().unwrap() > long).await;
}
