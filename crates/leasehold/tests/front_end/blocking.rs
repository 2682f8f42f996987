//! F11: callers without async, alone and inside an async runtime.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use crate::support::blocking::{LONG, in_time, store};
use crate::support::{Fault, Flaky, ms, secs};
use leasehold::blocking::{Guard, Locker};
use leasehold::inspect::{EvictRequest, EvictTarget, Filter, ListRequest, Record};
use leasehold::{
    Claim, Claims, Error, ErrorKind, Event, Keepalive, Key, Level, LocalStore, LostReason,
    ManualClock, Mode, ReleaseOutcome, Remaining, Wait,
};
use tokio::runtime::{Builder, Runtime};

fn current_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn multi_thread() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

/// Ends the lease on `key` as an operator would.
fn evict(others: &Locker, key: &str) {
    let seen: Vec<EvictTarget> = others.status(key).unwrap().iter().map(EvictTarget::of).collect();
    assert_eq!(others.evict(&EvictRequest::exactly(seen, None)).unwrap().removed.len(), 1);
}

/// One of everything that a caller may ask for.
fn everything(locks: &Locker) {
    assert!(locks.capabilities().tokens);
    locks.prepare().unwrap();
    assert_eq!(locks.check().unwrap().level, Level::Fenced);

    let guard = locks.lock("k").ttl(secs(20)).comment("why").take().unwrap();
    assert_eq!(locks.level(), Level::Fenced);
    assert!(guard.is_fresh() && guard.is_held() && guard.ensure_held().is_ok());
    assert!(matches!(guard.remaining(), Remaining::For(left) if left > secs(10)));
    assert!(guard.verify().unwrap());
    assert!(matches!(guard.renew().unwrap(), Remaining::For(left) if left > secs(10)));
    assert!(locks.try_lock("k").take().unwrap().is_none());
    assert!(locks.is_held("k").unwrap());
    assert_eq!(locks.status("k").unwrap()[0].note.comment(), Some("why"));
    let id = |records: &[Record]| records[0].id.clone().unwrap();
    assert_eq!(id(&locks.list(Filter::default()).unwrap().records), guard.lease().id);
    let page = locks.list_page(&ListRequest::new(Filter::default()).with_limit(1)).unwrap();
    assert_eq!(id(&page.records), guard.lease().id);

    let lease = guard.detach();
    let guard = locks.adopt(lease).unwrap();
    assert!(!guard.is_fresh() && guard.token().is_some());
    let lease = guard.detach();
    let guard = locks.acquire_or_renew(lease).take().unwrap();
    assert!(!guard.is_fresh());
    assert!(matches!(guard.release().unwrap().outcome, ReleaseOutcome::Released));
    assert!(!locks.is_held("k").unwrap());

    let both = locks.lock_all(["a", "b"]).take().unwrap();
    assert!(locks.try_lock("a").take().unwrap().is_none());
    both.release().unwrap();
    let mixed = Claims::new([
        Claim { key: Key::new("x").unwrap(), mode: Mode::Exclusive },
        Claim { key: Key::new("y").unwrap(), mode: Mode::SHARED },
    ]);
    let mixed = locks.lock_claims(mixed.unwrap()).take().unwrap();
    locks.lock("y").shared().wait(Wait::No).take().unwrap().release().unwrap();
    evict_one(locks, "x");
    assert_eq!(mixed.renew().unwrap_err().kind(), ErrorKind::Lost);
    assert!(matches!(mixed.release().unwrap().outcome, ReleaseOutcome::NotHeld));

    let job = locks.group("job-7").unwrap();
    let (one, two) = (job.lock("one").take().unwrap(), job.lock_all(["two"]).take().unwrap());
    assert!(job.try_lock("one").take().unwrap().is_none());
    assert_eq!((job.leases().len(), job.list().unwrap().records.len()), (2, 2));
    assert!(job.renew().unwrap().iter().all(|(_, outcome)| outcome.is_ok()));
    assert_eq!(job.release().unwrap().len(), 2);
    assert!(!one.is_held() && !two.is_held());

    let (value, released) = locks.with_lock("k", |guard| guard.token()).unwrap();
    assert!(value.is_some() && matches!(released.outcome, ReleaseOutcome::Released));
    assert_eq!(locks.purge(Filter::default(), 10).unwrap().records_removed, 0);
    drop(locks.janitor().spawn().unwrap());
    locks.close(LONG).unwrap();
    assert_eq!(locks.lock("k").take().unwrap_err().kind(), ErrorKind::Closed);
}

