//! Keeps the shim informed of the lease, and does its work if it cannot.

use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::pin::pin;
use std::process::ExitStatus;
use std::time::Duration;

use leasehold::store::{Clock as _, SystemClock};
use leasehold::{Event as LeaseEvent, Guard, LostReason};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::getpgrp;

use super::shim_process::ShimProcess;
use super::signals::{Signals, nobody_continues_us};
use crate::exit::{Death, Exit};
use crate::failure::describe;
use crate::plan::{OnLost, Plan};
use crate::process::family::reap_all_but;
use crate::process::group::is_of_a_key;
use crate::process::terminal::reclaim;
use crate::process::{Group, Notice, Order};
use crate::report::{Event, Reporter};

/// How often to look at processes that must end: no event reports that all are gone.
const POLL: Duration = Duration::from_millis(20);

/// The longest pause. Timers stop while the machine sleeps, but the term continues: after this long awake the
/// clock is read again.
const TICK: Duration = Duration::from_secs(1);

/// How much longer a shim has that is at work.
const AT_IT: Duration = Duration::from_secs(1);

/// How long a stop waits for the message about it, which a stopped process cannot write.
const PARTING: Duration = Duration::from_secs(1);

/// The hold may have begun so long before this process knew it.
const SLACK: Duration = Duration::from_secs(1);

/// How the run ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) outcome: Outcome,
    /// The command was ended, or asked to end, because of the lease.
    pub(super) doomed: bool,
    /// The lease is lost, and that was reported.
    pub(super) lost: bool,
    /// A signal asked the command to end.
    pub(super) asked: bool,
    /// How this process must end if the command died of a keyboard signal.
    pub(super) death: Option<Death>,
}

impl Ended {
    /// The command has ended by itself, with 0.
    pub(super) fn is_a_success(&self) -> bool {
        let is_zero = matches!(&self.outcome, Outcome::Exited(status) if status.success());
        is_zero && !self.doomed && !self.lost
    }
}

/// The result of the command.
#[derive(Debug)]
pub(super) enum Outcome {
    Exited(ExitStatus),
    NotStarted(io::Error),
    /// The term ended, or nearly, before the command could start.
    TooLate,
    /// The shim could not start anything.
    ShimNotStarted(io::Error),
    /// The shim failed, so the command was killed.
    ShimFailed,
}

/// Watches the shim, the lease and the signals until nothing of the command is left.
#[derive(Debug)]
pub(super) struct Supervisor<'a> {
    plan: &'a Plan,
    reporter: &'a Reporter,
    guard: &'a Guard,
    signals: &'a mut Signals,
    shim: ShimProcess,
    /// The deadline that the shim knows.
    deadline: Duration,
    group: Option<Group>,
    outcome: Option<Outcome>,
    /// Why the command must end.
    doomed: Option<LostReason>,
    lost: bool,
    asked: bool,
    /// The last keyboard signal that this process, and so its group, received.
    key: Option<Signal>,
    /// The keyboard signal that only the command received, and died of.
    typed: Option<Signal>,
    killed: bool,
    /// Since when the shim should have ended the command.
    overdue_from: Option<Duration>,
    /// Why renewals fail.
    failure: Option<String>,
    /// When the command was about to start.
    begun: Duration,
}

impl<'a> Supervisor<'a> {
    /// Takes charge of a shim that was just started with `deadline`.
    pub(super) fn new(
        plan: &'a Plan,
        reporter: &'a Reporter,
        guard: &'a Guard,
        signals: &'a mut Signals,
        shim: ShimProcess,
        deadline: Duration,
    ) -> Self {
        Self {
            plan,
            reporter,
            guard,
            signals,
            shim,
            deadline,
            group: None,
            outcome: None,
            doomed: None,
            lost: false,
            asked: false,
            key: None,
            typed: None,
            killed: false,
            overdue_from: None,
            failure: None,
            begun: SystemClock::new().now(),
        }
    }

