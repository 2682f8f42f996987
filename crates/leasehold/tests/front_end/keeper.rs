//! F3: the Keeper survives panics and runtimes, and ends with its `Locker`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::{Fault, Flaky, Sent, ms, secs};
use leasehold::store::{Clock, SystemClock, TokioClock};
use leasehold::{Effect, ErrorKind, LocalStore, Locker, LostReason, Ttl};
use tokio::runtime::{Builder, Runtime};

fn runtime() -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime can be built")
}

#[tokio::test(start_paused = true)]
async fn a_store_that_panics_in_a_renewal_costs_no_other_lease() {
    let store = Flaky::new();
    let locks = store.locks();
    let endless = locks.lock("endless").ttl(Ttl::NEVER).await.unwrap();
    let short = locks.lock("short").ttl(secs(9)).await.unwrap();
    store.on_renew([Fault::Panic, Fault::Panic]);
    tokio::time::sleep(secs(100)).await;
    assert!(short.is_held() && endless.is_held());
    store.evict("endless", "x").await;
    assert!(matches!(endless.lost().await, LostReason::Evicted(_)), "it is still looked at");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_panics_in_an_acquire_or_a_release_costs_no_other_lease() {
    let store = Flaky::new();
    let locks = store.locks();
    let other = locks.lock("other").ttl(secs(9)).await.unwrap();
    store.on_acquire([Fault::Panic]);
    let error = locks.lock("k").await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unexpected, Effect::Unknown));
    assert!(error.to_string().contains("the store panicked"), "{error}");
    // Its effect is unknown.
    let abandoned = store.acquires().pop().unwrap();
    store.until(|log| log.contains(&Sent::Release(vec![abandoned.clone()]))).await;
    store.on_release([Fault::Panic]);
    drop(locks.lock("k").wait(secs(60)).await.unwrap());
    tokio::time::sleep(secs(100)).await;
    assert!(other.is_held());
    store.until_free("k").await;
}

#[tokio::test(start_paused = true)]
async fn a_store_that_panics_in_check_or_subscribe_ends_one_call_at_most() {
    let store = Flaky::new();
    let locks = store.locks();
    store.on_check([Fault::Panic]);
    let error = locks.lock("k").await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unexpected, Effect::NotApplied));
    assert!(error.to_string().contains("the store panicked"), "{error}");
    let _held = crate::support::taken(&store, "k", secs(60)).await;
    store.on_subscribe([Fault::Panic]);
    drop(locks.lock("k").wait(secs(120)).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_failed_manual_renewal_delays_no_other() {
    let store = Flaky::new();
    let locks = store.locks();
    let long = locks.lock("long").ttl(secs(300)).await.unwrap();
    tokio::time::sleep(secs(1)).await;
    store.on_renew([Fault::EntriesFailed]);
    long.renew().await.unwrap_err();
    let short = locks.lock("short").ttl(secs(6)).await.unwrap();
    tokio::time::sleep(secs(20)).await;
    assert!(short.is_held());
}

#[test]
fn a_request_of_a_runtime_that_ended_costs_no_other_lease() {
    let (caller, keeper) = (runtime(), runtime());
    let store = Flaky::in_real_time();
    let locks = store.locks();
    let guard = keeper.block_on(async { locks.lock("kept").ttl(secs(3)).await.unwrap() });
    store.on_acquire([Fault::SlowReply(ms(400))]);
    caller.block_on(async {
        let acquire = locks.lock("k").into_future();
        tokio::time::timeout(ms(50), acquire).await.unwrap_err();
    });
    drop(caller);
    keeper.block_on(async {
        tokio::time::sleep(secs(4)).await;
        assert!(guard.is_held(), "the Keeper lives");
        store.until_free("k").await;
    });
}

#[test]
fn the_next_keeper_does_what_a_runtime_left_undone() {
    let (first, second) = (runtime(), runtime());
    let store = Flaky::in_real_time();
    let locks = store.locks();
    let kept = first.block_on(async {
        store.on_release([Fault::SlowRequest(secs(60))]);
        drop(locks.lock("k").ttl(Ttl::NEVER).await.unwrap());
        store.until(|log| matches!(log.last(), Some(Sent::Release(_)))).await;
        locks.lock("kept").ttl(secs(3)).await.unwrap()
    });
    drop(first);
    second.block_on(async {
        locks.close(secs(5)).await.unwrap();
        assert!(store.is_free("k").await, "closed means released");
        tokio::time::sleep(secs(4)).await;
        assert!(kept.is_held(), "renewed by the Keeper that `close` started");
    });
}

#[test]
fn without_timers_the_error_names_them() {
    let runtime = Builder::new_current_thread().build().unwrap();
    let locks = Locker::new(LocalStore::new());
    let error = runtime.block_on(async { locks.lock("k").await.unwrap_err() });
    assert_eq!(error.kind(), ErrorKind::Unexpected);
    assert!(error.to_string().contains("enable_time"), "{error}");
}

/// Run it alone: the hook is that of the whole process.
#[test]
#[ignore = "tokio 1.54 reports only by a panic that a runtime has no timers"]
fn without_timers_the_panic_hook_sees_nothing() {
    static SEEN: AtomicUsize = AtomicUsize::new(0);
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {
        SEEN.fetch_add(1, Ordering::SeqCst);
    }));
    without_timers_the_error_names_them();
    std::panic::set_hook(usual);
    assert_eq!(SEEN.load(Ordering::SeqCst), 0);
}