fn evict_one(locks: &Locker, key: &str) {
    evict(locks, key);
    assert!(!locks.is_held(key).unwrap());
}

#[test]
fn without_a_runtime_everything_works() {
    everything(&Locker::new(LocalStore::new()));
}

#[test]
fn inside_a_current_thread_runtime_everything_works() {
    current_thread().block_on(async { everything(&Locker::new(LocalStore::new())) });
}

#[test]
fn on_a_worker_of_a_multi_thread_runtime_everything_works() {
    let runtime = multi_thread();
    let worker = async { everything(&Locker::new(LocalStore::new())) };
    runtime.block_on(async { crate::support::spawn(worker).await.unwrap() });
}

#[test]
fn in_spawn_blocking_everything_works() {
    current_thread().block_on(async {
        let blocking = tokio::task::spawn_blocking(|| everything(&Locker::new(LocalStore::new())));
        blocking.await.unwrap();
    });
}

#[cfg(feature = "sqlite")]
#[test]
fn on_sqlite_everything_works_inside_and_outside_of_runtimes() {
    let folder = tempfile::tempdir().unwrap();
    let url = |name| format!("sqlite:{}", folder.path().join(name).display());
    everything(&Locker::connect(&url("outside")).unwrap());
    current_thread().block_on(async { everything(&Locker::connect(&url("inside")).unwrap()) });
}

#[test]
fn on_the_only_worker_a_wait_ends_when_another_thread_releases() {
    for runtime in [current_thread(), multi_thread()] {
        let (_store, locks, others) = store();
        let held = others.lock("k").take().unwrap();
        let (waiting, waits) = mpsc::channel();
        let releases = thread::spawn(move || {
            waits.recv().unwrap();
            held.release().unwrap();
        });
        let worker = async move {
            let pause = move |_| {
                waiting.send(()).unwrap_or_default();
                Some(ms(1))
            };
            drop(locks.lock("k").backoff(pause).wait(LONG).take().unwrap());
            // Released in the background although this worker only waits.
            locks.lock("k").ttl(secs(3_600)).wait(LONG).take().unwrap().release().unwrap();
        };
        runtime.block_on(async { crate::support::spawn(worker).await.unwrap() });
        releases.join().unwrap();
    }
}

#[test]
fn beside_its_async_locker_it_waits_for_nothing_on_the_blocked_thread() {
    let (store, _, others) = store();
    let held = others.lock("k").take().unwrap();
    let (waiting, waits) = mpsc::channel();
    let releases = thread::spawn(move || {
        waits.recv().unwrap();
        held.release().unwrap();
    });
    in_time(move || {
        current_thread().block_on(async move {
            // The async one has started on this runtime, and its caller waits first.
            let locks = store.locks();
            let first = locks.lock("k").wait(Wait::Forever);
            let first = crate::support::spawn(async move { first.await.unwrap().release().await });
            store.until_acquires(1).await;

            let blocks = Locker::from(locks.clone());
            let pause = move |_| {
                waiting.send(()).unwrap_or_default();
                Some(ms(1))
            };
            let guard = blocks.lock("k").ttl(secs(3)).backoff(pause).wait(secs(10)).take().unwrap();
            let renewed = guard.events().take(3).collect::<Vec<_>>();
            assert!(
                renewed.iter().all(|event| matches!(event, Event::Renewed { .. })),
                "{renewed:?}"
            );
            guard.release().unwrap();
            first.await.unwrap().unwrap();

            blocks.close(LONG).unwrap();
            locks.lock("k").await.unwrap().release().await.unwrap();
        });
    });
    releases.join().unwrap();
}

#[test]
fn many_threads_increment_a_non_atomic_counter_exactly() {
    const THREADS: u64 = 8;
    const ROUNDS: u64 = 25;
    let counted = in_time(|| {
        let locks = Locker::new(LocalStore::new());
        let counter = AtomicU64::new(0);
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for _ in 0..ROUNDS {
                        let guard = locks.lock("counter").wait(LONG).take().unwrap();
                        let before = counter.load(Ordering::Relaxed);
                        thread::yield_now();
                        counter.store(before + 1, Ordering::Relaxed);
                        guard.release().unwrap();
                    }
                });
            }
        });
        counter.into_inner()
    });
    assert_eq!(counted, THREADS * ROUNDS);
}

#[test]
fn a_guard_may_be_shared_with_sent_to_and_dropped_in_another_thread() {
    let (_store, locks, others) = store();
    let guard = Arc::new(locks.lock("k").take().unwrap());
    let shared = Arc::clone(&guard);
    thread::spawn(move || {
        assert!(shared.is_held());
        shared.renew().unwrap();
    })
    .join()
    .unwrap();
    let guard = Arc::into_inner(guard).unwrap();
    let token = guard.token();
    thread::spawn(move || drop(guard)).join().unwrap();
    assert!(others.lock("k").wait(LONG).take().unwrap().token() > token);
}

