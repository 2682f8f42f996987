//! Owners: handles, threads, tasks and processes whose death makes locks stale.
#![expect(clippy::disallowed_methods, reason = "tasks that own locks")]

use leasehold_local::locks::{OwnerHandle, ReleaseOutcome};

use crate::common::*;

#[test]
fn the_whole_table_that_is_granted_to_a_dead_owner_goes_on_to_the_next() {
    let (locks, _clock) = manual();
    let a = locks.try_acquire("a", &patient()).unwrap();
    let worker = OwnerHandle::new();
    let dead = waits_for_all(&locks, patient().owner(&worker));
    let next = waits_for_all(&locks, patient());
    let key = waits(&locks, "a", patient());
    drop(worker);
    drop(a);
    let dead = dead.done().unwrap();
    drop(next.done().unwrap());
    drop(key.done().unwrap());
    assert_eq!(dead.release(), ReleaseOutcome::Expired);
    assert!(locks.is_empty());
}

#[test]
fn the_death_of_an_owner_wakes_waiters_at_once() {
    let (locks, _clock) = manual();
    let worker = OwnerHandle::new();
    let owned = patient().owner(&worker);
    let guard = locks.try_acquire("a", &owned).unwrap();
    let kept = locks.try_acquire(["b", "c"], &owned).unwrap().keep();
    let tasks = ["a", "b"].map(|key| waits(&locks, key, patient()));
    drop(worker);
    for task in tasks {
        drop(task.done().unwrap());
    }
    assert!(locks.try_acquire("c", &once()).is_ok());
    assert_eq!(guard.release(), ReleaseOutcome::Expired);
    assert_eq!(locks.release(kept), ReleaseOutcome::NotHeld);
    assert!(locks.is_empty());
}

#[test]
fn a_dead_owner_keeps_nothing_whether_it_held_the_table_or_gets_a_key_later() {
    let (locks, _clock) = manual();
    let worker = OwnerHandle::new();
    let _all = locks.try_acquire_all(&patient().owner(&worker)).unwrap();
    let inherits = waits(&locks, "a", patient().owner(&worker));
    let next = waits(&locks, "a", patient());
    drop(worker);
    assert!(inherits.done().unwrap().is_stale());
    drop(next.done().unwrap());
    assert!(locks.is_empty());
}

#[test]
fn an_owner_that_is_a_thread_dies_with_it() {
    let (locks, _clock) = manual();
    let taken = locks.clone();
    std::thread::spawn(move || {
        let owner = OwnerHandle::of_thread();
        assert_eq!(owner, OwnerHandle::of_thread());
        taken.try_acquire("a", &patient().owner(owner)).unwrap().keep();
        assert!(taken.try_acquire("a", &once()).is_err());
    })
    .join()
    .unwrap();
    assert!(locks.try_acquire("a", &once()).is_ok());
    assert!(locks.is_empty());
}

#[test]
fn an_owner_releases_its_keys_and_nobody_elses() {
    let (locks, _clock) = manual();
    let (ours, theirs) = (OwnerHandle::new(), OwnerHandle::new());
    let kept = locks.try_acquire(["a", "b"], &patient().owner(&ours)).unwrap().keep();
    let _other = locks.try_acquire("c", &patient().owner(&theirs)).unwrap().keep();
    let _none = locks.try_acquire("d", &patient()).unwrap().keep();
    let task = waits(&locks, "a", once().retries(1));
    assert_eq!(locks.release_keys(&ours, ["a", "c", "d", "e"]), Ok(1));
    drop(task.done().unwrap());
    assert_eq!(held(&locks), [Some("b"), Some("c"), Some("d")]);
    assert_eq!(locks.release(kept), ReleaseOutcome::NotHeld, "a part of it is gone");
    assert_eq!(held(&locks), [Some("c"), Some("d")]);
}

/// A lock that a task keeps without its guard.
async fn keeps(locks: Locks, owner: leasehold_local::locks::Owner) {
    locks.try_acquire("a", &patient().owner(owner)).expect("it is free").keep();
}

#[tokio::test]
async fn an_owner_that_is_a_task_dies_with_it_whether_it_returns_panics_or_is_aborted() {
    let (locks, _clock) = manual();
    let [returns, panics, aborted] = [(); 3].map(|()| locks.clone());
    tokio::spawn(OwnerHandle::of_task(|owner| keeps(returns, owner))).await.unwrap();
    assert!(locks.try_acquire("a", &once()).is_ok());
    let task = tokio::spawn(OwnerHandle::of_task(async move |owner| {
        keeps(panics, owner).await;
        panic!("on purpose");
    }));
    assert!(task.await.unwrap_err().is_panic());
    assert!(locks.try_acquire("a", &once()).is_ok());
    let task = tokio::spawn(OwnerHandle::of_task(async move |owner| {
        keeps(aborted, owner).await;
        std::future::pending::<()>().await;
    }));
    while held(&locks).is_empty() {
        tokio::task::yield_now().await;
    }
    let waiter = waits(&locks, "a", patient());
    assert_eq!(waiter.wakes(), 0);
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    drop(waiter.done().unwrap());
    assert!(locks.is_empty());
}

