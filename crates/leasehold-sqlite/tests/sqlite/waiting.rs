//! Waiting for the database and for the disk: the store's thread and its time limit.

use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use crate::common::{Hanging, SECOND, Workplace, acquire, count, grant, refuse, release, request};
use futures_util::FutureExt as _;
use leasehold_core::{AcquireReply, BoxFuture, Clock, Effect, ErrorKind, ManualClock, Store};
use leasehold_sqlite::SqliteConfig;
use rusqlite::{Connection, Transaction, TransactionBehavior};

/// Holds the write lock of the database, as another process would.
fn hold(raw: &mut Connection) -> Transaction<'_> {
    raw.transaction_with_behavior(TransactionBehavior::Immediate).unwrap()
}

#[tokio::test]
async fn a_busy_database_is_awaited_and_then_reported() {
    let place = Workplace::new();
    let patient = place.open().await;
    let hasty = place.config().timeout(Duration::from_millis(30)).connect().await.unwrap();
    let mut raw = place.raw();
    let writing = hold(&mut raw);
    let wanted = request("a", "k");
    let mut waiting = Box::pin(patient.acquire(&wanted));
    assert!((&mut waiting).now_or_never().is_none());
    let error = acquire(&hasty, "b", "k").await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::NotApplied));
    let text = error.to_string();
    assert!(text.contains("another process") && text.contains("30ms"), "{text}");
    let error = hasty.prepare().await;
    assert!(error.is_ok(), "a reader waits for no writer: {error:?}");
    drop(writing);
    waiting.await.unwrap();
}

/// Reports when the store's thread reads the clock, which it does first to see how long it may wait for a lock.
#[derive(Debug)]
struct Watched(ManualClock, Mutex<mpsc::Sender<()>>);

impl Clock for Watched {
    fn now(&self) -> Duration {
        let now = self.0.now();
        if std::thread::current().name() == Some("leasehold-sqlite") {
            self.1.lock().unwrap().send(()).unwrap_or_default();
        }
        now
    }

    fn wall_micros(&self) -> u64 {
        self.0.wall_micros()
    }

    fn sleep_until(&self, at: Duration) -> BoxFuture<'static, ()> {
        self.0.sleep_until(at)
    }
}

#[tokio::test]
async fn the_clock_is_read_after_the_lock_is_taken() {
    let place = Workplace::new();
    let (reads, told) = mpsc::channel();
    let clock = Arc::new(Watched(place.clock.clone(), Mutex::new(reads)));
    let store = place.config().clock(clock).timeout(60 * SECOND).connect().await.unwrap();
    grant(&store, "a", "k").await;
    let mut raw = place.raw();
    let writing = hold(&mut raw);
    while told.try_recv().is_ok() {}
    let wanted = request("b", "k");
    let mut waiting = Box::pin(store.acquire(&wanted));
    assert!((&mut waiting).now_or_never().is_none());
    told.recv().unwrap();
    place.clock.advance(30 * SECOND);
    drop(writing);
    let reply = waiting.await.unwrap();
    assert!(matches!(reply, AcquireReply::Granted(_)), "the term ended while we waited: {reply:?}");
}

#[tokio::test]
async fn an_operation_that_gets_the_lock_too_late_does_not_act() {
    let place = Workplace::new();
    let (reads, told) = mpsc::channel();
    let clock = Arc::new(Watched(place.clock.clone(), Mutex::new(reads)));
    let store = place.config().clock(clock).connect().await.unwrap();
    let mut raw = place.raw();
    let writing = hold(&mut raw);
    while told.try_recv().is_ok() {}
    let wanted = request("a", "k");
    let mut waiting = Box::pin(store.acquire(&wanted));
    assert!((&mut waiting).now_or_never().is_none());
    told.recv().unwrap();
    place.clock.advance(SqliteConfig::DEFAULT_TIMEOUT + SECOND);
    let error = waiting.await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::NotApplied));
    drop(writing);
    assert!(grant(&store, "c", "k").await.fresh, "the first did not act");
}

#[tokio::test]
async fn an_operation_that_hangs_is_unknown_and_one_behind_it_did_not_act() {
    let place = Workplace::new();
    let (clock, hung) = Hanging::new(&place.clock);
    let store = place.config().clock(Arc::clone(&clock) as _).connect().await.unwrap();
    clock.hang();
    let (first, second) = (request("a", "k"), request("b", "k2"));
    let (mut hanging, mut behind) =
        (Box::pin(store.acquire(&first)), Box::pin(store.acquire(&second)));
    assert!((&mut hanging).now_or_never().is_none());
    hung.recv().unwrap();
    assert!((&mut behind).now_or_never().is_none());
    place.clock.advance(SqliteConfig::DEFAULT_TIMEOUT + SECOND);
    let (hanging, behind) = (hanging.await.unwrap_err(), behind.await.unwrap_err());
    for (error, effect) in [(hanging, Effect::Unknown), (behind, Effect::NotApplied)] {
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, effect), "{error}");
    }
    clock.resume();
    refuse(&store, "c", "k").await;
    assert_eq!(count(&place.raw(), "leasehold_holders"), 1, "the first acted after all");
    assert!(!grant(&store, "a", "k").await.fresh, "and its outcome can be learned");
}

#[tokio::test]
async fn a_dropped_operation_completes_and_leaves_the_store_usable() {
    let place = Workplace::new();
    let store = place.open().await;
    let never_polled = request("0", "k");
    drop(store.acquire(&never_polled));
    let mut raw = place.raw();
    let writing = hold(&mut raw);
    let dropped = request("a", "k");
    assert!(store.acquire(&dropped).now_or_never().is_none());
    drop(writing);
    let holder = refuse(&store, "b", "k").await;
    assert!(format!("{:?}", holder.why).contains("LeaseId(a)"), "{holder:?}");
    release(&store, "a", "k").await;
    grant(&store, "b", "k").await;
}