#[test]
fn a_dropped_guard_is_released_in_the_background_inside_and_outside_of_runtimes() {
    let drop_it = |guard: Guard| drop(guard);
    let within = |guard: Guard| current_thread().block_on(async { drop(guard) });
    for leave in [&drop_it as &dyn Fn(Guard), &within] {
        let (store, locks, others) = store();
        let guard = locks.lock("k").ttl(secs(3_600)).take().unwrap();
        store.on_release([Fault::SlowRequest(secs(2))]);
        leave(guard);
        assert!(others.is_held("k").unwrap(), "not waited for");
        others.lock("k").wait(LONG).take().unwrap().release().unwrap();
    }
}

#[test]
fn with_lock_releases_before_a_panic_continues() {
    let (store, locks, others) = store();
    store.on_release([Fault::SlowRequest(ms(300))]);
    let work = || locks.with_lock("k", |_| -> u32 { panic!("in the critical section") });
    let panic = catch_unwind(AssertUnwindSafe(work)).unwrap_err();
    assert_eq!(panic.downcast_ref(), Some(&"in the critical section"));
    assert!(!others.is_held("k").unwrap());
}

#[test]
fn with_lock_returns_the_value_and_how_the_hold_ended() {
    let (store, locks, others) = store();
    let (value, released) = locks.with_lock("k", |_| 1).unwrap();
    assert!(value == 1 && matches!(released.outcome, ReleaseOutcome::Released));
    let (value, released) = locks
        .with_lock("k", |guard| {
            evict(&others, "k");
            guard.renew().unwrap_err();
            2
        })
        .unwrap();
    assert!(
        value == 2 && matches!(released.outcome, ReleaseOutcome::NotHeld),
        "an overrun: {released:?}"
    );
    store.on_release([Fault::LostRequest]);
    let (value, released) = locks.with_lock("k", |_| 3).unwrap();
    assert!(value == 3 && matches!(released.outcome, ReleaseOutcome::Failed(_)), "{released:?}");
    let _held = others.lock("k").wait(LONG).take().unwrap();
    store.on_acquire([Fault::Denied]);
    let refused = locks.with_lock("k", |_| panic!("not locked")).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Denied);
}

/// The results of one lock for an async and a blocking caller.
fn both(
    prepare: impl Fn(&Flaky),
    lock: impl Fn(&leasehold::Locker) -> leasehold::LockRequest,
    blocking: impl Fn(&Locker) -> leasehold::LockRequest<Guard>,
) -> (Error, Error) {
    let error = |ask: &dyn Fn(&Flaky) -> Error| {
        let store = Flaky::in_real_time();
        prepare(&store);
        ask(&store)
    };
    let awaits = |store: &Flaky| {
        current_thread().block_on(async { lock(&store.locks()).await.unwrap_err() })
    };
    let takes = |store: &Flaky| blocking(&Locker::from(store.locks())).take().unwrap_err();
    (error(&awaits), error(&takes))
}

#[test]
fn errors_and_time_outs_are_those_of_the_async_api() {
    let taken = |store: &Flaky| {
        let others = Locker::from(store.others());
        drop(others.lock("k").ttl(secs(3_600)).take().unwrap().detach());
    };
    let fine = |_: &Flaky| {};
    for (one, other) in [
        both(taken, |l| l.lock("k").wait(Wait::No), |l| l.lock("k").wait(Wait::No)),
        both(taken, |l| l.lock("k").wait(ms(50)), |l| l.lock("k").wait(ms(50))),
        both(fine, |l| l.lock(""), |l| l.lock("")),
        both(fine, |l| l.lock("k").permits(0), |l| l.lock("k").permits(0)),
        both(fine, |l| l.lock_all(Vec::<Key>::new()), |l| l.lock_all(Vec::<Key>::new())),
        both(|store| store.on_acquire([Fault::Denied]), |l| l.lock("k"), |l| l.lock("k")),
    ] {
        let facts = |error: &Error| {
            let wait = error
                .wait_report()
                .map(|wait| (wait.key.clone(), format!("{:?}", wait.cause), wait.holder.is_some()));
            (error.kind(), error.effect(), error.is_retryable(), wait)
        };
        assert_eq!(facts(&one), facts(&other));
        if one.wait_report().is_none() {
            assert_eq!(one.to_string(), other.to_string());
        }
    }
}