#[test]
fn what_a_task_still_holds_by_guards_is_released_before_its_owner_dies() {
    let (locks, _clock) = manual();
    let inner = locks.clone();
    let (ended, outcome) = std::sync::mpsc::channel();
    let task = Task::pending(OwnerHandle::of_task(async move |owner| {
        let guard = inner.try_acquire("a", &patient().owner(owner)).unwrap();
        let _at_its_end = OnDrop(Some(move || ended.send(guard.release()).unwrap()));
        std::future::pending::<()>().await;
    }));
    drop(task);
    assert_eq!(outcome.recv().unwrap(), ReleaseOutcome::Released);
}

struct OnDrop<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        if let Some(call) = self.0.take() {
            call();
        }
    }
}

#[cfg(target_os = "linux")]
mod processes {
    use std::process::{Child, Command, Stdio};
    use std::time::Duration;

    use leasehold_core::Clock;
    use leasehold_driver::SystemClock;

    use super::*;

    /// A process that runs until it is killed, or its input is closed.
    fn child() -> Child {
        Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("it starts")
    }

    #[test]
    fn the_end_of_a_process_wakes_waiters_within_100_milliseconds() {
        let locks = Locks::new();
        let mut delays: Vec<Duration> = Vec::new();
        // On a busy machine a thread may have to wait for a processor.
        while delays.iter().all(|delay| *delay > 100 * MS) {
            assert!(delays.len() < 20, "{delays:?}");
            let mut child = child();
            let owned = patient().owner(OwnerHandle::of_process(child.id()).unwrap());
            locks.try_acquire("a", &owned).unwrap().keep();
            let waiter = locks.clone();
            let waiter = std::thread::spawn(move || {
                let guard = waiter.acquire_blocking("a", &patient()).unwrap();
                drop(guard);
                SystemClock::new().now()
            });
            await_waiters(&locks, "a", 1);
            let killed_at = SystemClock::new().now();
            child.kill().unwrap();
            // Nobody waits for the child before, so its end is not noticed by that.
            delays.push(waiter.join().unwrap().saturating_sub(killed_at));
            child.wait().unwrap();
        }
        assert!(locks.is_empty());
    }

    #[test]
    fn a_process_that_lives_keeps_its_locks_and_each_has_its_own() {
        let locks = Locks::new();
        let [mut first, mut second] = [(); 2].map(|()| child());
        let [one, other] =
            [&first, &second].map(|child| OwnerHandle::of_process(child.id()).unwrap());
        locks.try_acquire("a", &patient().owner(one.clone())).unwrap().keep();
        locks.try_acquire("b", &patient().owner(other.clone())).unwrap().keep();
        drop(first.stdin.take());
        drop(locks.acquire_blocking("a", &patient()).unwrap());
        assert!(!one.is_alive() && other.is_alive());
        assert!(locks.try_acquire("b", &once()).is_err());
        drop(second.stdin.take());
        drop(locks.acquire_blocking("b", &patient()).unwrap());
        first.wait().unwrap();
        second.wait().unwrap();
        assert!(locks.is_empty());
    }

    #[test]
    fn a_process_that_has_ended_is_a_dead_owner_or_none() {
        let locks = Locks::new();
        let mut child = child();
        let id = child.id();
        drop(child.stdin.take());
        let guard = {
            let before = OwnerHandle::of_process(id).unwrap();
            locks.try_acquire("a", &patient().owner(before)).unwrap().keep();
            locks.acquire_blocking("a", &patient()).unwrap()
        };
        // It has ended, and nobody has waited for it.
        let ended = OwnerHandle::of_process(id).unwrap();
        drop(guard);
        let _kept = locks.try_acquire("a", &patient().owner(ended)).map(|guard| guard.keep());
        drop(locks.acquire_blocking("a", &patient()).unwrap());
        child.wait().unwrap();
        let error = OwnerHandle::of_process(id).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(3), "ESRCH: {error}");
        assert!(OwnerHandle::of_process(0).is_err() && OwnerHandle::of_process(u32::MAX).is_err());
    }
}
