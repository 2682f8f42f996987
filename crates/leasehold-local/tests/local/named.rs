//! Tables that are found by name.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use leasehold_local::locks::{LocalLocks, LocksConfig};

use crate::common::*;

#[test]
fn one_name_is_one_table_for_each_key_type() {
    let here: LocalLocks<u64> = LocalLocks::named("named::one").unwrap();
    let there: LocalLocks<u64> = LocalLocks::named("named::one").unwrap();
    let other_type: LocalLocks<u32> = LocalLocks::named("named::one").unwrap();
    let other_name: LocalLocks<u64> = LocalLocks::named("named::two").unwrap();
    let guard = here.try_acquire(7, &once()).unwrap();
    assert!(there.try_acquire(7, &once()).is_err());
    assert!(other_type.try_acquire(7, &once()).is_ok());
    assert!(other_name.try_acquire(7, &once()).is_ok());
    assert_eq!((here.name(), LocalLocks::<u64>::new().name()), (Some("named::one"), None));
    drop(guard);
}

#[test]
fn the_first_configuration_holds_and_another_is_an_error_that_names_the_difference() {
    let config = || LocksConfig::new().sweep_batch(7);
    let open = |config| LocalLocks::<u64>::named_with("named::config", config, |_| ());
    let _first = open(config()).unwrap();
    open(config()).unwrap();
    for (other, fragment) in [
        (LocksConfig::new(), "its sweep batch is 7, and 100"),
        (config().shards(2), "its number of shards is 64, and 2"),
        (config().sweep_never(), "its sweep interval is Some(300s), and None"),
        (config().ages(true), "whether it knows the ages of all locks is false, and true"),
        (config().clock(std::sync::Arc::new(leasehold_core::ManualClock::new())), "its clock"),
    ] {
        let error = open(other).unwrap_err().to_string();
        assert!(error.contains("named::config") && error.contains(fragment), "{error}");
    }
}

#[test]
fn the_last_handle_or_guard_ends_a_table() {
    let open = || LocalLocks::<u64>::named("named::last").unwrap();
    let guard = open().try_acquire(7, &once()).unwrap();
    assert!(open().try_acquire(7, &once()).is_err(), "the guard keeps the table");
    drop(guard);
    let config = LocksConfig::new().shards(2);
    LocalLocks::<u64>::named_with("named::last", config, |_| ()).unwrap();
    open();
}

#[test]
fn on_init_runs_once_for_each_table() {
    let calls = AtomicU32::new(0);
    let open = || {
        let on_init = |locks: &LocalLocks<u64>| {
            calls.fetch_add(1, Ordering::Relaxed);
            locks.try_acquire(1, &patient()).unwrap().keep();
        };
        LocalLocks::<u64>::named_with("named::init", LocksConfig::new(), on_init).unwrap()
    };
    let (first, second) = (open(), open());
    assert_eq!(calls.load(Ordering::Relaxed), 1);
    assert!(second.try_acquire(1, &once()).is_err());
    drop((first, second));
    open();
    assert_eq!(calls.load(Ordering::Relaxed), 2);
}

#[test]
fn on_init_runs_for_a_table_without_a_name_too() {
    let mut seen = Vec::new();
    let locks = LocalLocks::<u64>::new_with(LocksConfig::new(), |locks| {
        locks.try_acquire(1, &patient()).unwrap().keep();
        seen.push(locks.name().map(str::to_owned));
    })
    .unwrap();
    assert!(locks.try_acquire(1, &once()).is_err());
    assert_eq!(seen, [None]);
    let refused = LocalLocks::<u64>::new_with(LocksConfig::new().shards(3), |_| seen.push(None));
    assert!(refused.is_err());
    assert_eq!(seen.len(), 1);
}

/// A key whose end opens a table by name: at the end of a table that keeps it, when nobody can open that any more.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Reopens(bool);

static REOPENED: Mutex<Vec<LocalLocks<Reopens>>> = Mutex::new(Vec::new());

impl Drop for Reopens {
    fn drop(&mut self) {
        if self.0 && ENDS.load(Ordering::Relaxed) {
            let locks = LocalLocks::named("named::reopened").expect("it can be opened");
            REOPENED.lock().expect("nobody panics").push(locks);
        }
    }
}

static ENDS: AtomicBool = AtomicBool::new(false);

#[test]
fn a_table_that_is_opened_while_its_predecessor_ends_keeps_the_name() {
    let open = || LocalLocks::<Reopens>::named("named::reopened").unwrap();
    let first = open();
    first.try_acquire(Reopens(true), &patient()).unwrap().keep();
    ENDS.store(true, Ordering::Relaxed);
    drop(first);
    ENDS.store(false, Ordering::Relaxed);
    let successor = REOPENED.lock().unwrap().pop().expect("the key was dropped");
    assert!(successor.is_empty(), "the first table has ended");
    let guard = successor.try_acquire(Reopens(false), &patient()).unwrap();
    assert!(open().try_acquire(Reopens(false), &once()).is_err(), "it is found by its name");
    drop(guard);
}

#[test]
fn a_panic_of_on_init_leaves_no_table() {
    let panics = || {
        let on_init = |_: &LocalLocks<u64>| panic!("on purpose");
        LocalLocks::<u64>::named_with("named::panic", LocksConfig::new(), on_init)
    };
    assert!(std::panic::catch_unwind(panics).is_err());
    let config = LocksConfig::new().shards(2);
    LocalLocks::<u64>::named_with("named::panic", config, |_| ()).unwrap();
}
