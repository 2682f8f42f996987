//! F12: what is counted, under which labels, and what is logged.

use std::future::IntoFuture as _;
use std::sync::Arc;

use crate::support::log::logged;
use crate::support::{Fault, Flaky, secs};
use leasehold::inspect::{EvictRequest, EvictTarget};
use leasehold::store::{Clock, SystemClock, TokioClock};
use leasehold::{Keepalive, LocalStore, Locker, LostReason, Wait};
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use tracing::Instrument as _;

/// What was recorded so far, each by name and labels.
fn counted(snapshotter: &Snapshotter) -> Vec<(String, DebugValue)> {
    let snapshot = snapshotter.snapshot().into_vec();
    for (key, unit, description, _) in &snapshot {
        assert!(unit.is_some() && description.is_some(), "{key:?} is not described");
    }
    let line = |(key, _, _, value): (metrics_util::CompositeKey, _, _, DebugValue)| {
        let labels = key.key().labels().map(|l| format!("{}={}", l.key(), l.value()));
        let labels: Vec<_> = labels.collect();
        (format!("{} {}", key.key().name(), labels.join(",")), value)
    };
    snapshot.into_iter().map(line).collect()
}

fn value(lines: &[(String, DebugValue)], line: &str) -> i64 {
    match lines.iter().find(|(name, _)| name == line) {
        Some((_, DebugValue::Counter(count))) => i64::try_from(*count).unwrap(),
        Some((_, DebugValue::Histogram(values))) => i64::try_from(values.len()).unwrap(),
        #[expect(clippy::cast_possible_truncation, reason = "a count")]
        Some((_, DebugValue::Gauge(value))) => value.into_inner() as i64,
        None => panic!("{line} is not among {lines:?}"),
    }
}

fn paused() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_time().start_paused(true).build().unwrap()
}

#[test]
fn attempts_waits_holds_renewals_and_losses_are_counted_by_store_and_label() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || {
        paused().block_on(async {
            let store = Flaky::new();
            let locks = store.locks();
            let guard = locks.lock("secret-key").label("reports").ttl(secs(9)).await.unwrap();
            let again = locks.lock("secret-key").label("reports").wait(Wait::No).await;
            assert!(again.is_err());
            store.on_renew([Fault::None, Fault::Unreachable]);
            tokio::time::sleep(secs(5)).await;
            guard.release().await.unwrap();
            let brief = locks.lock("k").ttl(secs(1)).keepalive(Keepalive::Off).await.unwrap();
            brief.lost().await;
        });
    });
    let lines = counted(&snapshotter);
    let count = |line: &str| value(&lines, line);
    assert_eq!(count("leasehold_attempts_total store=local,label=reports,outcome=granted"), 1);
    assert_eq!(count("leasehold_attempts_total store=local,label=reports,outcome=refused"), 1);
    assert_eq!(count("leasehold_wait_seconds store=local,label=reports,outcome=granted"), 1);
    assert_eq!(count("leasehold_wait_seconds store=local,label=reports,outcome=refused"), 1);
    assert_eq!(count("leasehold_hold_seconds store=local,label=reports"), 1);
    assert_eq!(count("leasehold_renewals_total store=local,label=reports,outcome=renewed"), 1);
    assert_eq!(count("leasehold_losses_total store=local,label=,reason=expired"), 1);
    assert!(!format!("{lines:?}").contains("secret-key"), "a key is never a label");
}

#[test]
fn a_verification_that_finds_no_lease_counts_as_a_loss_and_as_no_renewal() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || {
        paused().block_on(async {
            let store = Flaky::new();
            let guard = store.locks().lock("k").keepalive(Keepalive::Off).await.unwrap();
            assert!(guard.verify().await.unwrap());
            let targets = store.others().status("k").await.unwrap();
            let targets = targets.iter().map(EvictTarget::of).collect();
            store.others().evict(&EvictRequest::exactly(targets, None)).await.unwrap();
            assert!(!guard.verify().await.unwrap());
        });
    });
    let lines = counted(&snapshotter);
    assert_eq!(value(&lines, "leasehold_losses_total store=local,label=,reason=gone"), 1);
    let renewals = lines.iter().find(|(name, _)| name.starts_with("leasehold_renewals_total"));
    assert_eq!(renewals, None, "none was sent");
}