    /// Ends when the shim has, and nothing of the command is left.
    pub(super) async fn run(mut self) -> Ended {
        let mut lost = pin!(self.guard.lost());
        let mut events = self.guard.events();
        while !self.shim.has_ended() {
            let pause = self.inform().min(TICK);
            tokio::select! {
                biased;
                reason = &mut lost, if !self.lost => self.lose(&reason),
                signal = self.signals.next() => self.receive(signal),
                notice = self.shim.next() => self.note(notice),
                Some(event) = events.next() => self.note_lease(&event),
                () = tokio::time::sleep(pause) => {}
            }
        }
        for notice in self.shim.last() {
            self.note(notice);
        }
        let outcome = match self.outcome.take() {
            Some(outcome) => outcome,
            None => match self.shim.failure().filter(|_| self.group.is_none()) {
                Some(error) => Outcome::ShimNotStarted(error),
                None => self.take_over().await,
            },
        };
        if !self.lost && !self.guard.is_held() {
            self.lose(&lost.await);
        } else if matches!(outcome, Outcome::TooLate) {
            self.reporter.report(&Event::Ending { remaining: self.guard.remaining() });
        }
        if let Some(reason) = self.doomed.clone().filter(|_| !self.lost) {
            self.lose(&reason);
        }
        if self.killed {
            self.reporter.report(&Event::Killed);
        }
        if let Outcome::Exited(status) = outcome {
            self.reporter.report(&Event::Exited { exit: Exit::of_status(status) });
        }
        let Self { lost, asked, .. } = self;
        Ended { death: self.death(&outcome), outcome, doomed: self.doomed.is_some(), lost, asked }
    }

    /// Notes why the command must end, though the lease may still have some time.
    fn doom(&mut self) {
        let (now, schedule) = (SystemClock::new().now(), self.plan.hold.schedule);
        let is_long = |max_hold| {
            now.saturating_add(schedule.lead().saturating_add(SLACK))
                >= self.begun.saturating_add(max_hold)
        };
        self.doomed.get_or_insert(if self.failure.is_some() {
            LostReason::StoreUnreachable
        } else if self.plan.hold.max_hold.is_some_and(is_long) {
            LostReason::MaxHold
        } else {
            // This process was stopped, so that no renewal reached the shim.
            LostReason::Expired
        });
    }

    /// A process that received Ctrl-C must be seen to have died of it, or a shell script continues.
    fn death(&self, outcome: &Outcome) -> Option<Death> {
        let Outcome::Exited(status) = outcome else { return None };
        let of = |signal: Signal| status.signal() == Some(signal as i32);
        let typed = self.typed.map(|signal| Death { signal, of_the_group: true });
        let came = self.key.filter(|signal| of(*signal));
        typed.or(came.map(|signal| Death { signal, of_the_group: false }))
    }

    /// Tells the shim a new deadline, and starts [`take_over`](Self::take_over) if the shim does not keep it;
    /// returns how long there will be nothing to do.
    fn inform(&mut self) -> Duration {
        let deadline = self.plan.hold.schedule.deadline(self.guard);
        // It is computed anew each time, and is at its latest if nothing came in between.
        if deadline > self.deadline || (deadline.is_zero() && !self.deadline.is_zero()) {
            self.deadline = deadline;
            self.shim.send(Order::Deadline(deadline));
        }
        let now = SystemClock::new().now();
        if !deadline.is_zero() {
            return deadline.saturating_sub(now);
        }
        if self.plan.hold.on_lost != OnLost::Kill {
            return Duration::MAX;
        }
        // A shim that is stopped, or cannot run, must not let the command outlive the term either. One that has
        // killed everything it saw may need a moment for what that left.
        let more = if self.killed { AT_IT } else { Duration::ZERO };
        let grace = self.plan.hold.schedule.grace() + more;
        let overdue_at = self.overdue_from.get_or_insert(now).saturating_add(grace);
        if overdue_at > now {
            return overdue_at - now;
        }
        self.doom();
        self.shim.kill();
        POLL
    }