#[test]
fn leases_are_renewed_while_the_callers_thread_computes() {
    let (store, locks, others) = store();
    let guard = locks.lock("k").ttl(secs(3)).take().unwrap();
    let token = guard.token();
    let begun = store.now();
    // Longer than its TTL, measured by the requests that reached the store; the thread itself calls nothing of
    // Leasehold.
    let mut spun = 0_u64;
    while store.renews().len() < 4 {
        spun = std::hint::black_box(spun + 1);
        assert!(store.now() - begun < LONG, "never renewed");
    }
    assert!(guard.is_held() && guard.verify().unwrap());
    assert_eq!(guard.token(), token);
    assert!(others.try_lock("k").take().unwrap().is_none());
}

#[test]
fn loss_is_seen_by_the_clock_by_a_wait_and_by_events() {
    let (store, locks, others) = store();
    // Long enough for a renewal to be tried in time on a busy machine: otherwise it is only `Expired`.
    let guard = locks.lock("k").ttl(secs(3)).take().unwrap();
    let events = guard.events();
    assert_eq!(guard.lost(ms(1)).unwrap(), None, "the limit comes first");
    store.down(Fault::Unreachable);
    assert_eq!(guard.lost(None).unwrap(), Some(LostReason::StoreUnreachable));
    assert!(!guard.is_held());
    assert_eq!(guard.ensure_held().unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(guard.remaining(), Remaining::For(Duration::ZERO));
    let events: Vec<Event> = events.collect();
    let [.., Event::Failed(_), Event::Lost(LostReason::StoreUnreachable), Event::Stopped] =
        &events[..]
    else {
        panic!("{events:?}")
    };
    store.up();
    let guard = locks.lock("other").ttl(secs(3)).wait(LONG).take().unwrap();
    evict(&others, "other");
    assert!(matches!(guard.lost(LONG).unwrap(), Some(LostReason::Evicted(_) | LostReason::Gone)));
    assert!(matches!(guard.release().unwrap().outcome, ReleaseOutcome::NotHeld));
}

#[test]
fn a_wait_for_loss_and_the_events_end_with_a_release() {
    let (_store, locks, _others) = store();
    let job = locks.group("job").unwrap();
    let guard = job.lock("k").take().unwrap();
    let mut events = guard.events();
    thread::scope(|scope| {
        let waits = scope.spawn(|| guard.lost(None).unwrap());
        job.release().unwrap();
        assert_eq!(waits.join().unwrap(), None);
    });
    assert!(matches!(events.next(), Some(Event::Stopped)));
    assert!(events.next().is_none() && events.next().is_none());
}

#[test]
fn close_from_another_thread_ends_a_wait() {
    let (_store, locks, others) = store();
    let _held = others.lock("k").take().unwrap();
    let (waiting, waits) = mpsc::channel();
    let pause = move |_| {
        waiting.send(()).unwrap_or_default();
        Some(ms(5))
    };
    let waiter = {
        let locks = locks.clone();
        thread::spawn(move || locks.lock("k").backoff(pause).wait(Wait::Forever).take())
    };
    waits.recv_timeout(LONG).unwrap();
    locks.close(LONG).unwrap();
    assert_eq!(waiter.join().unwrap().unwrap_err().kind(), ErrorKind::Closed);
}

#[test]
fn close_drains_dropped_guards() {
    let (store, locks, others) = store();
    store.on_release([Fault::SlowRequest(ms(300))]);
    drop(locks.lock("k").ttl(secs(3_600)).take().unwrap());
    locks.close(LONG).unwrap();
    assert!(!others.is_held("k").unwrap());
}

#[test]
fn on_a_manual_clock_nothing_waits() {
    let clock = ManualClock::new();
    let store = LocalStore::with_clock(Arc::new(clock.clone()));
    let locks = leasehold::Locker::builder(store).clock(Arc::new(clock.clone())).build();
    let locks = Locker::from(locks);
    let guard = locks.lock("k").ttl(secs(30)).keepalive(Keepalive::Off).take().unwrap();
    clock.advance(secs(30));
    assert!(!guard.is_held());
    assert_eq!(guard.lost(None).unwrap(), Some(LostReason::Expired));
}

#[test]
fn a_failed_connect_returns_only_its_own_error() {
    for (url, fragment) in [("nope://x", "not known here"), ("locks.db", "has no scheme")] {
        let error = Locker::connect(url).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains(fragment), "{error}");
    }
    let locks = Locker::connect("local:").unwrap();
    locks.lock("blocking-connect").take().unwrap().release().unwrap();
}
