//! F4 and F5: work on a task of its own ends with the lease, and what cannot be stopped is told so.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc;

use crate::support::{Fault, Flaky, ms, secs, spawn};
use leasehold::store::Clock as _;
use leasehold::{ErrorKind, Guard, LocalStore, Locker, LostReason, ManualClock, Result};
use tokio::task::JoinHandle;

/// Work without an end that counts its seconds.
fn worker() -> (Arc<AtomicU32>, impl Future<Output = ()> + Send) {
    let steps = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&steps);
    let work = async move {
        loop {
            tokio::time::sleep(secs(1)).await;
            counted.fetch_add(1, Ordering::Relaxed);
        }
    };
    (steps, work)
}

/// What a task ends with, soon.
async fn ended<T>(task: JoinHandle<Result<T>>) -> Result<T> {
    tokio::time::timeout(secs(600), task).await.expect("it ends with the lease").unwrap()
}

/// How many steps it makes from now on.
async fn later_steps(steps: &AtomicU32) -> u32 {
    let before = steps.load(Ordering::Relaxed);
    tokio::time::sleep(secs(60)).await;
    steps.load(Ordering::Relaxed) - before
}

#[tokio::test(start_paused = true)]
async fn spawned_work_ends_with_the_lease_and_reports_why() {
    let store = Flaky::new();
    let locks = store.locks();
    let guard = locks.lock("k").ttl(secs(9)).await.unwrap();
    let (steps, work) = worker();
    let task = guard.spawn(work);
    let (unwatched, work) = worker();
    drop(guard.spawn(work));
    tokio::time::sleep(ms(5_500)).await;
    store.down(Fault::Hung);
    assert_eq!(guard.lost().await, LostReason::StoreUnreachable);
    let error = ended(task).await.unwrap_err();
    assert_eq!(error.lost_reason(), Some(&LostReason::StoreUnreachable), "{error}");
    let made = steps.load(Ordering::Relaxed);
    assert!((9..=15).contains(&made), "it worked until the loss: {made}");
    assert_eq!(later_steps(&steps).await, 0);
    assert_eq!(later_steps(&unwatched).await, 0, "a handle that is dropped detaches no work");
}

#[tokio::test(start_paused = true)]
async fn spawned_work_that_ends_in_time_returns_its_result() {
    let locks = Flaky::new().locks();
    let guard = locks.lock("k").await.unwrap();
    assert_eq!(guard.spawn(async { 42 }).await.unwrap().unwrap(), 42);
    let panicked = guard.spawn(async { panic!("planted") }).await.unwrap_err();
    assert!(panicked.is_panic());
    assert!(guard.is_held());
}

#[tokio::test(start_paused = true)]
async fn spawned_work_ends_when_its_guard_does() {
    let locks = Flaky::new().locks();
    let ways: [fn(Guard); 2] = [|guard| drop(guard), |guard| drop(guard.detach())];
    for end in ways {
        let guard = locks.lock("k").ttl(secs(9)).await.unwrap();
        let (steps, work) = worker();
        let task = guard.spawn(work);
        tokio::time::sleep(ms(2_500)).await;
        end(guard);
        assert_eq!(ended(task).await.unwrap_err().kind(), ErrorKind::Closed);
        assert_eq!(later_steps(&steps).await, 0);
        tokio::time::sleep(secs(9)).await;
    }
}

/// The trap: the future that `run` drops is the handle, and the task continues.
#[tokio::test(start_paused = true)]
async fn a_task_whose_handle_is_given_to_run_continues_after_a_loss() {
    let store = Flaky::new();
    let guard = store.locks().lock("k").ttl(secs(9)).await.unwrap();
    store.down(Fault::Hung);
    let (steps, work) = worker();
    let error = guard.run(spawn(work)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
    assert!(later_steps(&steps).await > 50);
}

#[tokio::test(start_paused = true)]
async fn what_a_leader_spawned_ends_with_its_leadership() {
    let store = Flaky::new();
    let locks = store.locks();
    let leadership = locks.election("n").ttl(secs(9)).campaign().await.unwrap();
    let (steps, work) = worker();
    let task = leadership.spawn(work);
    tokio::time::sleep(ms(2_500)).await;
    leadership.resign().await.unwrap();
    assert_eq!(ended(task).await.unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!((later_steps(&steps).await, steps.load(Ordering::Relaxed)), (0, 2));

    let candidate = locks.election("n").ttl(secs(9)).spawn(std::future::pending()).unwrap();
    let leadership = candidate.elected().await.unwrap();
    let (steps, work) = worker();
    let task = leadership.spawn(work);
    store.down(Fault::Hung);
    assert_eq!(ended(task).await.unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(later_steps(&steps).await, 0);
}

/// Neither can be stopped from outside: both continue after the loss, and both are reported as lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_that_never_awaits_and_a_blocking_thread_continue_after_a_loss() {
    let clock = ManualClock::new();
    let store = LocalStore::with_clock(Arc::new(clock.clone()));
    let locks = Locker::builder(store).clock(Arc::new(clock.clone())).build();
    for on_a_thread in [false, true] {
        let guard = locks.lock("k").ttl(secs(9)).await.unwrap();
        let (started, starts) = tokio::sync::oneshot::channel();
        let (go, goes) = mpsc::channel::<()>();
        let (finished, finishes) = mpsc::channel::<()>();
        let is_done = Arc::new(AtomicBool::new(false));
        let done = Arc::clone(&is_done);
        let work = move || {
            started.send(()).unwrap();
            goes.recv().unwrap();
            done.store(true, Ordering::Release);
            finished.send(()).unwrap();
        };
        let task = if on_a_thread {
            guard.spawn(async move { tokio::task::spawn_blocking(work).await.unwrap() })
        } else {
            guard.spawn(async move { work() })
        };
        starts.await.unwrap();
        clock.advance(secs(9));
        assert!(!guard.is_held() && !is_done.load(Ordering::Acquire));
        if on_a_thread {
            // The task is gone, its thread is not.
            assert_eq!(ended(task).await.unwrap_err().kind(), ErrorKind::Lost);
            go.send(()).unwrap();
        } else {
            assert!(!task.is_finished());
            go.send(()).unwrap();
            assert_eq!(ended(task).await.unwrap_err().kind(), ErrorKind::Lost);
        }
        finishes.recv().unwrap();
        assert!(is_done.load(Ordering::Acquire), "it continued");
    }
    assert!(clock.now() > secs(18));
}
