//! F11: the thread that serves a blocking `Locker`: when it ends, and what must outlive it.

use std::cell::RefCell;
use std::sync::mpsc;
use std::thread;

use crate::support::blocking::{LONG, in_time, store};
use crate::support::{Fault, ms, secs};
use leasehold::blocking::Locker;
use leasehold::{Effect, ErrorKind, Janitor, Wait};

thread_local! {
    static END: RefCell<Option<EndOfThread>> = const { RefCell::new(None) };
}

/// Reports when its thread ends.
struct EndOfThread(mpsc::Sender<()>);

impl Drop for EndOfThread {
    fn drop(&mut self) {
        self.0.send(()).unwrap_or_default();
    }
}

/// Leaves a signal on the thread that serves `locks`, through what it calls between two tries.
fn end_of_thread(locks: &Locker) -> mpsc::Receiver<()> {
    let (end, ended) = mpsc::channel();
    let held = locks.lock("signal").take().unwrap();
    let mut end = Some(end);
    let pause = move |_| {
        END.set(end.take().map(EndOfThread));
        None
    };
    let error = locks.lock("signal").wait(Wait::Attempts(9)).backoff(pause).take().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    held.release().unwrap();
    ended
}

#[test]
fn the_thread_ends_with_the_last_handle_and_not_before_its_work_is_done() {
    let (store, locks, others) = store();
    let ended = end_of_thread(&locks);
    let again = locks.clone();
    let job = locks.group("job").unwrap();
    let guard = locks.lock("k").ttl(secs(3_600)).take().unwrap();
    drop((locks, again, job));
    guard.renew().unwrap();
    assert_eq!(ended.try_recv(), Err(mpsc::TryRecvError::Empty));
    store.on_release([Fault::SlowRequest(ms(300)), Fault::LostRequest]);
    drop(guard);
    ended.recv_timeout(LONG).expect("the thread ends");
    assert!(!others.is_held("k").unwrap(), "what was left behind is done first");
}

#[test]
fn the_thread_ends_with_a_janitor_that_was_the_last_handle() {
    let (_store, locks, _others) = store();
    let ended = end_of_thread(&locks);
    let mut janitor = locks.janitor().every(Janitor::MIN_INTERVAL).batch(10).spawn().unwrap();
    drop(locks);
    let report = janitor.next_round().unwrap().expect("it continues");
    assert!((1..=janitor.report().rounds).contains(&report.rounds), "{report:?}");
    assert!(janitor.stop().unwrap().error.is_none());
    ended.recv_timeout(LONG).expect("the thread ends");
}

#[test]
fn a_blocking_call_on_the_thread_itself_is_refused() {
    let (_store, locks, others) = store();
    let _held = others.lock("k").take().unwrap();
    let (sender, replies) = mpsc::channel();
    let asks = {
        let locks = locks.clone();
        move |_| {
            sender.send(locks.is_held("k")).unwrap_or_default();
            None
        }
    };
    let waiting = locks.lock("k").backoff(asks);
    in_time(|| waiting.take().unwrap_err());
    let error = replies.recv_timeout(LONG).unwrap().unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unexpected, Effect::NotApplied));
    assert!(error.to_string().contains("wait for itself"), "{error}");
    assert!(locks.is_held("k").unwrap(), "others are served");
}

#[test]
fn a_panic_of_the_store_or_of_a_backoff_ends_one_call_with_an_error() {
    let (store, locks, _others) = store();
    let other = locks.lock("other").take().unwrap();
    store.on_acquire([Fault::Panic]);
    let panics = locks.lock("k");
    let error = in_time(|| panics.take().unwrap_err());
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unexpected, Effect::Unknown));
    assert!(error.to_string().contains("panic"), "{error}");
    let panics = locks.lock("other").backoff(|_| panic!("planted in a backoff"));
    let error = in_time(|| panics.take().unwrap_err());
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unexpected, Effect::Unknown));
    assert!(error.to_string().contains("panic"), "{error}");
    locks.lock("k").wait(LONG).take().unwrap().release().unwrap();
    assert!(other.verify().unwrap());
}

/// Runs the named test in its own process, with `ALONE` set; returns its output.
fn alone(name: &str) -> Result<String, mpsc::RecvTimeoutError> {
    use std::io::Read;
    use std::process::{Command, Stdio};

    let this = std::env::current_exe().unwrap();
    let mut child = Command::new(this)
        .args(["--exact", name, "--nocapture"])
        .env(ALONE, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let (end, ended) = mpsc::channel();
    thread::spawn(move || {
        let mut text = String::new();
        stdout.read_to_string(&mut text).unwrap();
        end.send(text).unwrap_or_default();
    });
    let text = ended.recv_timeout(LONG);
    if text.is_err() {
        child.kill().unwrap();
    }
    child.wait().unwrap();
    text
}

/// Set for a process that a test runs in alone.
const ALONE: &str = "LEASEHOLD_TEST_ALONE";

#[test]
fn a_process_exits_at_once_with_live_guards_and_a_release_that_hangs() {
    if std::env::var_os(ALONE).is_none() {
        let printed = alone(
            "blocking_thread::a_process_exits_at_once_with_live_guards_and_a_release_that_hangs",
        );
        assert!(printed.expect("it ends").contains("goes"));
        return;
    }
    let (store, locks, _others) = store();
    let _live = locks.lock("live").take().unwrap();
    let dropped = locks.lock("dropped").take().unwrap();
    store.down(Fault::Hung);
    drop(dropped);
    println!("goes");
    std::process::exit(0);
}

#[cfg(target_os = "linux")]
#[test]
fn a_call_in_a_forked_process_is_refused_and_does_not_hang() {
    if std::env::var_os(ALONE).is_none() {
        let printed =
            alone("blocking_thread::a_call_in_a_forked_process_is_refused_and_does_not_hang");
        let printed = printed.expect("it ends");
        assert_eq!(printed.matches("create the Locker after the fork").count(), 2, "{printed}");
        assert!(printed.contains("goes"), "{printed}");
        return;
    }
    let (_store, locks, _others) = store();
    let guard = locks.lock("k").take().unwrap();
    let dropped = locks.lock("dropped").take().unwrap();
    // At the fork its thread is busy, and has locked what is never unlocked in the child.
    let busy = locks.clone();
    let (began, begins) = mpsc::channel();
    thread::spawn(move || {
        for round in 0_u64.. {
            drop(busy.lock("busy").take());
            began.send(round).unwrap_or_default();
        }
    });
    begins.iter().find(|round| *round == 9).unwrap();
    nix::unistd::daemon(true, true).unwrap();
    // A process that hangs must not stay behind.
    nix::unistd::alarm::set(30);
    println!("{}", locks.lock("other").take().unwrap_err());
    println!("{}", guard.release().unwrap_err());
    drop((dropped, locks));
    println!("goes");
    std::process::exit(0);
}
