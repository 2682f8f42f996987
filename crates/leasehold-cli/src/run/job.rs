//! Runs the program under what is held.

use std::io;
use std::time::Duration;

use leasehold::inspect::NodeReports;
use leasehold::store::{Clock as _, SystemClock};
use leasehold::{Guard, Lease, Locker, LostReason, ReleaseOutcome};
use nix::errno::Errno;

use super::command::{LeaseFile, Program, show};
use super::shim_process::ShimProcess;
use super::signals::{SignalMask, Signals};
use super::supervisor::{Ended, Outcome, Supervisor};
use crate::exit::Exit;
use crate::failure::{Failure, is_for_want_of_resources};
use crate::nodes::failures;
use crate::plan::{Held, OnLost, Plan};
use crate::process::family::adopt_orphans;
use crate::process::{Assignment, Order};
use crate::report::{Event, Reporter};

/// What to run, and how. It can be run again.
#[derive(Debug)]
pub(super) struct Job<'a> {
    pub(super) program: &'a Program,
    pub(super) plan: &'a Plan,
    pub(super) locker: &'a Locker,
    /// The store, for a `leasehold` that the program starts.
    pub(super) store: Option<&'a str>,
    pub(super) mask: Option<&'a SignalMask>,
    pub(super) reporter: &'a Reporter,
}

/// How a run ended.
#[derive(Debug)]
pub(super) enum End {
    /// Nothing is left to do.
    Exited(Exit),
    /// The lease was lost, so the command ended.
    Lost,
}

impl Job<'_> {
    /// Runs the program to its end, then releases what is held, whatever happened.
    pub(super) async fn run(&self, held: Held, signals: &mut Signals) -> Result<End, Failure> {
        let lease = held.guard().lease();
        self.reporter.report(&Event::Acquired {
            keys: &self.plan.keys,
            lease: &lease.id,
            token: lease.token,
            nodes: &held.guard().nodes(),
        });
        // A node that fails may be slower than the majority that grants.
        let is_degraded = self.tell_failures(&held.guard().nodes());
        let ended = self.supervise(held.guard(), signals).await;
        let keep = self.plan.once_per.filter(|_| ended.as_ref().is_ok_and(Ended::is_a_success));
        let is_told = ended.as_ref().is_ok_and(|ended| ended.lost);
        let (overrun, nodes) = self.release(held, keep.unwrap_or_default(), is_told, signals).await;
        if !is_degraded {
            self.tell_failures(&nodes);
        }
        let Ended { outcome, doomed, lost, asked, death } = ended?;
        if let Some(reason) = &overrun
            && !lost
        {
            self.reporter.report(&Event::Overrun { reason });
        }
        if doomed && !asked {
            return Ok(End::Lost);
        }
        if doomed || (overrun.is_some() && self.plan.hold.on_lost != OnLost::Ignore) {
            return Ok(End::Exited(Exit::LOST));
        }
        match outcome {
            Outcome::Exited(status) => Ok(End::Exited(Exit::of_status(status).by(death))),
            Outcome::NotStarted(error) => Err(self.program.not_started(&error)),
            Outcome::TooLate => Ok(End::Lost),
            Outcome::ShimNotStarted(error) => Err(no_shim(&error)),
            Outcome::ShimFailed => Ok(End::Exited(Exit::UNEXPECTED)),
        }
    }

    /// Runs the program to its end.
    async fn supervise(&self, guard: &Guard, signals: &mut Signals) -> Result<Ended, Failure> {
        let lease_file = match LeaseFile::write(guard.lease(), self.store) {
            Ok(file) => Some(file),
            Err(error) if is_for_want_of_resources(&error) => {
                return Err(Failure::of_system("the lease file cannot be written", &error));
            }
            Err(error) => {
                self.reporter.report(&Event::NoLeaseFile { error: &error });
                None
            }
        };
        // Everything that can fail comes before the command starts: it is never unsupervised.
        signals.listen_for_command().map_err(unexpected)?;
        adopt_orphans().map_err(unexpected)?;
        let assignment = |pipes| Assignment {
            pipes,
            kill_after: self.plan.hold.schedule.kill_after(),
            on_lost: self.plan.hold.on_lost,
            kill_after_signal: self.plan.hold.kill_after_signal,
            keep_until: SystemClock::new().now().saturating_add(self.plan.min_hold()),
            lock_delay: self.plan.hold.lock_delay.unwrap_or_default(),
            words: self.program.words().to_owned(),
        };
        let deadline = self.plan.hold.schedule.deadline(guard);
        let shim = ShimProcess::start(assignment, Order::Deadline(deadline), self.mask, |shim| {
            show(guard.lease(), lease_file.as_ref(), &self.plan.keys, shim);
        })
        .map_err(|error| match Errno::E2BIG as i32 {
            // The shim has the arguments of the command.
            code if error.raw_os_error() == Some(code) => self.program.not_started(&error),
            _ => no_shim(&error),
        })?;
        Ok(Supervisor::new(self.plan, self.reporter, guard, signals, shim, deadline).run().await)
    }

    /// Tells which nodes of a quorum fail, if any; returns whether some do.
    fn tell_failures(&self, nodes: &NodeReports) -> bool {
        let some = failures(nodes).next().is_some();
        if some {
            self.reporter.report(&Event::Degraded { nodes });
        }
        some
    }

    /// Releases the lock; returns why it was lost if it turns out that it was, and what each node of a quorum did. Of a loss that
    /// was told the reason is known.
    async fn release(
        &self,
        held: Held,
        keep: Duration,
        is_told: bool,
        signals: &mut Signals,
    ) -> (Option<LostReason>, NodeReports) {
        let lease = held.guard().lease().clone();
        let report = tokio::select! {
            biased;
            report = held.release(keep) => report,
            signal = signals.next_ending() => {
                signals.hurried = true;
                self.reporter.report(&Event::Interrupted { signal });
                return (None, NodeReports::default());
            }
        };
        let (outcome, nodes) = match report {
            Ok(report) => (report.outcome, report.nodes),
            Err(error) => (ReleaseOutcome::Failed(error), NodeReports::default()),
        };
        let released = |kept| self.reporter.report(&Event::Released { kept, nodes: &nodes });
        match outcome {
            ReleaseOutcome::Released => released(None),
            ReleaseOutcome::Kept(kept) => released(Some(kept)),
            ReleaseOutcome::Expired => return (Some(LostReason::Expired), nodes),
            ReleaseOutcome::NotHeld if is_told => return (Some(LostReason::Gone), nodes),
            ReleaseOutcome::NotHeld => {
                let why = tokio::select! {
                    biased;
                    why = self.why_lost(lease) => why,
                    _ = signals.next_ending() => LostReason::Gone,
                };
                return (Some(why), nodes);
            }
            ReleaseOutcome::Failed(error) => {
                // It has had its time.
                signals.hurried = true;
                self.reporter.report(&Event::ReleaseFailed { error: &error });
            }
        }
        (None, nodes)
    }

    /// Why the store does not have the lease: only a renewal is told whether it was ended by force, and for what reason.
    async fn why_lost(&self, lease: Lease) -> LostReason {
        let renewed = self.locker.adopt(lease).await;
        let reason = renewed.err().and_then(|error| error.lost_reason().cloned());
        reason.unwrap_or(LostReason::Gone)
    }
}

fn no_shim(error: &io::Error) -> Failure {
    Failure::of_system("the shim cannot be started", error)
}

pub(super) fn unexpected(error: impl Into<io::Error>) -> Failure {
    Failure::unexpected(error.into().to_string())
}