/// Both clocks, and what is read from each.
#[tokio::test(start_paused = true)]
async fn the_machines_clock_beside_paused_time_is_one_warning_that_names_the_tokio_clock() {
    let log = logged("clock-of-the-test");
    let tokio_clock = Arc::new(TokioClock::new());
    for (clock, warnings) in [(tokio_clock as Arc<dyn Clock>, 0), (Arc::new(SystemClock::new()), 1)]
    {
        let store = LocalStore::with_clock(Arc::clone(&clock));
        let locks = Locker::builder(store).clock(clock).build();
        let span = tracing::info_span!("clock-of-the-test");
        for _ in 0..2 {
            drop(locks.lock("k").into_future().instrument(span.clone()).await.unwrap());
        }
        let log = log();
        let warned = log.iter().filter(|line| line.contains("WARN") && line.contains("TokioClock"));
        assert_eq!(warned.count(), warnings, "{log:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn renewals_that_begin_to_fail_are_one_warning_with_the_key() {
    let log = logged("logged-key");
    let store = Flaky::new();
    let locks = store.locks();
    let names: Vec<_> = (0..10).map(|n| format!("logged-key-{n}")).collect();
    let mut guards = Vec::new();
    for name in &names {
        guards.push(locks.lock(name.as_str()).ttl(secs(30)).await.unwrap());
    }
    store.down(Fault::Unreachable);
    tokio::time::sleep(secs(15)).await;
    let warnings = |what: &str| {
        let is_one = |line: &&String| line.contains("WARN") && line.contains(what);
        log().iter().filter(is_one).count()
    };
    assert_eq!(warnings("renewals fail store"), 1, "{:?}", log());
    store.up();
    tokio::time::sleep(secs(15)).await;
    assert!(guards.iter().all(leasehold::Guard::is_held));
    store.down(Fault::Unreachable);
    tokio::time::sleep(secs(60)).await;
    assert_eq!(warnings("renewals fail store"), 2, "{:?}", log());
    assert_eq!(warnings("a lease is lost"), 10, "each with its key: {:?}", log());
}

#[test]
fn the_gauge_of_held_leases_returns_to_zero_however_a_hold_ends() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    // A snapshot takes what it reads.
    let total = std::cell::Cell::new(0);
    let held = || {
        let change = value(&counted(&snapshotter), "leasehold_held store=local,label=jobs");
        total.set(total.get() + change);
        total.get()
    };
    let others = metrics::with_local_recorder(&recorder, || {
        paused().block_on(async {
            let store = Flaky::new();
            let locks = store.locks();
            let lock = |key: &'static str| locks.lock(key).ttl(secs(9)).label("jobs");
            let guard = lock("released").await.unwrap();
            assert_eq!(held(), 1);
            guard.release().await.unwrap();
            assert_eq!(held(), 0);
            drop(lock("dropped").await.unwrap());
            assert_eq!(held(), 0);
            let lease = lock("detached").await.unwrap().detach();
            assert_eq!(held(), 0);
            let adopted = locks.acquire_or_renew(lease).label("jobs").await.unwrap();
            assert_eq!(held(), 1);
            drop(adopted);
            let _grouped = lock("grouped").group("g").await.unwrap();
            locks.group("g").unwrap().release().await;
            assert_eq!(held(), 0);
            let expired = lock("expired").keepalive(Keepalive::Off).await.unwrap();
            assert_eq!(expired.lost().await, LostReason::Expired);
            assert_eq!(held(), 0, "a guard that has lost its lease holds nothing");
            let evicted = lock("evicted").await.unwrap();
            store.evict("evicted", "x").await;
            drop(evicted.lost().await);
            assert_eq!(held(), 0);
            drop((expired, evicted));
            assert_eq!(held(), 0);
            // Nobody looks at it: the Keeper finds it lost.
            std::mem::forget(lock("forgotten").max_hold(secs(60)).await.unwrap());
            tokio::time::sleep(secs(30)).await;
            assert_eq!(held(), 1, "a guard that is forgotten renews as before");
            tokio::time::sleep(secs(31)).await;
            assert_eq!(held(), 0);
            // Its runtime ends first.
            (lock("left").await.unwrap(), locks.clone())
        })
    });
    assert_eq!(held(), 1);
    drop(others);
    assert_eq!(held(), 0);
}

#[tokio::test(start_paused = true)]
async fn grants_refusals_and_releases_are_debug_events_with_the_key() {
    let log = logged("debugged-key");
    let locks = Flaky::new().locks();
    let guard = locks.lock("debugged-key").comment("nightly").await.unwrap();
    assert!(locks.try_lock("debugged-key").await.unwrap().is_none());
    guard.release().await.unwrap();
    let guard = locks.adopt(locks.lock("debugged-key").await.unwrap().detach()).await.unwrap();
    drop(guard);
    locks.close(secs(1)).await.unwrap();
    let log = log();
    let count = |what: &str| log.iter().filter(|l| l.contains("DEBUG") && l.contains(what)).count();
    assert_eq!(count("a lock is granted store=\"local\" key=debugged-key lease="), 2, "{log:?}");
    assert_eq!(count("a lease is continued store"), 1, "{log:?}");
    assert_eq!(count("a lock is released store"), 2, "{log:?}");
    let refusals: Vec<_> = log.iter().filter(|line| line.contains("a lock is refused")).collect();
    assert!(refusals.len() == 1 && refusals[0].contains("(nightly)"), "who holds it: {log:?}");
    assert!(refusals[0].contains("of_this_process=true"), "{log:?}");
}