/// Set for a process that a test runs in alone.
#[cfg(target_os = "linux")]
const ALONE: &str = "LEASEHOLD_TEST_ALONE";

#[cfg(target_os = "linux")]
#[test]
fn a_forked_process_acquires_no_lock_that_nobody_would_renew() {
    if std::env::var_os(ALONE).is_none() {
        let name = "keeper::a_forked_process_acquires_no_lock_that_nobody_would_renew";
        let mut alone = std::process::Command::new(std::env::current_exe().unwrap());
        let printed =
            alone.args(["--exact", name, "--nocapture"]).env(ALONE, "1").output().unwrap();
        let printed = String::from_utf8(printed.stdout).unwrap();
        assert!(printed.contains("Unexpected (effect NotApplied)"), "{printed}");
        assert!(printed.contains("create the Locker after the fork"), "{printed}");
        assert!(
            printed.contains("the parent's guard is held here: false, Some(Closed)"),
            "{printed}"
        );
        return;
    }
    let store = Flaky::in_real_time();
    let locks = store.locks();
    let before = runtime();
    let guard = before.block_on(async { locks.lock("g").await.unwrap() });
    assert!(guard.is_held());
    // A fork does not copy its threads.
    std::mem::forget(before);
    nix::unistd::daemon(true, true).unwrap();
    // A process that hangs must not stay behind.
    nix::unistd::alarm::set(60);
    let after = Builder::new_current_thread().enable_time().build().unwrap();
    println!("{:?}", after.block_on(async { locks.lock("k").await.map(drop) }));
    let kind = guard.ensure_held().err().map(|error| error.kind());
    println!("the parent's guard is held here: {}, {kind:?}", guard.is_held());
    std::process::exit(0);
}

#[tokio::test(start_paused = true)]
async fn the_keeper_ends_with_its_locker() {
    let clock = Arc::new(TokioClock::new());
    let weak = Arc::downgrade(&clock);
    let store = LocalStore::new();
    let locks = Locker::builder(store).clock(clock).build();
    let guard = locks.lock("k").await.unwrap();
    drop(locks);
    tokio::time::sleep(secs(100)).await;
    assert!(weak.upgrade().is_some() && guard.is_held());
    drop(guard);
    tokio::time::sleep(secs(100)).await;
    assert!(weak.upgrade().is_none(), "nothing holds the clock any more");
}

#[tokio::test(start_paused = true)]
async fn the_keeper_ends_with_its_locker_even_without_work() {
    let clock = Arc::new(TokioClock::new());
    let weak = Arc::downgrade(&clock);
    let locks = Locker::builder(LocalStore::new()).clock(clock).build();
    locks.lock("k").await.unwrap().release().await.unwrap();
    tokio::time::sleep(secs(100)).await;
    drop(locks);
    tokio::time::sleep(secs(100)).await;
    assert!(weak.upgrade().is_none());
}

/// Boot time that continues while timers stand still, as after a sleep of the machine.
#[derive(Debug)]
struct Sleepy(std::sync::Mutex<Duration>);

impl Clock for Sleepy {
    fn now(&self) -> Duration {
        SystemClock::new().now() + *self.0.lock().expect("nobody panics while it is locked")
    }

    fn wall_micros(&self) -> u64 {
        SystemClock::new().wall_micros()
    }

    fn sleep_until(&self, _at: Duration) -> leasehold_core::BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }
}

#[tokio::test]
async fn work_does_not_continue_after_the_machine_slept_past_the_term() {
    let clock = Arc::new(Sleepy(std::sync::Mutex::default()));
    let locks = Locker::builder(LocalStore::new()).clock(clock.clone()).build();
    let guard = locks.lock("k").ttl(secs(3_600)).await.unwrap();
    let mut steps = 0;
    let work = async {
        for step in 1..=100 {
            steps = step;
            if step == 3 {
                *clock.0.lock().unwrap() = secs(10_000);
            }
            tokio::task::yield_now().await;
        }
    };
    let ended: leasehold::Result<()> = guard.run(work).await;
    assert_eq!(ended.unwrap_err().lost_reason(), Some(&LostReason::Expired));
    assert_eq!(steps, 3);
}
