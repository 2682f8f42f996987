//! Seeing to it that the command does not outlive the lease, and that nothing of it outlives the lock.

use std::io;
use std::pin::pin;
use std::process::ExitStatus;
use std::time::Duration;

use leasehold::{Clock as _, Event as LeaseEvent, Guard, LostReason, Remaining, SystemClock};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::getpgrp;

use super::group::{Group, LeaderState};
use super::process_table::ProcessTable;
use super::schedule::Schedule;
use super::signals::Signals;
use super::terminal::Terminal;
use crate::args::OnLost;
use crate::report::{Event, Reporter};

/// How often what is to end is looked at; that a group is empty is told by no event.
const POLL: Duration = Duration::from_millis(20);

/// The longest pause. Timers stop while the machine sleeps, and the term does not: after this much of being
/// awake it is looked at again.
const TICK: Duration = Duration::from_secs(1);

/// How long a stop waits for the message about it.
const PARTING: Duration = Duration::from_millis(100);

/// How the command ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// What its leader ended with.
    pub(crate) status: io::Result<ExitStatus>,
    /// It was ended, or asked to end, because of the lease.
    pub(crate) doomed: bool,
    /// The lease is lost, and that has been told.
    pub(crate) lost: bool,
}

/// Watches the command, the lease and the signals, until nothing of the command is left.
#[derive(Debug)]
pub(crate) struct Supervisor<'a> {
    group: Group,
    guard: &'a Guard,
    signals: Signals,
    terminal: Terminal,
    schedule: Schedule,
    on_lost: OnLost,
    reporter: &'a Reporter,
    leader_ended: bool,
    /// The command has been told to end because of the lease; a late renewal does not take that back.
    doomed: bool,
    /// The lease is lost, and that has been told.
    lost: bool,
    kill_at: Option<Duration>,
    killed: bool,
    renewals_fail: bool,
}

impl<'a> Supervisor<'a> {
    /// Takes charge of a command that has just been started.
    pub(crate) fn new(
        group: Group,
        guard: &'a Guard,
        signals: Signals,
        schedule: Schedule,
        on_lost: OnLost,
        reporter: &'a Reporter,
    ) -> Self {
        Self {
            group,
            guard,
            signals,
            terminal: Terminal::new(),
            schedule,
            on_lost,
            reporter,
            leader_ended: false,
            doomed: false,
            lost: false,
            kill_at: None,
            killed: false,
            renewals_fail: false,
        }
    }

    /// Ends when the command has, and all that it left in its group; after a loss, all that descends from it.
    pub(crate) async fn run(mut self) -> Ended {
        self.terminal.lend(self.group.id());
        let mut lost = pin!(self.guard.lost());
        let mut events = self.guard.events();
        loop {
            self.look();
            if self.is_done() {
                break;
            }
            let pause = self.enforce().min(TICK);
            tokio::select! {
                biased;
                reason = &mut lost, if !self.lost => self.lose(&reason),
                signal = self.signals.next() => self.receive(signal),
                Some(event) = events.next() => self.note(&event),
                () = tokio::time::sleep(pause) => {}
            }
        }
        self.terminal.take_back();
        if !self.lost && !self.guard.is_held() {
            self.lose(&lost.await);
        }
        if self.killed {
            self.reporter.say(&Event::Killed);
        }
        Ended { status: self.group.reap(), doomed: self.doomed, lost: self.lost }
    }

    /// Learns what the leader did.
    fn look(&mut self) {
        if self.leader_ended {
            return;
        }
        match self.group.look() {
            LeaderState::Runs => {}
            LeaderState::Stopped(signal) => self.stop_with_command(signal),
            LeaderState::Ended => {
                self.leader_ended = true;
                self.terminal.take_back();
                if self.group.has_members() {
                    self.reporter.say(&Event::Leftovers);
                    self.group.terminate();
                    self.kill_within(self.schedule.kill_after());
                }
            }
        }
    }

    fn is_done(&mut self) -> bool {
        // On a loss also what left the group must be dead, such as a child of timeout(1); after a command that
        // ended by itself it is a daemon, and left alone.
        let kills_all = self.doomed && self.on_lost == OnLost::Kill;
        self.leader_ended
            && !self.group.has_members()
            && !(kills_all && self.group.has_descendants())
    }

