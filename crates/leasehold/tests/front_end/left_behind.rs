//! F3 and F6: what a runtime leaves undone when it ends, the next one does. Time stands still unless a test moves
//! it, so that no key is free because a term has ended.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::{Fault, Faulty, Flaky, Sent, ms, secs};
use futures_util::FutureExt;
use leasehold::store::{Clock, TokioClock};
use leasehold::{Guard, Keepalive, LeaseId, Locker, ManualClock};
use tokio::runtime::{Builder, Runtime};

pub(crate) struct Scene {
    pub(crate) clock: ManualClock,
    pub(crate) store: Flaky,
    pub(crate) locks: Locker,
}

impl Scene {
    pub(crate) fn new() -> Self {
        let clock = ManualClock::new();
        let store = Flaky::on_manual_clock(&clock);
        let locks = store.locks();
        Self { clock, store, locks }
    }

    /// Ends when the release of `id` was sent `times` times.
    pub(crate) async fn until_released(&self, id: &LeaseId, times: usize) {
        let of_id = |sent: &&Sent| matches!(sent, Sent::Release(ids) if ids.contains(id));
        self.store.until(|log| log.iter().filter(of_id).count() >= times).await;
    }

    /// Ends when a task sleeps for `time`.
    pub(crate) async fn slept(&self, time: Duration) {
        let slept = self.clock.slept_until(self.clock.now() + time);
        tokio::time::timeout(secs(1), slept).await.expect("nobody sleeps until then");
    }

    /// Ends when no task has anything to do at this instant.
    pub(crate) async fn settled(&self) {
        tokio::time::sleep(ms(1)).await;
    }

    /// Starts an acquire that is granted, but whose reply is lost.
    async fn granted_unread(&self, key: &str) -> (Pin<Box<dyn Future<Output = ()>>>, LeaseId) {
        self.store.on_acquire([Fault::Unheard(Duration::ZERO)]);
        let mut acquire = Box::pin(self.locks.lock(key).into_future().map(drop));
        while self.store.is_free(key).await {
            assert!((&mut acquire).now_or_never().is_none());
            self.settled().await;
        }
        let id = self.store.acquires().pop().unwrap();
        (acquire, id)
    }
}

/// A runtime that runs only while something waits in it, and whose timers do not wait.
pub(crate) fn runtime() -> Runtime {
    Builder::new_current_thread().enable_time().start_paused(true).build().unwrap()
}

#[test]
fn a_release_in_flight_continues_in_the_next_runtime() {
    let scene = Scene::new();
    let (first, second) = (runtime(), runtime());
    let id = first.block_on(async {
        let guard = scene.locks.lock("k").await.unwrap();
        let id = guard.lease().id.clone();
        scene.store.on_release([Fault::Hung]);
        drop(guard);
        scene.until_released(&id, 1).await;
        id
    });
    drop(first);
    second.block_on(async {
        let _other = scene.locks.lock("other").await.unwrap();
        scene.until_released(&id, 2).await;
        assert!(scene.store.is_free("k").await);
    });
}

#[test]
fn close_does_what_an_ended_runtime_left() {
    let scene = Scene::new();
    let (first, second) = (runtime(), runtime());
    first.block_on(async {
        let guard = scene.locks.lock("k").await.unwrap();
        let id = guard.lease().id.clone();
        scene.store.on_release([Fault::Hung]);
        drop(guard);
        scene.until_released(&id, 1).await;
    });
    drop(first);
    second.block_on(async {
        let closed = tokio::time::timeout(secs(1), scene.locks.close(secs(1))).await;
        closed.expect("nobody does what is waited for").unwrap();
        assert!(scene.store.is_free("k").await);
    });
}

#[test]
fn a_guard_dropped_after_the_end_of_its_runtime_is_released_in_another() {
    let scene = Scene::new();
    let (first, second) = (runtime(), runtime());
    let guards = first.block_on(async {
        [scene.locks.lock("a").await.unwrap(), scene.locks.lock("b").await.unwrap()]
    });
    let ids = guards.each_ref().map(|guard| guard.lease().id.clone());
    drop(first);
    // Outside any runtime it waits for the next one.
    let [outside, inside] = guards;
    drop(outside);
    second.block_on(async {
        drop(inside);
        scene.until_released(&ids[0], 1).await;
        scene.until_released(&ids[1], 1).await;
        assert!(scene.store.is_free("a").await && scene.store.is_free("b").await);
    });
}

