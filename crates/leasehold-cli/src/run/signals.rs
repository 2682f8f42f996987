//! The signals that `run` receives.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use nix::sys::signal::{SigSet, SigmaskHow, Signal, raise};
use nix::unistd::getpgrp;
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

use crate::shim::is_orphaned;

/// The signals that end the wait for a lock.
const ENDING: [Signal; 4] = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT];

/// The signals that matter only once there is a command. A stop from the terminal is passed on too: the command
/// stops, then `leasehold`.
const WHILE_RUNNING: [Signal; 6] = [
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGWINCH,
    Signal::SIGTSTP,
    Signal::SIGCONT,
    Signal::SIGCHLD,
];

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
    /// Starts to listen for the signals that end a wait.
    pub(crate) fn listen() -> io::Result<Self> {
        let mut signals = Self { streams: Vec::new(), ignored: ignored_at_start(), hurried: false };
        signals.add(&ENDING)?;
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

    /// The next signal that ends a wait. It obeys a stop; the others, which are listened for once a command has
    /// run, do not concern a wait.
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
                _ => {}
            }
        }
    }

    fn add(&mut self, wanted: &[Signal]) -> io::Result<()> {
        for &wanted in wanted {
            // Without these two we would not learn of the command at all.
            let needed = matches!(wanted, Signal::SIGCHLD | Signal::SIGCONT);
            let heard = self.streams.iter().any(|(signal, _)| *signal == wanted);
            if !heard && (needed || self.ignored & bit(wanted) == 0) {
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

/// The set of ignored signals.
fn ignored_at_start() -> u64 {
    std::fs::read_to_string("/proc/self/status").map_or(0, |status| ignored(&status))
}

fn ignored(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// Keeps the terminal from stopping this process.
///
/// A background process that writes to its terminal, or takes the terminal back from a command that has ended, is
/// stopped by `SIGTTOU` unless it blocks that signal. A stopped `leasehold` renews nothing.
#[derive(Debug)]
pub(crate) struct TerminalStopsBlocked {
    original: SigSet,
}

impl TerminalStopsBlocked {
    /// Blocks the signal in this thread and the threads that it starts from now on.
    pub(crate) fn new() -> nix::Result<Self> {
        let blocked = SigSet::from(Signal::SIGTTOU);
        Ok(Self { original: blocked.thread_swap_mask(SigmaskHow::SIG_BLOCK)? })
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
    fn the_block_is_lifted_only_inside() {
        let ttou = || SigSet::thread_get_mask().unwrap().contains(Signal::SIGTTOU);
        std::thread::spawn(move || {
            let block = TerminalStopsBlocked::new().unwrap();
            assert!(ttou());
            assert!(!block.lifted(ttou).unwrap());
            assert!(ttou());
        })
        .join()
        .unwrap();
    }
}
