//! `with_locks`, scopes inside scopes, `in_scope`.
#![expect(clippy::disallowed_methods, reason = "tasks that are not in the scope")]

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Poll;

use leasehold_local::locks::{Keys, LockError, Options, Scope};

use crate::common::*;

#[tokio::test]
async fn a_scope_ends_with_its_closure_whether_it_returns_fails_or_panics() {
    let locks = Locks::new();
    let done = locks.with_locks_blocking(["a", "b"], &once(), |_| held(&locks).len()).unwrap();
    assert_eq!((done.value, done.was_stale), (2, false));
    let failed = locks.with_locks_blocking("a", &once(), |_| Err::<(), _>("no")).unwrap();
    assert_eq!(failed.value, Err("no"));
    let panics = || locks.with_locks_blocking("a", &once(), |_| panic!("on purpose"));
    assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
    assert!(locks.is_empty() && !locks.in_scope());
    let done = locks.with_locks(["a", "b"], &once(), async |_| held(&locks).len()).await.unwrap();
    assert_eq!((done.value, done.was_stale), (2, false));
    let panics = tokio::task::LocalSet::new();
    let inner = locks.clone();
    let task = panics.spawn_local(async move {
        let ended = inner.with_locks("a", &once(), async |_| panic!("on purpose")).await;
        drop(ended);
    });
    assert!(panics.run_until(task).await.unwrap_err().is_panic());
    assert!(locks.is_empty() && !locks.in_scope());
}

#[test]
fn a_scope_that_is_dropped_half_way_releases_its_locks() {
    let (locks, _clock) = manual();
    let inner = locks.clone();
    let task = Task::pending(async move {
        let pending = async |scope: Scope<Name>| {
            scope.lock("b", &once()).await.unwrap();
            std::future::pending::<()>().await;
        };
        inner.with_locks("a", &once(), pending).await.map(drop)
    });
    assert_eq!(held(&locks), [Some("a"), Some("b")]);
    assert!(!locks.in_scope(), "only while it is polled");
    drop(task);
    assert!(locks.is_empty());
}

#[test]
fn a_scope_says_whether_a_lock_had_gone_stale() {
    let (locks, clock) = manual();
    let short = Options::new().lock_timeout(SECOND);
    let overran = locks.with_locks_blocking("a", &short, |_| clock.advance(SECOND)).unwrap();
    assert!(overran.was_stale);
    let forced = locks.with_locks_blocking("a", &short, |_| locks.force_release("a")).unwrap();
    assert!(forced.was_stale);
    let nested = locks.with_locks_blocking("a", &patient(), |scope| {
        scope.lock_blocking("b", &short).unwrap();
        clock.advance(SECOND);
    });
    assert!(nested.unwrap().was_stale);
    assert!(locks.is_empty());
}

