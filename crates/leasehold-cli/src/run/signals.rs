//! The signals that `run` receives.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::task::Poll;

use nix::sys::signal::{SigSet, SigmaskHow, Signal, raise};
use nix::unistd::getpgrp;
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

use crate::process::family::reap_all;
use crate::process::is_orphaned;

/// The signals that end the wait for a lock.
const ENDING: [Signal; 4] = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT];

/// The signals without which we would not learn of the command at all.
const NEEDED: [Signal; 2] = [Signal::SIGCHLD, Signal::SIGCONT];

/// The signals that matter only once there is a command. A stop from the terminal is passed on too: the command
/// stops, then `leasehold`.
const WHILE_RUNNING: [Signal; 5] =
    [Signal::SIGUSR1, Signal::SIGUSR2, Signal::SIGWINCH, Signal::SIGTSTP, Signal::SIGCONT];

/// A stream of the signals that this process receives.
///
/// A signal that was ignored when the process started stays ignored, and the command inherits that: this is
/// what makes `nohup leasehold run …` work.
#[derive(Debug)]
pub(crate) struct Signals {
    streams: Vec<(Signal, Stream)>,
    ignored: u64,
    /// A signal arrived that ends the wait for the end.
    pub(super) hurried: bool,
}

impl Signals {
    /// Starts to listen for the signals that end a wait, and of orphans: the first process of a container gets all.
    pub(crate) fn listen() -> io::Result<Self> {
        let mut signals = Self { streams: Vec::new(), ignored: ignored_at_start(), hurried: false };
        signals.add(&ENDING)?;
        signals.add(&[Signal::SIGCHLD])?;
        // Those that have ended by now.
        reap_all();
        Ok(signals)
    }

    /// Starts to listen for all signals that concern a running command.
    pub(crate) fn listen_for_command(&mut self) -> io::Result<()> {
        self.add(&WHILE_RUNNING)
    }

    /// The next signal.
    ///
    /// # Cancel safety
    /// Nothing is lost when it is dropped.
    pub(crate) async fn next(&mut self) -> Signal {
        poll_fn(|context| {
            for (signal, stream) in &mut self.streams {
                if stream.poll_recv(context).is_ready() {
                    return Poll::Ready(*signal);
                }
            }
            Poll::Pending
        })
        .await
    }

    /// The next signal that ends a wait, while this process has no child of its own. It obeys a stop and reaps orphans;
    /// the others, which are listened for once a command has run, do not concern a wait.
    ///
    /// # Cancel safety
    /// Nothing is lost when it is dropped.
    pub(crate) async fn next_ending(&mut self) -> Signal {
        loop {
            match self.next().await {
                signal if ENDING.contains(&signal) => return signal,
                Signal::SIGTSTP if !nobody_continues_us() => {
                    // Fails only for a signal that does not exist.
                    let _ = raise(Signal::SIGSTOP);
                }
                Signal::SIGCHLD => reap_all(),
                _ => {}
            }
        }
    }

    fn add(&mut self, wanted: &[Signal]) -> io::Result<()> {
        for &wanted in wanted {
            let needed = NEEDED.contains(&wanted);
            let is_received = self.streams.iter().any(|(signal, _)| *signal == wanted);
            if !is_received && (needed || self.ignored & bit(wanted) == 0) {
                let stream = signal(SignalKind::from_raw(wanted as i32))?;
                self.streams.push((wanted, stream));
            }
        }
        Ok(())
    }
}

/// True if no shell would continue this process's group after a stop. The kernel does not stop such a group from
/// the keyboard.
pub(super) fn nobody_continues_us() -> bool {
    is_orphaned(getpgrp())
}

fn bit(signal: Signal) -> u64 {
    1 << (signal as i32 - 1)
}

/// Makes a write fail that would let a file grow beyond its limit, where it would end this process. The result becomes
/// true when that happens. For the command the signal stays what it was.
pub(crate) fn survive_file_size_limit() -> io::Result<Arc<AtomicBool>> {
    let reached = Arc::default();
    if ignored_at_start() & bit(Signal::SIGXFSZ) == 0 {
        signal_hook::flag::register(Signal::SIGXFSZ as i32, Arc::clone(&reached))?;
    }
    Ok(reached)
}

/// The set of ignored signals.
fn ignored_at_start() -> u64 {
    std::fs::read_to_string("/proc/self/status").map_or(0, |status| ignored(&status))
}

fn ignored(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// The signal mask that `leasehold` needs, which its command does not get.
///
/// A background process that writes to its terminal, or takes the terminal back from a command that has ended, is
/// stopped by `SIGTTOU` unless it blocks that signal. A stopped `leasehold` renews nothing. The signals in [`NEEDED`]
/// may be blocked by the process that started this one.
#[derive(Debug)]
pub(crate) struct SignalMask {
    original: SigSet,
}

impl SignalMask {
    /// Sets it in this thread and the threads that it starts from now on.
    pub(crate) fn set() -> nix::Result<Self> {
        let original = SigSet::from(Signal::SIGTTOU).thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
        NEEDED.into_iter().collect::<SigSet>().thread_unblock()?;
        Ok(Self { original })
    }

    /// Runs `spawn` in this thread under the signal mask that the process was started with, so that the spawned
    /// process inherits that mask.
    pub(crate) fn lifted<T>(&self, spawn: impl FnOnce() -> T) -> nix::Result<T> {
        let ours = self.original.thread_swap_mask(SigmaskHow::SIG_SETMASK)?;
        let spawned = spawn();
        ours.thread_set_mask()?;
        Ok(spawned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mask_of_ignored_signals_is_read() {
        let mask = ignored("Name:\tx\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\n");
        assert_ne!(mask & bit(Signal::SIGHUP), 0);
        assert_ne!(mask & bit(Signal::SIGPIPE), 0);
        assert_eq!(mask & bit(Signal::SIGINT), 0);
        assert_eq!(ignored("no such line"), 0);
    }

    #[test]
    fn the_mask_is_the_original_one_only_inside() {
        let blocked = || {
            let mask = SigSet::thread_get_mask().unwrap();
            [Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGTTOU].map(|signal| mask.contains(signal))
        };
        std::thread::spawn(move || {
            [Signal::SIGCHLD, Signal::SIGTERM]
                .into_iter()
                .collect::<SigSet>()
                .thread_block()
                .unwrap();
            let mask = SignalMask::set().unwrap();
            assert_eq!(blocked(), [false, true, true]);
            assert_eq!(mask.lifted(blocked).unwrap(), [true, true, false]);
            assert_eq!(blocked(), [false, true, true]);
        })
        .join()
        .unwrap();
    }
}