#[test]
fn the_grant_of_an_abandoned_request_is_released_even_if_its_runtime_ended() {
    let scene = Scene::new();
    let (first, second) = (runtime(), runtime());
    let id = first.block_on(async {
        let (acquire, id) = scene.granted_unread("k").await;
        drop(acquire);
        // The Keeper waits for its answer.
        scene.slept(secs(10)).await;
        id
    });
    drop(first);
    second.block_on(async {
        let _other = scene.locks.lock("other").await.unwrap();
        scene.until_released(&id, 1).await;
        assert!(scene.store.is_free("k").await);
    });
}

#[test]
fn a_request_abandoned_after_the_end_of_the_keepers_runtime_is_finished_in_its_own() {
    let scene = Scene::new();
    let (keepers, callers) = (runtime(), runtime());
    let _kept = keepers.block_on(async { scene.locks.lock("kept").await.unwrap() });
    let (acquire, id) = callers.block_on(scene.granted_unread("k"));
    drop(keepers);
    callers.block_on(async {
        drop(acquire);
        scene.slept(secs(10)).await;
        scene.clock.advance(secs(10));
        scene.until_released(&id, 1).await;
        assert!(scene.store.is_free("k").await);
    });
}

#[test]
fn a_grant_after_the_end_of_the_keepers_runtime_starts_another() {
    let scene = Scene::new();
    let (keepers, callers) = (runtime(), runtime());
    let lock = |key, every| scene.locks.lock(key).keepalive(Keepalive::Every(every)).into_future();
    let _kept = keepers.block_on(async { lock("kept", secs(5)).await.unwrap() });
    scene.store.on_acquire([Fault::SlowRequest(secs(1))]);
    let mut acquire = lock("k", secs(10));
    callers.block_on(async { assert!((&mut acquire).now_or_never().is_none()) });
    drop(keepers);
    callers.block_on(async {
        let _guard = acquire.await.unwrap();
        scene.slept(secs(5)).await;
    });
}

#[test]
fn a_renewal_in_flight_is_sent_again_in_the_next_runtime() {
    let scene = Scene::new();
    let (first, second) = (runtime(), runtime());
    let guard = first.block_on(renewing(&scene));
    drop(first);
    // At most a second passes between a failed renewal and the next.
    scene.clock.advance(secs(1));
    second.block_on(async {
        let _other = scene.locks.lock("other").await.unwrap();
        scene.store.until(|log| renewals(log) == 2).await;
        scene.settled().await;
        scene.clock.advance(secs(25));
        assert!(guard.is_held());
    });
}

/// A guard whose first renewal, 10 s after the grant, is granted 9 s later, when its runtime ends.
async fn renewing(scene: &Scene) -> Guard {
    let every = Keepalive::Every(secs(10));
    let guard = scene.locks.lock("k").ttl(secs(30)).keepalive(every).await.unwrap();
    scene.slept(secs(10)).await;
    scene.store.on_renew([Fault::Unheard(secs(1))]);
    scene.clock.advance(secs(10));
    scene.store.until(|log| renewals(log) == 1).await;
    scene.clock.advance(secs(9));
    tokio::time::sleep(secs(2)).await;
    guard
}

fn renewals(log: &[Sent]) -> usize {
    log.iter().filter(|sent| matches!(sent, Sent::Renew(_))).count()
}

#[test]
fn a_release_continues_for_as_long_as_a_renewal_left_by_its_runtime_may_count() {
    let scene = Scene::new();
    let (first, second) = (runtime(), runtime());
    let guard = first.block_on(renewing(&scene));
    let id = guard.lease().id.clone();
    drop(first);
    scene.store.on_release([Fault::Unreachable; 2]);
    second.block_on(async {
        drop(guard);
        scene.until_released(&id, 1).await;
        scene.settled().await;
        // 31 s after the renewal was sent, 22 s after it may have been granted.
        scene.clock.advance(secs(22));
        scene.until_released(&id, 2).await;
        scene.settled().await;
        scene.clock.advance(secs(1));
        scene.until_released(&id, 3).await;
        assert!(scene.store.is_free("k").await);
    });
}

/// A clock that drops a guard when it is read for the n-th time.
#[derive(Debug)]
struct Reading {
    clock: TokioClock,
    guard: Mutex<Option<(usize, Guard)>>,
}

impl Clock for Reading {
    fn now(&self) -> Duration {
        let mut held = self.guard.lock().unwrap();
        if let Some((left, guard)) = held.take() {
            if left > 0 {
                *held = Some((left - 1, guard));
            } else {
                drop(held);
                drop(guard);
            }
        }
        self.clock.now()
    }