#[test]
fn in_scope_is_true_inside_and_only_there() {
    let (locks, other) = (Locks::new(), Locks::new());
    assert!(!locks.in_scope());
    let inside = locks.with_locks_blocking("a", &once(), |_| {
        let elsewhere =
            std::thread::scope(|threads| threads.spawn(|| locks.in_scope()).join().unwrap());
        (locks.in_scope(), other.in_scope(), elsewhere)
    });
    assert_eq!(inside.unwrap().value, (true, false, false));
    let guard = locks.try_acquire("a", &once()).unwrap();
    assert!(!locks.in_scope(), "a guard makes no scope");
    drop(guard);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scope_follows_its_future_through_await_and_not_into_other_tasks() {
    let locks = Locks::new();
    let inner = locks.clone();
    let task = tokio::spawn(async move {
        let body = async |_| {
            for _ in 0..50 {
                assert!(inner.in_scope());
                tokio::task::yield_now().await;
            }
            let spawned = inner.clone();
            tokio::spawn(async move { spawned.in_scope() }).await.unwrap()
        };
        inner.with_locks("a", &once(), body).await.unwrap().value
    });
    for _ in 0..50 {
        assert!(!locks.in_scope());
        tokio::task::yield_now().await;
    }
    assert!(!task.await.unwrap());
    assert!(locks.is_empty());
}

#[test]
fn further_keys_follow_the_key_order_or_are_refused() {
    let (locks, _clock) = manual();
    let done = locks.with_locks_blocking("b", &once(), |scope| {
        assert_eq!(scope.lock_blocking("a", &once()), Err(LockError::OutOfOrder));
        assert_eq!(scope.lock_blocking(["a", "c"], &once()), Err(LockError::OutOfOrder));
        scope.lock_blocking(["b", "d"], &once()).unwrap();
        assert_eq!(scope.lock_blocking("c", &once()), Err(LockError::OutOfOrder));
        scope.lock_blocking(["b", "d"], &once()).unwrap();
        held(&locks)
    });
    assert_eq!(done.unwrap().value, [Some("b"), Some("d")]);
    assert!(locks.is_empty());
}

#[test]
fn a_scope_inside_a_scope_ends_its_own_locks() {
    let (locks, _clock) = manual();
    locks
        .with_locks_blocking("a", &once(), |outer| {
            outer
                .with_locks_blocking(["a", "b"], &once(), |inner| {
                    inner.lock_blocking("c", &once()).unwrap();
                    assert_eq!(outer.lock_blocking("b", &once()), Ok(()), "the nest holds it");
                    assert_eq!(held(&locks).len(), 3);
                })
                .unwrap();
            assert_eq!(held(&locks), [Some("a")]);
            outer.lock_blocking("b", &once()).unwrap();
        })
        .unwrap();
    assert!(locks.is_empty());
}

#[test]
fn a_shared_key_is_not_made_exclusive() {
    let (locks, _clock) = manual();
    let done = locks.with_locks_blocking(Keys::shared("a"), &once(), |scope| {
        scope.lock_blocking(Keys::shared("a"), &once()).unwrap();
        scope.lock_blocking("a", &once()).unwrap_err()
    });
    assert!(matches!(done.unwrap().value, LockError::Invalid(_)));
}

#[test]
fn what_a_scope_holds_is_refused_at_once_outside_its_handle() {
    let (locks, _clock) = manual();
    locks
        .with_locks_blocking("a", &once(), |_| {
            let refused = LockError::HeldByThisScope;
            assert_eq!(locks.acquire_blocking("a", &once()).unwrap_err(), refused);
            assert_eq!(locks.acquire_blocking("a", &patient()).unwrap_err(), refused);
            assert_eq!(locks.acquire_blocking(["a", "b"], &patient()).unwrap_err(), refused);
            assert_eq!(locks.acquire_all_blocking(&patient()).unwrap_err(), refused);
            assert_eq!(locks.with_all_blocking(&patient(), |_| ()).unwrap_err(), refused);
            drop(locks.acquire_blocking("b", &patient()).unwrap());
        })
        .unwrap();
    locks
        .with_all_blocking(&once(), |scope| {
            assert!(locks.in_scope());
            let refused = locks.acquire_blocking("a", &patient()).unwrap_err();
            assert_eq!(refused, LockError::HeldByThisScope);
            scope.lock_blocking("a", &patient()).unwrap();
        })
        .unwrap();
    locks
        .with_locks_blocking(Keys::shared("a"), &once(), |_| {
            drop(locks.acquire_blocking(Keys::shared("a"), &patient()).unwrap());
        })
        .unwrap();
    assert!(locks.is_empty());
}

#[test]
fn a_nested_request_overtakes_who_waits_for_a_key_of_the_scope() {
    let (locks, _clock) = manual();
    let c = locks.try_acquire("c", &once()).unwrap();
    let inner = locks.clone();
    let (waiter, task) = {
        let body = |scope: Scope<Name>| async move {
            std::future::poll_fn({
                let mut polled = false;
                move |_| match std::mem::replace(&mut polled, true) {
                    false => Poll::Pending,
                    true => Poll::Ready(()),
                }
            })
            .await;
            scope.lock("c", &patient()).await.unwrap();
        };
        let mut task =
            Task::pending(async move { inner.with_locks("b", &patient(), body).await.map(drop) });
        let waiter = waits(&locks, ["b", "c"], patient());
        assert!(task.poll().is_pending());
        (waiter, task)
    };
    drop(c);
    assert_eq!(waiter.wakes(), 0);
    task.done().unwrap();
    drop(waiter.done().unwrap());
    assert!(locks.is_empty());
}

#[test]
fn one_request_of_a_scope_waits_at_a_time() {
    let (locks, _clock) = manual();
    let c = locks.try_acquire("c", &once()).unwrap();
    let inner = locks.clone();
    let task = Task::pending(async move {
        let body = |scope: Scope<Name>| async move {
            let options = patient();
            let mut waits = std::pin::pin!(scope.lock("c", &options));
            let first = std::future::poll_fn(|context| Poll::Ready(waits.as_mut().poll(context)));
            assert!(first.await.is_pending());
            assert_eq!(scope.lock("d", &once()).await, Err(LockError::OutOfOrder));
            waits.await.unwrap();
            scope.lock("d", &once()).await.unwrap();
        };
        inner.with_locks("a", &once(), body).await.map(drop)
    });
    drop(c);
    task.done().unwrap();
    assert!(locks.is_empty());
}

#[tokio::test]
async fn the_innermost_scope_is_found_without_its_handle() {
    let (locks, other) = (Locks::new(), Locks::new());
    assert!(locks.scope().is_none());
    let locked = |locks: &Locks, key| locks.scope().map(|scope| scope.lock_blocking(key, &once()));
    let done = locks.with_locks_blocking("a", &once(), |outer| {
        assert!(other.scope().is_none());
        let inner = outer.with_locks_blocking("b", &once(), |_| {
            other.with_locks_blocking("z", &once(), |_| locked(&locks, "c")).unwrap().value
        });
        assert_eq!(inner.unwrap().value, Some(Ok(())));
        assert_eq!(held(&locks), [Some("a")], "it was the inner scope's");
        assert_eq!(locked(&locks, "c"), Some(Ok(())));
        held(&locks)
    });
    assert_eq!(done.unwrap().value, [Some("a"), Some("c")]);
    let further = async |_| {
        tokio::task::yield_now().await;
        locks.scope().unwrap().lock("b", &once()).await.unwrap();
        held(&locks)
    };
    let done = locks.with_locks("a", &once(), further).await;
    assert_eq!(done.unwrap().value, [Some("a"), Some("b")]);
    assert!(locks.is_empty());
}

#[tokio::test]
async fn only_a_scope_that_holds_the_whole_table_has_scopes_that_do() {
    let locks = Locks::new();
    let refused = LockError::HeldByThisScope;
    locks
        .with_locks_blocking("a", &once(), |scope| {
            assert_eq!(scope.with_all_blocking(|_| ()).unwrap_err(), refused);
            scope.lock_blocking("b", &once()).unwrap();
        })
        .unwrap();
    let ran = locks.with_all_blocking(&once(), |scope| {
        scope.with_all_blocking(|inner| inner.lock_blocking("a", &once())).unwrap().value
    });
    assert_eq!(ran.unwrap().value, Ok(()));
    let nested = async |scope: Scope<Name>| {
        scope.with_all(async |inner| inner.lock("a", &once()).await).await.unwrap().value
    };
    assert_eq!(locks.with_all(&once(), nested).await.unwrap().value, Ok(()));
    assert!(locks.is_empty());
}

#[test]
fn the_handle_of_a_scope_that_ended_locks_nothing() {
    let (locks, _clock) = manual();
    let escaped = locks.with_locks_blocking("a", &once(), Clone::clone).unwrap().value;
    assert_eq!(escaped.lock_blocking("b", &once()), Err(LockError::ScopeEnded));
    let inner = escaped.with_locks_blocking("b", &once(), |_| ());
    assert_eq!(inner.unwrap_err(), LockError::ScopeEnded);
    assert!(locks.is_empty());
}

#[test]
fn the_handle_of_a_scope_that_ended_is_not_that_of_a_later_one() {
    let (locks, _clock) = manual();
    let run = |outer: &Scope<Name>| {
        let ended = outer.with_locks_blocking("b", &once(), Clone::clone).unwrap().value;
        let inner = outer.with_locks_blocking("c", &once(), |_| ended.lock_blocking("d", &once()));
        assert_eq!(inner.unwrap().value, Err(LockError::ScopeEnded));
    };
    locks.with_locks_blocking("a", &once(), run).unwrap();
    assert!(locks.is_empty());
}
