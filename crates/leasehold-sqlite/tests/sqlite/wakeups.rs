//! Hints to those who wait on the same file.

use std::path::Path;
use std::time::Duration;

use leasehold_core::{Store, Wakeups};
use leasehold_sqlite::SqliteStore;

use crate::common::{Workplace, grant, key, refuse, release};

/// Far more than a hint takes, and far less than the look of one who missed a write.
const SOON: Duration = Duration::from_millis(100);
/// As long as it takes on a busy machine.
const LONG: Duration = Duration::from_secs(30);

async fn wait(wakeups: &mut Wakeups) {
    assert_eq!(tokio::time::timeout(LONG, wakeups.next()).await.unwrap(), key("k"));
}

/// How many of 20 hand-overs between two stores on this file are hinted soon.
pub(crate) async fn soon_of_20(path: &Path) -> usize {
    let (holder, waiter) =
        (SqliteStore::open(path).await.unwrap(), SqliteStore::open(path).await.unwrap());
    grant(&holder, "a", "k").await;
    let mut wakeups = waiter.subscribe(&[key("k")]).await.unwrap();
    let mut soon = 0;
    for _ in 0..20 {
        refuse(&waiter, "b", "k").await;
        release(&holder, "a", "k").await;
        let hinted = tokio::time::timeout(SOON, wakeups.next()).await;
        soon += usize::from(hinted.is_ok());
        if hinted.is_err() {
            wait(&mut wakeups).await;
        }
        grant(&holder, "a", "k").await;
    }
    soon
}

#[tokio::test]
async fn a_release_wakes_who_waits_in_another_store() {
    let place = Workplace::new();
    let soon = soon_of_20(&place.path).await;
    assert!(soon >= 15, "{soon} of 20 within {SOON:?}");
}

#[tokio::test]
async fn an_eviction_wakes_too_and_another_keys_release_does_not() {
    let place = Workplace::new();
    let (holder, waiter) = (place.open().await, place.open().await);
    for name in ["k", "other"] {
        grant(&holder, "a", name).await;
    }
    let mut wakeups = waiter.subscribe(&[key("k")]).await.unwrap();
    release(&holder, "a", "other").await;
    // Twice as long as until the look of one who missed a write.
    assert!(tokio::time::timeout(5 * SOON, wakeups.next()).await.is_err());
    place.change("UPDATE leasehold_holders SET state = 'evicted' WHERE key = 'k'");
    wait(&mut wakeups).await;
}

#[tokio::test]
async fn a_lease_that_came_and_went_after_the_hint_began_is_hinted() {
    let place = Workplace::new();
    let (holder, waiter) = (place.open().await, place.open().await);
    let mut wakeups = waiter.subscribe(&[key("k")]).await.unwrap();
    for _ in 0..20 {
        grant(&holder, "a", "k").await;
        release(&holder, "a", "k").await;
        wait(&mut wakeups).await;
    }
}

/// The waiter may have been refused while it was there.
#[tokio::test]
async fn a_reader_that_came_and_went_beside_another_is_hinted() {
    let place = Workplace::new();
    let (holder, waiter) = (place.open().await, place.open().await);
    grant(&holder, "a", "k").await;
    place.change("UPDATE leasehold_holders SET mode = 'shared'");
    let mut wakeups = waiter.subscribe(&[key("k")]).await.unwrap();
    wait(&mut wakeups).await;
    // What two looks see of one that came after the first and went before the second.
    place.change("UPDATE leasehold_mark SET mark = mark + 1");
    wait(&mut wakeups).await;
}

#[tokio::test]
async fn a_log_that_is_emptied_or_made_again_is_watched() {
    let place = Workplace::new();
    let (holder, waiter) = (place.open().await, place.open().await);
    grant(&holder, "a", "k").await;
    let mut wakeups = waiter.subscribe(&[key("k")]).await.unwrap();
    place.change("PRAGMA wal_checkpoint(TRUNCATE)");
    release(&holder, "a", "k").await;
    wait(&mut wakeups).await;
    grant(&holder, "a", "k").await;
    std::fs::rename(place.beside("-wal"), place.beside("-away")).unwrap();
    release(&holder, "a", "k").await;
    wait(&mut wakeups).await;
}

#[tokio::test]
async fn when_nobody_waits_any_more_nothing_stays_open() {
    let place = Workplace::new();
    let store = place.open().await;
    // A connection has the log open once.
    let connections = || {
        let all = std::fs::read_dir("/proc/self/fd").unwrap();
        let targets = all.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok());
        targets.filter(|target| *target == place.beside("-wal")).count()
    };
    assert_eq!(connections(), 1);
    let wakeups = [
        store.subscribe(&[key("k")]).await.unwrap(),
        store.subscribe(&[key("k"), key("l")]).await.unwrap(),
    ];
    let becomes = async |count| {
        while connections() != count {
            // No event reports that a file was opened or closed.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(LONG, becomes(2)).await.unwrap();
    drop(wakeups);
    tokio::time::timeout(LONG, becomes(1)).await.unwrap();
}

/// As many as the user may have would leave none to other programs.
#[tokio::test]
async fn waiters_take_at_most_half_of_the_users_inotify_instances_and_the_rest_looks() {
    let limit = std::fs::read_to_string("/proc/sys/fs/inotify/max_user_instances").unwrap();
    let half = limit.trim().parse::<usize>().unwrap() / 2;
    let instances = || {
        let all = std::fs::read_dir("/proc/self/fd").unwrap();
        let targets = all.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
        targets.filter(|target| target.as_os_str() == "anon_inode:inotify").count()
    };
    let place = Workplace::new();
    let holder = place.open().await;
    grant(&holder, "a", "k").await;
    let mut waiters = Vec::new();
    // Where the limit is higher than anywhere by default, fewer than half of it wait.
    for _ in 0..half.min(128) + 4 {
        let store = SqliteStore::open(&place.path).await.unwrap();
        let wakeups = store.subscribe(&[key("k")]).await.unwrap();
        waiters.push((store, wakeups));
    }
    let taken = instances();
    assert!(taken <= half, "{taken} of {half}");
    release(&holder, "a", "k").await;
    for (_, wakeups) in &mut waiters {
        wait(wakeups).await;
    }
}

#[tokio::test]
async fn in_memory_nobody_is_hinted() {
    let store = SqliteStore::in_memory().await.unwrap();
    let wakeups = store.subscribe(&[key("k")]).await.unwrap();
    assert_eq!(format!("{wakeups:?}"), "Wakeups(none)");
}
