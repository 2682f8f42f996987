//! F5 and F6: a failed release is repeated for as long as the store may count the lease, which is longer than its
//! holder trusts it. Time stands still unless a test moves it.

use crate::left_behind::{Scene, runtime};
use crate::support::{Fault, ms, secs};
use futures_util::FutureExt;
use leasehold::{Guard, Keepalive};

/// Drops the guard; its release fails now and `time` later, and succeeds after that.
async fn released_in_vain_for(scene: &Scene, guard: Guard, time: u64) {
    let id = guard.lease().id.clone();
    scene.store.on_release([Fault::Unreachable; 2]);
    drop(guard);
    scene.until_released(&id, 1).await;
    scene.settled().await;
    scene.clock.advance(secs(time));
    scene.until_released(&id, 2).await;
    scene.settled().await;
    assert!(!scene.store.is_free("k").await, "its term is not over");
    scene.clock.advance(secs(1));
    scene.until_released(&id, 3).await;
    assert!(scene.store.is_free("k").await);
}

/// A guard that is renewed every 10 s for 30 s, just after its first renewal was sent.
async fn renewing(scene: &Scene, fault: Fault) -> Guard {
    let every = Keepalive::Every(secs(10));
    let guard = scene.locks.lock("k").ttl(secs(30)).keepalive(every).await.unwrap();
    scene.slept(secs(10)).await;
    scene.store.on_renew([fault]);
    scene.clock.advance(secs(10));
    scene
        .store
        .until(|log| log.iter().any(|sent| matches!(sent, crate::support::Sent::Renew(_))))
        .await;
    guard
}

#[test]
fn as_long_as_a_grant_may_count_that_was_made_just_before_its_answer() {
    let scene = Scene::new();
    runtime().block_on(async {
        scene.store.on_acquire([Fault::SlowRequest(ms(1))]);
        let lock = scene.locks.lock("k").ttl(secs(30)).keepalive(Keepalive::Off);
        let mut acquire = lock.into_future();
        assert!((&mut acquire).now_or_never().is_none());
        scene.clock.advance(secs(9));
        // The store counts from 9 s on, the holder from 0 s on.
        released_in_vain_for(&scene, acquire.await.unwrap(), 25).await;
    });
}

#[test]
fn as_long_as_a_renewal_may_count_that_is_not_answered() {
    let scene = Scene::new();
    runtime().block_on(async {
        let guard = renewing(&scene, Fault::Unheard(ms(0))).await;
        scene.settled().await;
        // From 10 s to 35 s, when the grant alone would have ended.
        released_in_vain_for(&scene, guard, 25).await;
    });
}

#[test]
fn as_long_as_a_renewal_may_count_that_was_given_up() {
    let scene = Scene::new();
    runtime().block_on(async {
        let guard = renewing(&scene, Fault::Unheard(ms(2))).await;
        let mut events = guard.events();
        scene.clock.advance(secs(9));
        tokio::time::sleep(ms(3)).await;
        scene.clock.advance(secs(1));
        assert!(matches!(events.next().await, Some(leasehold::Event::Failed(_))));
        // From 20 s to 45 s; it was sent at 10 s for 30 s, and took effect at 19 s.
        released_in_vain_for(&scene, guard, 25).await;
    });
}

#[test]
fn as_long_as_a_renewal_may_count_that_was_made_just_before_its_answer() {
    let scene = Scene::new();
    runtime().block_on(async {
        let guard = renewing(&scene, Fault::SlowRequest(ms(2))).await;
        let mut events = guard.events();
        scene.clock.advance(secs(9));
        assert!(matches!(events.next().await, Some(leasehold::Event::Renewed { .. })));
        released_in_vain_for(&scene, guard, 26).await;
    });
}