    /// Does what the clock says is due; gives how long nothing will be.
    fn enforce(&mut self) -> Duration {
        // By the boot-time clock, at each wake-up: also after both were stopped, or the machine asleep. Once the
        // lease is lost nothing remains.
        let left = self.guard.remaining();
        let terminate_in = self.schedule.terminate_in(left);
        if self.on_lost != OnLost::Ignore && !self.doomed && terminate_in.is_zero() {
            self.doom(left);
        }
        if self.doomed && self.on_lost == OnLost::Kill {
            self.kill_within(self.schedule.kill_in(left));
        }
        let now = SystemClock::new().now();
        let next = match self.kill_at {
            Some(at) if at <= now => {
                self.kill();
                POLL
            }
            Some(at) => at - now,
            None if self.doomed || self.on_lost == OnLost::Ignore => Duration::MAX,
            None => terminate_in,
        };
        if self.leader_ended { next.min(POLL) } else { next }
    }

    /// Tells the command to end because `left` is all that remains of the lease.
    fn doom(&mut self, left: Remaining) {
        self.doomed = true;
        if self.guard.is_held() {
            self.reporter.say(&Event::Ending { remaining: left });
        }
        let kills = self.on_lost == OnLost::Kill;
        // A command that was stopped must not run again only to be killed.
        if !(kills && self.schedule.kill_in(left).is_zero()) {
            self.group.terminate();
        }
        if kills {
            self.kill_within(self.schedule.kill_after());
        }
    }

    /// Tells that the lease is lost; what to do about it is seen by what remains of it.
    fn lose(&mut self, reason: &LostReason) {
        self.lost = true;
        self.reporter.say(&Event::Lost { reason });
    }

    fn receive(&mut self, signal: Signal) {
        match signal {
            Signal::SIGCHLD => {
                if !self.leader_ended {
                    self.group.reap_adopted();
                }
            }
            Signal::SIGCONT => {
                // The lease first: the time of the stop counts.
                self.enforce();
                if !self.killed && !self.leader_ended {
                    self.terminal.lend(self.group.id());
                    self.group.signal(Signal::SIGCONT);
                    self.reporter.say(&Event::Continued);
                }
            }
            signal => {
                self.reporter.say(&Event::Forwarded { signal });
                self.group.signal(signal);
            }
        }
    }

    fn note(&mut self, event: &LeaseEvent) {
        match event {
            LeaseEvent::Renewed { remaining } => {
                self.renewals_fail = false;
                self.reporter.say(&Event::Renewed { remaining: *remaining });
            }
            LeaseEvent::Failed(error) if !self.renewals_fail => {
                self.renewals_fail = true;
                let remaining = self.guard.remaining();
                self.reporter.say(&Event::RenewalFailed { error, remaining });
            }
            _ => {}
        }
    }

    /// Stops this process's group too when the terminal stopped the command, as a shell expects.
    fn stop_with_command(&mut self, signal: Signal) {
        let asks_for_terminal = matches!(signal, Signal::SIGTTIN | Signal::SIGTTOU);
        if asks_for_terminal && self.terminal.is_lent() {
            // It asked before it had it.
            self.terminal.lend(self.group.id());
            if self.terminal.is_lent() {
                self.group.signal(Signal::SIGCONT);
                return;
            }
        }
        let by_terminal = asks_for_terminal || signal == Signal::SIGTSTP;
        if !by_terminal && !self.terminal.is_lent() {
            // Somebody stopped the command alone; its lease is renewed meanwhile.
            return;
        }
        if ProcessTable::read().is_some_and(|table| table.is_orphaned(getpgrp())) {
            // No shell would continue us. The kernel spares such a group the stop from the keyboard, and
            // would have spared the command, were it in ours.
            if signal == Signal::SIGTSTP {
                self.group.signal(Signal::SIGCONT);
                self.reporter.say(&Event::Continued);
            }
            return;
        }
        self.terminal.take_back();
        self.reporter.say(&Event::Stopped { signal, remaining: self.guard.remaining() });
        self.reporter.settle(PARTING);
        // SIGCONT, which always follows, goes on from here.
        let _ = killpg(getpgrp(), Signal::SIGSTOP);
    }

    /// Kills after `pause`, unless that is due earlier already.
    fn kill_within(&mut self, pause: Duration) {
        let at = SystemClock::new().now().saturating_add(pause);
        self.kill_at = Some(self.kill_at.map_or(at, |earlier| earlier.min(at)));
    }

    fn kill(&mut self) {
        self.group.kill();
        if self.doomed {
            self.group.kill_descendants();
        }
        self.killed = true;
    }
}
