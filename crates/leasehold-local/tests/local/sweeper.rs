//! The thread that sweeps: one for all tables of a process, anew after a fork, ended with the last table.
#![cfg(target_os = "linux")]

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Clock, ManualClock};
use leasehold_driver::SystemClock;
use leasehold_local::locks::{LocalLocks, LocksConfig, Options, OwnerHandle};

use crate::common::*;

/// Set for a process that a test runs in alone.
const ALONE: &str = "LEASEHOLD_TEST_ALONE";

/// What a test prints that runs in a process of its own; nothing if this is that process.
fn alone(name: &str) -> Option<String> {
    if std::env::var_os(ALONE).is_some() {
        // A process that hangs must not stay behind.
        nix::unistd::alarm::set(60);
        return None;
    }
    let mut alone = Command::new(std::env::current_exe().expect("there is one"));
    let printed =
        alone.args(["--exact", name, "--nocapture"]).env(ALONE, "1").output().expect("it starts");
    Some(String::from_utf8_lossy(&printed.stdout).into_owned())
}

/// How many threads of this process are called so.
fn threads(name: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("there is one").flatten();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|one| one.trim_end() == name).count()
}

fn await_threads(name: &str, number: usize) {
    let until = SystemClock::new().now() + 30 * SECOND;
    while threads(name) != number {
        assert!(SystemClock::new().now() < until, "{} threads {name}", threads(name));
        std::thread::yield_now();
    }
}

fn stale_at_once() -> Options {
    Options::new().lock_timeout(Duration::from_nanos(1))
}

/// A table that is swept every minute by a clock that the test moves.
fn table() -> (Locks, ManualClock) {
    let clock = ManualClock::new();
    let config = LocksConfig::new().clock(Arc::new(clock.clone())).sweep_every(60 * SECOND);
    (LocalLocks::with_config(config).expect("it is in range"), clock)
}

/// Waits for a sweep, for which the clock moves.
fn await_sweep(locks: &Locks, clock: &ManualClock) {
    let before = locks.swept().sweeps;
    advance_to_next(clock);
    while locks.swept().sweeps == before {
        std::thread::yield_now();
    }
}

#[test]
fn one_thread_sweeps_all_tables_and_ends_with_the_last() {
    let Some(printed) = alone("sweeper::one_thread_sweeps_all_tables_and_ends_with_the_last")
    else {
        let first = Locks::new();
        drop(first.try_acquire("a", &patient()).unwrap());
        let never: Locks = LocalLocks::with_config(LocksConfig::new().sweep_never()).unwrap();
        drop(never.try_acquire("a", &Options::new()).unwrap());
        assert_eq!(threads("leasehold-sweep"), 0, "nothing is there to sweep");
        let second = LocalLocks::<u64>::new();
        drop(first.try_acquire("a", &Options::new()).unwrap());
        drop(second.try_acquire(1, &Options::new()).unwrap());
        await_threads("leasehold-sweep", 1);
        drop(first);
        await_threads("leasehold-sweep", 1);
        drop(second);
        await_threads("leasehold-sweep", 0);
        let third = Locks::new();
        let worker = OwnerHandle::new();
        third.try_acquire("a", &patient().owner(&worker)).unwrap().keep();
        await_threads("leasehold-sweep", 1);
        println!("one thread, and none at the end");
        return;
    };
    assert!(printed.contains("one thread, and none at the end"), "{printed}");
}

#[test]
fn the_watch_of_processes_ends_with_the_last() {
    let Some(printed) = alone("sweeper::the_watch_of_processes_ends_with_the_last") else {
        let mut children =
            [(); 3].map(|()| Command::new("sleep").arg("600").spawn().expect("it is there"));
        let owners = children.each_ref().map(|child| OwnerHandle::of_process(child.id()).unwrap());
        await_threads("leasehold-owner", 1);
        for child in &mut children {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        await_threads("leasehold-owner", 0);
        assert!(owners.iter().all(|owner| !owner.is_alive()));
        println!("nobody watches any more");
        return;
    };
    assert!(printed.contains("nobody watches any more"), "{printed}");
}

#[test]
fn a_forked_process_has_a_sweeper_of_its_own() {
    let Some(printed) = alone("sweeper::a_forked_process_has_a_sweeper_of_its_own") else {
        let tables = [table(), table()];
        for (locks, clock) in &tables {
            locks.try_acquire("a", &stale_at_once()).unwrap().keep();
            await_sweep(locks, clock);
            // Then the thread sleeps, and has locked nothing.
            while clock.next_wake().is_none() {
                std::thread::yield_now();
            }
        }
        // A fork does not copy the thread that sweeps.
        nix::unistd::daemon(true, true).unwrap();
        nix::unistd::alarm::set(60);
        assert_eq!(threads("leasehold-sweep"), 0);
        let [(kept, kept_clock), (late, late_clock)] = &tables;
        kept.try_acquire("a", &stale_at_once()).unwrap().keep();
        await_sweep(kept, kept_clock);
        println!("a lock that is kept is swept: {}", kept.swept().removed);
        // A lock that is not kept finds a sweeper at the latest when a sweep is due.
        late_clock.advance(120 * SECOND);
        std::mem::forget(late.try_acquire("a", &stale_at_once()).unwrap());
        late_clock.advance(SECOND);
        await_sweep(late, late_clock);
        println!("a lock that is lost is swept: {}", late.swept().removed);
        println!("threads: {}", threads("leasehold-sweep"));
        // The harness' threads are the parent's.
        std::process::exit(0);
    };
    assert!(printed.contains("a lock that is kept is swept: 2"), "{printed}");
    assert!(printed.contains("a lock that is lost is swept: 2"), "{printed}");
    assert!(printed.contains("threads: 1"), "{printed}");
}

#[test]
fn the_thread_ends_after_a_wait_without_a_runtime() {
    let Some(printed) = alone("sweeper::the_thread_ends_after_a_wait_without_a_runtime") else {
        let locks = Locks::new();
        let _guard = locks.try_acquire("a", &patient()).unwrap();
        let task = waits(&locks, "a", patient().deadline(20 * MS));
        await_threads("leasehold-sweep", 1);
        while task.wakes() == 0 {
            std::thread::yield_now();
        }
        task.done().unwrap_err();
        await_threads("leasehold-sweep", 0);
        println!("no thread any more");
        return;
    };
    assert!(printed.contains("no thread any more"), "{printed}");
}

#[test]
fn a_forked_process_has_names_of_its_own() {
    let Some(printed) = alone("sweeper::a_forked_process_has_names_of_its_own") else {
        let (entered, enters) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let on_init = |_: &Locks| {
                entered.send(()).unwrap();
                std::thread::park();
            };
            Locks::named_with("slow", LocksConfig::new(), on_init)
        });
        enters.recv().unwrap();
        // A fork copies the registry of names as it is: locked.
        nix::unistd::daemon(true, true).unwrap();
        nix::unistd::alarm::set(60);
        println!("the name of the child: {:?}", Locks::named("slow").unwrap().name());
        std::process::exit(0);
    };
    assert!(printed.contains("the name of the child: Some(\"slow\")"), "{printed}");
}