    fn wall_micros(&self) -> u64 {
        self.clock.wall_micros()
    }

    fn sleep_until(&self, at: Duration) -> leasehold_core::BoxFuture<'static, ()> {
        self.clock.sleep_until(at)
    }
}

/// With the last guard its `Locker` is gone, and with it the task that must release it.
#[tokio::test(start_paused = true)]
async fn the_last_guard_is_released_at_whatever_step_of_the_keeper_it_is_dropped() {
    for reading in 0.. {
        let store = Flaky::new();
        let clock = Arc::new(Reading { clock: TokioClock::new(), guard: Mutex::default() });
        let locks = Locker::builder(Faulty(store.clone())).clock(clock.clone()).build();
        let every = Keepalive::Every(secs(10));
        let guard = locks.lock("k").ttl(secs(24 * 3_600)).keepalive(every).await.unwrap();
        drop(locks);
        *clock.guard.lock().unwrap() = Some((reading, guard));
        // One renewal, in which only the Keeper reads the clock.
        tokio::time::sleep(secs(15)).await;
        let untouched = clock.guard.lock().unwrap().take();
        let was_read_less_often = untouched.is_some();
        drop(untouched);
        store.until_free("k").await;
        if was_read_less_often {
            assert!(reading >= 5, "the Keeper read its clock {reading} times");
            return;
        }
    }
}

/// Moves the clock while the runtime runs, in steps that are short beside the renewal interval.
async fn pass(scene: &Scene, time: Duration) {
    for _ in 0..time.as_millis() / 100 {
        scene.clock.advance(ms(100));
        scene.settled().await;
    }
}

/// The Keeper began on a runtime that still exists, but in which nothing waits any more.
#[test]
fn leases_are_renewed_though_nobody_drives_the_runtime_of_the_keeper() {
    let scene = Scene::new();
    let (idle, driven) = (runtime(), runtime());
    let lock = |key| scene.locks.lock(key).ttl(secs(3)).into_future();
    let first = idle.block_on(lock("first")).unwrap();
    driven.block_on(async {
        let second = lock("second").await.unwrap();
        pass(&scene, secs(10)).await;
        assert!(first.is_held() && second.is_held());
    });
    // What the idle one left in flight is answered now.
    idle.block_on(pass(&scene, secs(1)));
    driven.block_on(async {
        pass(&scene, secs(10)).await;
        assert!(first.is_held());
    });
}

#[test]
fn the_next_acquire_on_another_runtime_takes_over_from_one_that_nobody_drives() {
    let scene = Scene::new();
    let (idle, driven) = (runtime(), runtime());
    let lock = |key| scene.locks.lock(key).ttl(secs(3)).into_future();
    let first = idle.block_on(async {
        let first = lock("first").await.unwrap();
        scene.store.on_renew([Fault::Hung]);
        pass(&scene, ms(1_200)).await;
        assert_eq!(scene.store.renews().len(), 1, "it is in flight");
        first
    });
    scene.clock.advance(secs(1));
    driven.block_on(async {
        let _second = lock("second").await.unwrap();
        pass(&scene, secs(10)).await;
        assert!(first.is_held());
    });
}

#[test]
fn a_guard_is_released_though_nobody_drives_the_runtime_of_the_keeper() {
    let scene = Scene::new();
    let (idle, driven) = (runtime(), runtime());
    idle.block_on(async { drop(scene.locks.lock("other").await.unwrap()) });
    driven.block_on(async {
        drop(scene.locks.lock("k").await.unwrap());
        pass(&scene, ms(500)).await;
        assert!(scene.store.is_free("k").await && scene.store.is_free("other").await);
    });
}

#[test]
fn a_request_is_finished_though_nobody_drives_the_runtime_of_the_keeper() {
    let scene = Scene::new();
    let (idle, driven) = (runtime(), runtime());
    idle.block_on(async { scene.locks.lock("other").await.unwrap().release().await.unwrap() });
    driven.block_on(async {
        scene.store.on_acquire([Fault::SlowReply(secs(1))]);
        let mut acquire = Box::pin(scene.locks.lock("k").into_future());
        while scene.store.is_free("k").await {
            assert!((&mut acquire).now_or_never().is_none());
            scene.settled().await;
        }
        drop(acquire);
        pass(&scene, ms(500)).await;
        scene.store.until_free("k").await;
    });
}