    fn note(&mut self, notice: Notice) {
        match notice {
            Notice::Started(pid) => {
                self.group = Some(Group::of(pid));
                self.reporter.report(&Event::Started { pid: pid.as_raw() });
            }
            Notice::NotStarted(errno) => {
                self.outcome = Some(Outcome::NotStarted(io::Error::from_raw_os_error(errno)));
            }
            // Otherwise the command was stopped, and is dead by now.
            Notice::Stopped(signal) if !self.shim.has_ended() => self.stop_with_command(signal),
            Notice::Stopped(_) => {}
            Notice::Doomed => {
                self.doom();
                if self.guard.is_held() {
                    self.reporter.report(&Event::Ending { remaining: self.guard.remaining() });
                }
            }
            Notice::Leftovers => self.reporter.report(&Event::Leftovers),
            Notice::Killed => self.killed = true,
            Notice::Typed(signal) => self.typed = Some(signal),
            Notice::TooLate => {
                self.doom();
                self.outcome = Some(Outcome::TooLate);
            }
            Notice::Ended(status) => self.outcome = Some(Outcome::Exited(status)),
        }
    }

    /// Reports that the lease is lost; the remaining term decides what to do about it.
    fn lose(&mut self, reason: &LostReason) {
        self.lost = true;
        let fate = match self.plan.hold.on_lost {
            _ if self.group.is_none() => "is not started",
            OnLost::Kill => "is ended",
            OnLost::Signal => "is asked to end",
            OnLost::Ignore => "runs on",
        };
        let is_of_store = matches!(reason, LostReason::StoreUnreachable);
        let cause = self.failure.as_deref().filter(|_| is_of_store);
        let max_hold = self.plan.hold.max_hold;
        self.reporter.report(&Event::Lost { reason, cause, max_hold, fate });
    }

    fn receive(&mut self, signal: Signal) {
        match signal {
            Signal::SIGCHLD => {
                if !self.shim.has_ended() {
                    reap_all_but(self.shim.id());
                }
            }
            Signal::SIGCONT => {
                // The lease first: the time of the stop counts.
                self.inform();
                if self.plan.hold.on_lost != OnLost::Kill || !self.deadline.is_zero() {
                    self.proceed();
                }
            }
            signal => {
                self.asked |= matches!(signal, Signal::SIGTERM | Signal::SIGINT | Signal::SIGQUIT);
                self.key = Some(signal).filter(|signal| is_of_a_key(*signal)).or(self.key);
                self.reporter.report(&Event::Forwarded { signal });
                self.shim.send(Order::Signal(signal));
            }
        }
    }

    fn note_lease(&mut self, event: &LeaseEvent) {
        match event {
            LeaseEvent::Renewed { remaining } => {
                self.failure = None;
                self.reporter.report(&Event::Renewed { remaining: *remaining });
            }
            LeaseEvent::Failed(error) => {
                let remaining = self.guard.remaining();
                if self.failure.replace(describe(error)).is_none() {
                    self.reporter.report(&Event::RenewalFailed { error, remaining });
                }
            }
            _ => {}
        }
    }

    /// Stops this process's group too when the terminal stopped the command, as a shell expects.
    fn stop_with_command(&mut self, signal: Signal) {
        if nobody_continues_us() {
            // No shell would continue us. The kernel does not stop such a group from the keyboard, and would not
            // have stopped the command in ours. A command that asked for the terminal cannot have it, and gets
            // the signal that the kernel sends to a stopped group whose shell is gone.
            if signal != Signal::SIGTSTP {
                self.shim.send(Order::Signal(Signal::SIGHUP));
            }
            self.proceed();
            return;
        }
        self.reporter.report(&Event::Stopped { signal, remaining: self.guard.remaining() });
        self.reporter.settle(PARTING);
        // After SIGCONT, which always follows, it continues here.
        let _ = killpg(getpgrp(), Signal::SIGSTOP);
    }

    /// Continues the command after a stop.
    fn proceed(&mut self) {
        self.shim.send(Order::Signal(Signal::SIGCONT));
        self.reporter.report(&Event::Continued);
    }

    /// Kills everything that a shim left without doing so itself.
    async fn take_over(&mut self) -> Outcome {
        self.reporter.report(&Event::ShimFailed);
        while self.shim.descendants().are_left(None) {
            self.killed = true;
            if let Some(group) = self.group.filter(Group::is_ours) {
                group.kill();
            }
            self.shim.descendants().kill();
            reap_all_but(self.shim.id());
            tokio::time::sleep(POLL).await;
        }
        if let Some(group) = self.group {
            reclaim(group.id());
        }
        Outcome::ShimFailed
    }
}
