//! F15: what a purge removes and leaves, and the janitor that purges at an interval.

use std::sync::Arc;
use std::time::Duration;

use crate::support::{Fault, Flaky, Sent, ms, secs, spawn};
use futures_util::FutureExt;
use leasehold::inspect::{Expired, Filter};
use leasehold::store::Clock;
use leasehold::{ErrorKind, Janitor, Keepalive, LocalStore, Locker, ManualClock, Purged};

/// Leaves `count` records with a term of 10 s that nobody renews.
async fn leave(locks: &Locker, count: usize) {
    for number in 0..count {
        drop(locks.lock(format!("left-{number}")).ttl(secs(10)).await.unwrap().detach());
    }
}

/// All records, including expired ones.
async fn records(locks: &Locker) -> usize {
    locks.list(Filter::default().with_expired(Expired::In)).await.unwrap().records.len()
}

/// Removed, forgotten, batches.
fn counts(purged: Purged) -> (usize, usize, usize) {
    (purged.records_removed, purged.counters_forgotten, purged.batches)
}

#[tokio::test(start_paused = true)]
async fn a_purge_removes_expired_records_in_batches_until_nothing_is_left() {
    let store = Flaky::new();
    let locks = store.locks();
    leave(&locks, 25).await;
    let live = locks.lock("live").await.unwrap();
    assert_eq!(counts(locks.purge(Filter::default(), 10).await.unwrap()).0, 0, "none has expired");
    tokio::time::sleep(secs(10)).await;
    let before = store.evictions().len();
    let some = Filter::default().with_prefix("left-2");
    assert_eq!(locks.purge(some, 10).await.unwrap().records_removed, 6, "2 and 20 to 24");
    let purged = locks.purge(Filter::default(), 10).await.unwrap();
    assert_eq!(counts(purged), (19, 0, 2));
    assert_eq!(store.evictions()[before..], [10, 10, 10]);
    assert_eq!(records(&locks).await, 1);
    assert!(live.verify().await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_purge_leaves_half_of_the_time_to_others() {
    let store = Flaky::new();
    let locks = store.locks();
    leave(&locks, 25).await;
    tokio::time::sleep(secs(10)).await;
    store.on_look([Fault::SlowRequest(ms(100)), Fault::SlowReply(ms(30))]);
    let before = store.now();
    assert_eq!(counts(locks.purge(Filter::default(), 10).await.unwrap()), (25, 0, 3));
    assert_eq!(store.now() - before, ms(100 + 100 + 30 + 30), "two batches and two pauses");
}

#[tokio::test]
async fn a_purge_during_which_the_machine_sleeps_does_not_pause_for_as_long() {
    let clock = ManualClock::new();
    let store = Flaky::on_manual_clock(&clock);
    let locks = store.locks();
    leave(&locks, 25).await;
    clock.advance(secs(10));
    // Shorter than the store remembers leases that ended.
    let (mut sleeps, asleep) = (Some(secs(1_800)), clock.clone());
    store.draw(Some(Box::new(move || {
        sleeps.take().into_iter().for_each(|time| asleep.advance(time));
        Fault::None
    })));
    let begun = clock.now();
    let purging = spawn(async move { locks.purge(Filter::default(), 10).await });
    while clock.next_wake().is_none_or(|wake| wake < begun + secs(1_800)) {
        tokio::task::yield_now().await;
    }
    // The limit of one operation.
    clock.advance(secs(10));
    let purged = tokio::time::timeout(secs(20), purging).await.expect("it continues");
    assert_eq!(counts(purged.unwrap().unwrap()), (25, 0, 3));
}

#[tokio::test]
async fn a_purge_lets_other_tasks_run_between_two_batches() {
    let clock = ManualClock::new();
    let store = LocalStore::with_clock(Arc::new(clock.clone()));
    let locks = Locker::builder(store).clock(Arc::new(clock.clone())).build();
    leave(&locks, 25).await;
    clock.advance(secs(10));
    let mut purging = Box::pin(locks.purge(Filter::default(), 10));
    assert!(purging.as_mut().now_or_never().is_none());
    assert_eq!(records(&locks).await, 15);
    assert_eq!(counts(purging.await.unwrap()), (25, 0, 3));
}

#[tokio::test(start_paused = true)]
async fn a_purge_that_fails_is_reported_and_its_removals_stay() {
    let store = Flaky::new();
    let locks = store.locks();
    leave(&locks, 25).await;
    tokio::time::sleep(secs(10)).await;
    store.on_look([Fault::None, Fault::Denied]);
    let error = locks.purge(Filter::default(), 10).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied);
    assert_eq!(counts(locks.purge(Filter::default(), 10).await.unwrap()), (15, 0, 2));
}

#[tokio::test(start_paused = true)]
async fn a_lease_renewed_during_the_purge_stays() {
    let store = Flaky::new();
    let locks = store.locks();
    let renewed = locks.lock("k").ttl(secs(10)).keepalive(Keepalive::Off).await.unwrap();
    leave(&locks, 1).await;
    tokio::time::sleep(secs(9)).await;
    // Sent just before it expires, delivered after it would have expired.
    store.on_look([Fault::SlowRequest(secs(5))]);
    let purging = {
        let locks = locks.clone();
        spawn(async move { locks.purge(Filter::default(), 10).await })
    };
    store.until(|log| log.contains(&Sent::Evict(10))).await;
    renewed.renew().await.unwrap();
    assert_eq!(purging.await.unwrap().unwrap().records_removed, 1);
    assert!(renewed.verify().await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn the_janitor_purges_round_by_round_and_reports() {
    let store = Flaky::new();
    let locks = store.locks();
    let live = locks.lock("live").ttl(secs(10)).await.unwrap();
    let mut janitor = locks.janitor().spawn().unwrap();
    assert_eq!(janitor.report().rounds, 0);
    let mut removed = 0;
    for round in 1..=5 {
        leave(&locks, 30).await;
        tokio::time::sleep(secs(10)).await;
        let report = janitor.next_round().await.unwrap();
        assert_eq!((report.rounds, report.failed_rounds), (round, 0));
        assert!(report.error.is_none());
        removed = report.purged.records_removed;
    }
    // New records appear before the last ones are purged if the round came while they were fresh.
    assert!(removed >= 120, "{removed}");
    assert!(store.evictions().iter().all(|limit| *limit == Janitor::DEFAULT_BATCH));
    assert!(live.verify().await.unwrap());
    let report = janitor.stop().await;
    assert_eq!((report.rounds, report.purged.records_removed), (5, removed));
}

#[tokio::test(start_paused = true)]
async fn a_round_that_fails_is_reported_and_the_next_comes_in_its_time() {
    let store = Flaky::new();
    let locks = store.locks();
    leave(&locks, 25).await;
    tokio::time::sleep(secs(10)).await;
    let mut janitor = locks.janitor().every(secs(60)).batch(10).spawn().unwrap();
    store.on_look([Fault::None, Fault::LostRequest, Fault::Panic, Fault::Hung]);
    let first = janitor.next_round().await.unwrap();
    assert_eq!(first.error.unwrap().kind(), ErrorKind::Unavailable);
    assert_eq!((first.rounds, first.failed_rounds, first.purged.records_removed), (1, 1, 10));
    let failed = store.now();
    let second = janitor.next_round().await.unwrap();
    assert_eq!(second.error.unwrap().kind(), ErrorKind::Unexpected, "the store panicked");
    assert!(store.now() - failed >= secs(54), "a failed round is not repeated at once");
    let third = janitor.next_round().await.unwrap();
    assert_eq!(third.error.unwrap().kind(), ErrorKind::Unavailable, "it hung");
    let fourth = janitor.next_round().await.unwrap();
    assert!(fourth.error.is_none());
    assert_eq!((fourth.rounds, fourth.failed_rounds, fourth.purged.records_removed), (4, 3, 25));
}

#[tokio::test(start_paused = true)]
async fn it_ends_when_it_is_stopped_or_dropped_or_its_locker_is_closed() {
    let store = Flaky::new();
    let locks = store.locks();
    let mut stopped = locks.janitor().every(secs(10)).batch(1).spawn().unwrap();
    let mut dropped = locks.janitor().every(secs(10)).batch(2).spawn().unwrap();
    let mut closed = locks.janitor().every(secs(10)).batch(3).spawn().unwrap();
    for janitor in [&mut stopped, &mut dropped, &mut closed] {
        janitor.next_round().await.unwrap();
    }
    let rounds = |limit| store.evictions().iter().filter(|sent| **sent == limit).count();
    let limit = secs(3_600);
    tokio::time::timeout(limit, stopped.stop()).await.expect("it ends");
    let before = rounds(1);
    drop(dropped);
    tokio::task::yield_now().await;
    let others = rounds(2);
    tokio::time::sleep(secs(600)).await;
    assert_eq!((rounds(1), rounds(2)), (before, others));
    assert!(rounds(3) >= 60, "the third continues");
    locks.close(secs(1)).await.unwrap();
    let ending = async { while closed.next_round().await.is_some() {} };
    tokio::time::timeout(limit, ending).await.expect("it ends");
    let last = rounds(3);
    tokio::time::sleep(secs(600)).await;
    assert_eq!(rounds(3), last);
}

#[tokio::test(start_paused = true)]
async fn it_stops_within_a_round() {
    let store = Flaky::new();
    let locks = store.locks();
    store.on_look([Fault::SlowRequest(secs(5))]);
    let janitor = locks.janitor().every(secs(10)).batch(1).spawn().unwrap();
    store.until(|log| log.contains(&Sent::Evict(1))).await;
    let before = store.now();
    let stopped = tokio::time::timeout(secs(3_600), janitor.stop()).await.expect("it ends");
    assert_eq!(stopped.rounds, 0);
    assert_eq!(store.now(), before);
}

#[tokio::test(start_paused = true)]
async fn janitors_that_start_together_do_not_purge_together() {
    const EVERY: Duration = Duration::from_secs(1_000);
    let store = Flaky::new();
    let locks = store.locks();
    let begun = store.now();
    let mut rounds = Vec::new();
    for janitor in (0..20).map(|_| locks.janitor().every(EVERY).batch(1).spawn().unwrap()) {
        let store = store.clone();
        rounds.push(spawn(async move {
            let mut janitor = janitor;
            let mut at = Vec::new();
            for _ in 0..5 {
                janitor.next_round().await.unwrap();
                at.push(store.now());
            }
            at
        }));
    }
    let (mut first, mut pauses) = (Vec::new(), Vec::new());
    for round in rounds {
        let at = round.await.unwrap();
        first.push(at[0] - begun);
        pauses.extend(at.windows(2).map(|pair| pair[1] - pair[0]));
    }
    let spread = |times: &[Duration]| *times.iter().max().unwrap() - *times.iter().min().unwrap();
    // Twenty instants within 300 of 1,000 s: once in 10^8 runs.
    assert!(first.iter().all(|at| *at <= EVERY + ms(1)) && spread(&first) > EVERY * 3 / 10);
    let usual = EVERY * 9 / 10 - ms(1)..=EVERY + ms(1);
    assert!(pauses.iter().all(|pause| usual.contains(pause)), "{pauses:?}");
    assert!(spread(&pauses) > EVERY / 20);
}

#[tokio::test]
async fn on_a_manual_clock_it_needs_no_waiting() {
    let clock = ManualClock::new();
    let store = LocalStore::with_clock(Arc::new(clock.clone()));
    let locks = Locker::builder(store).clock(Arc::new(clock.clone())).build();
    leave(&locks, 250).await;
    let mut janitor = locks.janitor().every(secs(60)).batch(100).spawn().unwrap();
    for round in 1..=2 {
        while clock.next_wake().is_none() {
            tokio::task::yield_now().await;
        }
        clock.advance(secs(60));
        let report = janitor.next_round().await.unwrap();
        assert_eq!(report.rounds, round);
        assert_eq!(counts(report.purged), (250, 0, 3 + usize::from(round == 2)));
    }
}

#[tokio::test(start_paused = true)]
async fn its_arguments_are_checked_first() {
    let store = Flaky::new();
    let locks = store.locks();
    let refused = |every, batch, fragment: &str| {
        let error = locks.janitor().every(every).batch(batch).spawn().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains(fragment), "{error}");
    };
    refused(ms(999), 100, "at least 1s");
    refused(secs(1), 0, "1 to 1000");
    refused(secs(1), 1_001, "1 to 1000");
    let error = locks.purge(Filter::default(), 0).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    drop(locks.janitor().every(Duration::MAX).batch(1_000).spawn().unwrap());
}

#[test]
fn outside_a_runtime_the_error_names_what_it_needs() {
    let locks = Locker::new(LocalStore::new());
    let error = locks.janitor().spawn().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unexpected);
    assert!(error.to_string().contains("tokio runtime"), "{error}");
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn on_sqlite_only_expired_records_go_while_others_renew() {
    use leasehold::Mode;
    use leasehold::store::Store as _;
    use leasehold_testkit::requests::{acquire_for, granted};

    let folder = leasehold_testkit::new_directory().unwrap();
    let url = format!("sqlite:{}", folder.path().join("locks.db").display());
    let (locks, others) =
        (Locker::connect(&url).await.unwrap(), Locker::connect(&url).await.unwrap());
    let mut live = Vec::new();
    for number in 0..5 {
        // Renewed several times while the janitor works, but not so short that a slow disk loses one.
        live.push(others.lock(format!("live-{number}")).ttl(secs(6)).await.unwrap());
    }
    // Past the `Locker`, which would release what has ended before it leaves it.
    let store = leasehold_sqlite::SqliteStore::connect(&url).await.unwrap();
    for number in 0..25 {
        let left = acquire_for(&format!("left-{number}"), "of nobody", Mode::Exclusive, ms(20));
        granted(store.acquire(&left).await);
    }
    let mut janitor = locks.janitor().every(Janitor::MIN_INTERVAL).batch(10).spawn().unwrap();
    let mut renewed = live[0].events();
    // On a slow machine the records expire over several rounds; each report is the total so far.
    let mut purged = janitor.next_round().await.unwrap().purged;
    while purged.records_removed < 25 {
        purged = janitor.next_round().await.unwrap().purged;
    }
    assert!(purged.records_removed == 25 && purged.batches >= 3, "{purged:?}");
    assert!(renewed.next().await.is_some());
    for guard in live {
        assert!(guard.verify().await.unwrap());
    }
    assert_eq!(janitor.stop().await.failed_rounds, 0);
    let left = locks.list(Filter::default().with_prefix("left-").with_expired(Expired::In)).await;
    assert_eq!(left.unwrap().records, []);
}

#[test]
fn purges_and_rounds_are_counted() {
    use metrics_util::debugging::{DebugValue, DebuggingRecorder};

    let recorder = DebuggingRecorder::new();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    metrics::with_local_recorder(&recorder, || {
        runtime.block_on(async {
            let store = Flaky::new();
            let locks = store.locks();
            leave(&locks, 7).await;
            tokio::time::sleep(secs(10)).await;
            let mut janitor = locks.janitor().every(secs(1)).batch(2).spawn().unwrap();
            store.on_look([Fault::Unreachable]);
            janitor.next_round().await.unwrap();
            janitor.next_round().await.unwrap();
        });
    });
    let counted = recorder.snapshotter().snapshot().into_vec();
    for (name, label, wanted) in [
        ("leasehold_purged_total", "records", 7),
        ("leasehold_janitor_rounds_total", "done", 1),
        ("leasehold_janitor_rounds_total", "failed", 1),
    ] {
        let found = counted.iter().find(|(key, ..)| {
            key.key().name() == name && key.key().labels().any(|l| l.value() == label)
        });
        let Some((.., DebugValue::Counter(count))) = found else { panic!("{name} {label}") };
        assert_eq!(*count, wanted, "{name} {label}");
    }
}
