//! Transactions of the cache adapter: cases T1 to T6.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

use leasehold_local::locks::{LockError, Options};

use crate::common::*;

#[test]
fn case_t1_a_single_transaction_returns_its_value() {
    let locks = Locks::new();
    let done = locks.with_locks_blocking("key", &Options::new(), |_| 7).unwrap();
    assert_eq!((done.value, done.was_stale), (7, false));
}

#[test]
fn case_t2_a_nested_transaction_with_other_keys_runs() {
    let locks = Locks::new();
    let done = locks.with_locks_blocking("a", &Options::new(), |scope| {
        let nested = scope.with_locks_blocking("b", &Options::new(), |_| held(&locks));
        nested.unwrap().value
    });
    assert_eq!(done.unwrap().value, [Some("a"), Some("b")], "and its keys are locked");
}

#[test]
fn case_t3_read_modify_write() {
    let locks = Locks::new();
    let balance = Mutex::new(0);
    std::thread::scope(|threads| {
        for _ in 0..4 {
            threads.spawn(|| {
                for _ in 0..250 {
                    let add = |_: &_| {
                        let read = *balance.lock().unwrap();
                        std::thread::yield_now();
                        *balance.lock().unwrap() = read + 1;
                    };
                    locks.with_locks_blocking("balance", &patient(), add).unwrap();
                }
            });
        }
    });
    assert_eq!(*balance.lock().unwrap(), 1_000);
}

#[test]
fn case_t4_an_exception_bubbles() {
    let locks = Locks::new();
    let reached = Cell::new(false);
    let transaction = || {
        locks.with_locks_blocking("key", &Options::new(), |_| {
            reached.set(true);
            panic!("on purpose")
        })
    };
    let panic = catch_unwind(AssertUnwindSafe(transaction)).unwrap_err();
    assert_eq!(panic.downcast_ref(), Some(&"on purpose"));
    assert!(reached.get() && locks.is_empty());
}

#[test]
fn case_t5_a_contended_transaction_is_aborted_and_says_why() {
    let locks = Locks::new();
    let _guard = locks.try_acquire("key", &patient()).unwrap();
    let options = Options::new().retries(1).interval(MS);
    let ran = Cell::new(false);
    let error = locks.with_locks_blocking("key", &options, |_| ran.set(true)).unwrap_err();
    assert!(matches!(error, LockError::TimedOut { attempts: 2, .. }) && !ran.get());
    assert!(error.to_string().contains("2 attempts"), "{error}");
}

#[test]
fn case_t6_in_transaction_is_true_only_inside() {
    let locks = Locks::new();
    assert!(!locks.in_scope());
    assert!(locks.with_locks_blocking("key", &once(), |_| locks.in_scope()).unwrap().value);
    assert!(!locks.in_scope());
}
