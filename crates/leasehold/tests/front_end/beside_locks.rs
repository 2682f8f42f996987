//! A `Locker` and in-process locks over one table.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use leasehold::{ErrorKind, Key, LocalStore, Locker, Wait};
use leasehold_local::locks::{LocalLocks, Options};
use tokio::sync::Notify;

use crate::support::*;

fn key() -> Key {
    Key::new("k").unwrap()
}

fn patient() -> Options {
    Options::new().retry_forever().never_stale()
}

#[tokio::test]
async fn a_locker_among_parked_waiters_gets_its_turn_within_32_hand_overs() {
    let locks = LocalLocks::<Key>::new();
    let locker = Locker::new(LocalStore::over(&locks));
    let hand_overs = Arc::new(AtomicU32::new(0));
    let first = locks.try_acquire(key(), &patient()).unwrap();
    let loops: Vec<_> = (0..16)
        .map(|_| {
            let (locks, hand_overs) = (locks.clone(), Arc::clone(&hand_overs));
            spawn(async move {
                loop {
                    let guard = locks.acquire(key(), &patient()).await.unwrap();
                    hand_overs.fetch_add(1, Ordering::Relaxed);
                    tokio::task::yield_now().await;
                    drop(guard);
                }
            })
        })
        .collect();
    while locks.entries()[0].waiters < 16 {
        tokio::task::yield_now().await;
    }
    drop(first);
    for round in 0..200 {
        let before = hand_overs.load(Ordering::Relaxed);
        let guard = locker.lock("k").wait(Wait::UpTo(secs(20))).await.unwrap();
        let others = hand_overs.load(Ordering::Relaxed) - before;
        assert!(others <= 32, "round {round}: {others} hand-overs");
        // And the others get theirs.
        guard.release().await.unwrap();
        while hand_overs.load(Ordering::Relaxed) < before + others + 16 {
            tokio::task::yield_now().await;
        }
    }
    loops.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn a_table_that_is_locked_whole_refuses_a_locker_like_any_holder() {
    let locks = LocalLocks::<Key>::new();
    let locker = Locker::new(LocalStore::over(&locks));
    let all = locks.try_acquire_all(&Options::new()).unwrap();
    let error = locker.lock("k").wait(Wait::No).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Held);
    let error = locker.lock("k").wait(Wait::UpTo(ms(20))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    let blocked = Arc::new(Notify::new());
    let waits = spawn({
        let (locker, blocked) = (locker.clone(), Arc::clone(&blocked));
        let request = locker.lock("k").wait(Wait::Forever);
        request.on_blocked(move |_| blocked.notify_one()).into_future()
    });
    blocked.notified().await;
    drop(all);
    let guard = waits.await.unwrap().unwrap();
    assert!(locks.try_acquire_all(&Options::new()).is_err());
    guard.release().await.unwrap();
    drop(locker);
    assert!(locks.try_acquire_all(&Options::new()).is_ok());
}
