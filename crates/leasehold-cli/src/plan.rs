//! What `run` or `elect` must do.

mod held;
mod hold;
mod schedule;

use std::time::Duration;

use clap::ValueEnum;
use leasehold::{Election, GroupName, Guard, Key, LockRequest, Locker, Result, WaitReport};
use tokio::sync::watch;

use crate::handed_over::HandedOver;
pub(crate) use held::Held;
pub(crate) use hold::{Hold, OnLost};
pub(crate) use schedule::Schedule;

/// Checked as far as possible without I/O.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The keys to lock; for an election, its name.
    pub(crate) keys: Vec<Key>,
    pub(crate) hold: Hold,
    pub(crate) sought: Sought,
    /// How long the keys stay taken after a success.
    pub(crate) once_per: Option<Duration>,
    /// Whether to end the leases of others first.
    pub(crate) supersede: Option<Supersede>,
}

/// When to run in the place of a holder whose lease this run ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Supersede {
    /// When its term is over, so that it has ended.
    AfterTerm,
    /// At once.
    Now,
}

/// What to acquire before the command runs.
#[derive(Debug)]
pub(crate) enum Sought {
    Lock {
        shared: bool,
        permits: Option<u32>,
        min_hold: Option<Duration>,
    },
    Leadership {
        name: Key,
        candidate_name: Option<GroupName>,
    },
    /// A lease that was left held.
    HandedOver(Box<HandedOver>),
}

impl Plan {
    /// How long the keys stay taken even if the command ends earlier.
    pub(crate) fn min_hold(&self) -> Duration {
        match self.sought {
            Sought::Lock { min_hold, .. } => min_hold.unwrap_or_default(),
            Sought::Leadership { .. } | Sought::HandedOver(_) => Duration::ZERO,
        }
    }

    /// Acquires it. `blocked` gets the report of each try after which the wait continues.
    pub(crate) async fn seek(
        &self,
        locker: &Locker,
        blocked: watch::Sender<Option<WaitReport>>,
    ) -> Result<Held> {
        let report_blocked = move |report: &WaitReport| {
            blocked.send_replace(Some(report.clone()));
        };
        match &self.sought {
            &Sought::Lock { shared, permits, min_hold } => {
                let acquiring = self.acquiring(locker, shared, permits, min_hold);
                acquiring.on_blocked(report_blocked).await.map(Held::Lock)
            }
            Sought::Leadership { name, candidate_name } => {
                let election = self.election(locker, name, candidate_name.as_ref());
                election.on_blocked(report_blocked).campaign().await.map(Held::Leadership)
            }
            Sought::HandedOver(handed_over) => {
                let guard = locker.adopt(handed_over.lease.clone()).await?;
                handed_over.remove();
                Ok(Held::Lock(guard))
            }
        }
    }

    fn acquiring(
        &self,
        locker: &Locker,
        shared: bool,
        permits: Option<u32>,
        min_hold: Option<Duration>,
    ) -> LockRequest<Guard> {
        let hold = &self.hold;
        let mut acquiring = locker.lock_all(&self.keys).ttl(hold.ttl).wait(hold.wait);
        acquiring = match permits {
            Some(permits) => acquiring.permits(permits),
            None if shared => acquiring.shared(),
            None => acquiring,
        };
        if let Some(min_hold) = min_hold {
            acquiring = acquiring.min_hold(min_hold);
        }
        if let Some(max_hold) = hold.max_hold {
            acquiring = acquiring.max_hold(max_hold);
        }
        if let Some(lock_delay) = hold.lock_delay {
            acquiring = acquiring.lock_delay(lock_delay);
        }
        if let Some(pid) = hold.pid {
            acquiring = acquiring.pid(pid);
        }
        if let Some(program) = &hold.program {
            acquiring = acquiring.program(program);
        }
        match &hold.comment {
            Some(comment) => acquiring.comment(comment),
            None => acquiring,
        }
    }

    fn election(&self, locker: &Locker, name: &Key, candidate: Option<&GroupName>) -> Election {
        let hold = &self.hold;
        let mut election = locker.election(name.clone()).ttl(hold.ttl).wait(hold.wait);
        if let Some(name) = candidate {
            election = election.candidate_name(name.clone());
        }
        if let Some(max_hold) = hold.max_hold {
            election = election.max_hold(max_hold);
        }
        if let Some(lock_delay) = hold.lock_delay {
            election = election.lock_delay(lock_delay);
        }
        if let Some(program) = &hold.program {
            election = election.program(program);
        }
        match &hold.comment {
            Some(comment) => election.comment(comment),
            None => election,
        }
    }
}
