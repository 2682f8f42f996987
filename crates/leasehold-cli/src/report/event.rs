//! What is reported, for people and as JSON.

use std::fmt;
use std::io;
use std::time::Duration;

use leasehold::inspect::{NodeReport, Record, Unreadable};
use leasehold::{Error, FencingToken, Key, LeaseId, LostReason, Remaining, WaitReport};
use nix::sys::signal::Signal;
use serde::ser::{Serialize, SerializeMap, Serializer};

use super::Level;
use crate::exit::Exit;
use crate::failure::{Failure, describe, kind_name};
use crate::holder::{Holding, NotFree};
use crate::nodes::Nodes;
use crate::record::{RecordJson, micros};

/// An event to report.
#[derive(Debug)]
pub(crate) enum Event<'a> {
    /// The store fails, and the wait continues.
    StoreAwaited {
        failure: &'a Failure,
    },
    /// The store has not answered yet.
    Asking {
        keys: &'a [Key],
    },
    /// The keys are held, and the wait continues.
    Waiting {
        keys: &'a [Key],
        report: &'a WaitReport,
        /// Somebody waits there who would wonder.
        on_terminal: bool,
    },
    /// There is no place for the lease file.
    NoLeaseFile {
        error: &'a io::Error,
    },
    Acquired {
        keys: &'a [Key],
        lease: &'a LeaseId,
        token: Option<FencingToken>,
        nodes: &'a [NodeReport],
    },
    /// Nodes of the quorum failed, and the others granted the lock.
    Degraded {
        nodes: &'a [NodeReport],
    },
    /// The lease of another holder was ended, so that this run comes next.
    Superseded {
        record: &'a Record,
    },
    /// The lock is held, and the command is not run.
    Skipped {
        failure: &'a Failure,
    },
    /// The environment has a variable of our prefix that means nothing.
    UnknownVariable {
        name: &'a str,
    },
    /// A signal ended the wait.
    Interrupted {
        signal: Signal,
    },
    Started {
        pid: i32,
    },
    Renewed {
        remaining: Remaining,
    },
    RenewalFailed {
        error: &'a Error,
        remaining: Remaining,
    },
    Forwarded {
        signal: Signal,
    },
    Stopped {
        signal: Signal,
        remaining: Remaining,
    },
    Continued,
    /// The term is about to end, and the command must end before it.
    Ending {
        remaining: Remaining,
    },
    Lost {
        reason: &'a LostReason,
        /// Why the last renewal failed.
        cause: Option<&'a str>,
        max_hold: Option<Duration>,
        /// What happens to the command.
        fate: &'static str,
    },
    /// Only the release showed that the lease had been lost before.
    Overrun {
        reason: &'a LostReason,
    },
    Killed,
    /// The shim has died, or did not act in time.
    ShimFailed,
    /// The command has ended, but left processes that must end too.
    Leftovers,
    Exited {
        exit: Exit,
    },
    Released {
        kept: Option<Duration>,
        nodes: &'a [NodeReport],
    },
    ReleaseFailed {
        error: &'a Error,
    },
    /// The store does not answer who leads, and is queried again.
    LeaderUnknown {
        name: &'a str,
        error: &'a Error,
    },
    /// What a listing or a purge left out because it could not read it.
    Unreadable {
        unreadable: &'a [Unreadable],
    },
    Failed {
        failure: &'a Failure,
    },
}

impl Event<'_> {
    /// The level at which it is reported. People get one line about a loss, programs get each step of it.
    pub(super) fn level(&self, json: bool) -> Level {
        match self {
            Self::RenewalFailed { .. } | Self::Ending { .. } | Self::Killed | Self::Leftovers
                if !json =>
            {
                Level::Steps
            }
            Self::Renewed { .. } => Level::Renewals,
            Self::Waiting { on_terminal: true, .. } => Level::Problems,
            Self::Asking { .. }
            | Self::Skipped { .. }
            | Self::Superseded { .. }
            | Self::Waiting { .. }
            | Self::Interrupted { .. }
            | Self::Acquired { .. }
            | Self::Started { .. }
            | Self::Forwarded { .. }
            | Self::Continued
            | Self::Exited { .. }
            | Self::Released { .. } => Level::Steps,
            Self::Failed { failure } if failure.is_refusal() => Level::Problems,
            Self::StoreAwaited { .. }
            | Self::Degraded { .. }
            | Self::UnknownVariable { .. }
            | Self::NoLeaseFile { .. }
            | Self::RenewalFailed { .. }
            | Self::Stopped { .. }
            | Self::Leftovers
            | Self::LeaderUnknown { .. }
            | Self::Unreadable { .. } => Level::Problems,
            Self::Ending { .. }
            | Self::Lost { .. }
            | Self::Overrun { .. }
            | Self::Killed
            | Self::ShimFailed
            | Self::ReleaseFailed { .. }
            | Self::Failed { .. } => Level::Losses,
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::StoreAwaited { .. } => "store_awaited",
            Self::NoLeaseFile { .. } => "no_lease_file",
            Self::Asking { .. } => "asking",
            Self::Waiting { .. } => "waiting",
            Self::Acquired { .. } => "acquired",
            Self::Skipped { .. } => "skipped",
            Self::Superseded { .. } => "superseded",
            Self::Degraded { .. } => "degraded",
            Self::UnknownVariable { .. } => "unknown_variable",
            Self::Interrupted { .. } => "interrupted",
            Self::Started { .. } => "started",
            Self::Renewed { .. } => "renewed",
            Self::RenewalFailed { .. } => "renewal_failed",
            Self::Forwarded { .. } => "forwarded",
            Self::Stopped { .. } => "stopped",
            Self::Continued => "continued",
            Self::Ending { .. } => "ending",
            Self::Lost { .. } => "lost",
            Self::Overrun { .. } => "overrun",
            Self::Killed => "killed",
            Self::ShimFailed => "shim_failed",
            Self::Leftovers => "leftovers",
            Self::Exited { .. } => "exited",
            Self::Released { .. } => "released",
            Self::ReleaseFailed { .. } => "release_failed",
            Self::LeaderUnknown { .. } => "leader_unknown",
            Self::Unreadable { .. } => "unreadable",
            Self::Failed { .. } => "error",
        }
    }
}

impl fmt::Display for Event<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::StoreAwaited { failure } => write!(f, "waiting for the store: {failure}"),
            Self::NoLeaseFile { error } => write!(
                f,
                "no lease file, which the command and a leasehold inside it would read: {error}; set TMPDIR to a \
                 directory that can be written"
            ),
            Self::Asking { keys } => {
                write!(f, "asking for {}; the store has not answered yet", Names(keys))
            }
            Self::Waiting { keys, report, .. } => {
                let not_free = NotFree { key: &report.key, holder: report.holder.as_deref() };
                write!(f, "waiting for {}: {not_free}", Names(keys))
            }
            Self::Acquired { keys, lease, token, nodes } => {
                write!(f, "acquired {} as lease {lease}", Names(keys))?;
                if let Some(token) = token {
                    write!(f, " with token {token}")?;
                }
                Nodes(nodes).fmt(f)
            }
            Self::Skipped { failure } => write!(f, "skipped: {failure}"),
            Self::Degraded { nodes } => {
                write!(f, "the lock is held, but nodes of the quorum fail{}", Nodes(nodes))
            }
            Self::Superseded { record } => {
                write!(f, "ended a lease: {:?} was {}", record.key, Holding::of(record))
            }
            Self::UnknownVariable { name } => {
                write!(f, "the environment variable {name} is unknown, and has no effect")
            }
            Self::Interrupted { signal } => write!(f, "the wait was ended by {signal}"),
            Self::Started { pid } => write!(f, "started the command as process {pid}"),
            Self::Renewed { remaining } => write!(f, "renewed: {} left", TimeLeft(*remaining)),
            Self::RenewalFailed { error, remaining } => {
                write!(f, "a renewal failed, {} left: {}", TimeLeft(*remaining), describe(error))
            }
            Self::Forwarded { signal } => write!(f, "forwarded {signal}"),
            Self::Stopped { signal, remaining: Remaining::Never } => {
                write!(f, "the command was stopped by {signal}")
            }
            Self::Stopped { signal, remaining } => write!(
                f,
                "the command was stopped by {signal}; unless continued within {} the lock is lost \
                 and the command killed",
                TimeLeft(*remaining)
            ),
            Self::Continued => f.write_str("continued the command"),
            Self::Ending { remaining } => {
                write!(f, "the lock ends in {}, and the command before it", TimeLeft(*remaining))
            }
            Self::Lost { reason, cause, max_hold, fate } => {
                match (reason, max_hold) {
                    (LostReason::MaxHold, Some(max_hold)) => {
                        let max_hold = humantime::format_duration(*max_hold);
                        write!(f, "the lock is lost: --max-hold {max_hold} has passed")?;
                    }
                    _ => write!(f, "the lock is lost: {reason}")?,
                }
                if let Some(cause) = cause {
                    write!(f, ": {cause}")?;
                }
                write!(f, "; the command {fate}")
            }
            Self::Overrun { reason } => {
                write!(f, "the lock was lost in the store before the command ended: {reason}")
            }
            Self::Killed => f.write_str("killed processes that did not end by themselves"),
            Self::ShimFailed => f.write_str(
                "the shim, which runs the command, has died or does not act; killing all its descendants",
            ),
            Self::Leftovers => {
                f.write_str("the command left processes behind; asked them to end")
            }
            Self::Exited { exit } => write!(f, "the command ended: exit code {}", exit.code()),
            Self::Released { kept, nodes } => {
                f.write_str("released")?;
                if let Some(kept) = kept {
                    write!(f, "; stays taken for another {}", TimeLeft(Remaining::For(*kept)))?;
                }
                Nodes(nodes).fmt(f)
            }
            Self::ReleaseFailed { error } => {
                write!(f, "not released; the lock ends with its term: {}", describe(error))
            }
            Self::LeaderUnknown { name, error } => write!(
                f,
                "who leads {name:?} is unknown until the store answers: {}",
                describe(error)
            ),
            Self::Unreadable { unreadable } => {
                let (count, few) = (unreadable.len(), &unreadable[..unreadable.len().min(FEW)]);
                write!(f, "left out {count} that cannot be read: ")?;
                comma_separated(f, few.iter().map(|one| &one.name))?;
                if let Some(more) = count.checked_sub(FEW + 1) {
                    write!(f, " and {} more", more + 1)?;
                }
                few.first().map_or(Ok(()), |one| write!(f, "; {}", describe(&one.error)))
            }
            Self::Failed { failure } => failure.fmt(f),
        }
    }
}

/// So many names of what cannot be read are shown to people; JSON has all.
const FEW: usize = 10;

impl Serialize for Event<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("event", self.name())?;
        match self {
            Self::StoreAwaited { failure } => {
                map.serialize_entry("kind", failure.kind())?;
                Nodes(failure.nodes()).entry(&mut map)?;
            }
            Self::Asking { keys } => map.serialize_entry("keys", &names(keys))?,
            Self::Waiting { keys, report, .. } => {
                map.serialize_entry("keys", &names(keys))?;
                map.serialize_entry("holder", &report.holder.as_deref().map(RecordJson::from))?;
            }
            Self::Acquired { keys, lease, token, nodes } => {
                map.serialize_entry("keys", &names(keys))?;
                map.serialize_entry("lease", &lease.to_string())?;
                map.serialize_entry("token", &token.map(FencingToken::get))?;
                Nodes(nodes).entry(&mut map)?;
            }
            Self::Started { pid } => map.serialize_entry("pid", pid)?,
            Self::Renewed { remaining } | Self::Ending { remaining } => {
                map.serialize_entry("remaining_us", &remaining.duration().map(micros))?;
            }
            Self::Interrupted { signal } | Self::Forwarded { signal } => {
                map.serialize_entry("signal", signal.as_str())?
            }
            Self::Stopped { signal, remaining } => {
                map.serialize_entry("signal", signal.as_str())?;
                map.serialize_entry("remaining_us", &remaining.duration().map(micros))?;
            }
            Self::RenewalFailed { error, remaining } => {
                map.serialize_entry("remaining_us", &remaining.duration().map(micros))?;
                Nodes(error.nodes()).entry(&mut map)?;
            }
            Self::Lost { reason, cause, .. } => {
                map.serialize_entry("reason", reason.name())?;
                map.serialize_entry("cause", cause)?;
            }
            Self::Overrun { reason } => map.serialize_entry("reason", reason.name())?,
            Self::Exited { exit } => map.serialize_entry("exit_code", &exit.code())?,
            Self::Released { kept, nodes } => {
                map.serialize_entry("kept_us", &kept.map(micros))?;
                Nodes(nodes).entry(&mut map)?;
            }
            Self::ReleaseFailed { error } => Nodes(error.nodes()).entry(&mut map)?,
            Self::LeaderUnknown { name, error } => {
                map.serialize_entry("name", name)?;
                map.serialize_entry("kind", kind_name(error.kind()))?;
                Nodes(error.nodes()).entry(&mut map)?;
            }
            Self::Unreadable { unreadable } => {
                let names: Vec<_> = unreadable.iter().map(|one| &one.name).collect();
                map.serialize_entry("names", &names)?;
                let kind = unreadable.first().map(|one| kind_name(one.error.kind()));
                map.serialize_entry("kind", &kind)?;
            }
            Self::Skipped { failure } => entries_of_wait(failure, &mut map)?,
            Self::Degraded { nodes } => Nodes(nodes).entry(&mut map)?,
            Self::Superseded { record } => {
                map.serialize_entry("holder", &RecordJson::from(*record))?;
            }
            Self::UnknownVariable { name } => map.serialize_entry("name", name)?,
            Self::Failed { failure } => {
                map.serialize_entry("kind", failure.kind())?;
                map.serialize_entry("exit_code", &failure.exit().code())?;
                entries_of_wait(failure, &mut map)?;
                Nodes(failure.nodes()).entry(&mut map)?;
            }
            Self::NoLeaseFile { .. }
            | Self::Continued
            | Self::Killed
            | Self::ShimFailed
            | Self::Leftovers => {}
        }
        map.serialize_entry("message", &self.to_string())?;
        map.end()
    }
}

/// How the wait for the lock ended, if it did.
fn entries_of_wait<M: SerializeMap>(failure: &Failure, map: &mut M) -> Result<(), M::Error> {
    let Some(wait) = failure.wait() else { return Ok(()) };
    map.serialize_entry("key", wait.key.as_str())?;
    map.serialize_entry("tries", &wait.tries)?;
    map.serialize_entry("waited_us", &micros(wait.waited))?;
    map.serialize_entry("holder", &wait.holder.as_deref().map(RecordJson::from))
}

struct Names<'a>(&'a [Key]);

impl fmt::Display for Names<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        comma_separated(f, self.0)
    }
}

fn comma_separated(
    f: &mut fmt::Formatter<'_>,
    names: impl IntoIterator<Item = impl fmt::Debug>,
) -> fmt::Result {
    for (at, name) in names.into_iter().enumerate() {
        write!(f, "{}{name:?}", if at == 0 { "" } else { ", " })?;
    }
    Ok(())
}

struct TimeLeft(Remaining);

impl fmt::Display for TimeLeft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Remaining::For(left) => write!(f, "{:.1} s", left.as_secs_f64()),
            Remaining::Never => f.write_str("unlimited time"),
        }
    }
}

fn names(keys: &[Key]) -> Vec<&str> {
    keys.iter().map(Key::as_str).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_lines_have_a_fixed_form() {
        let keys = [Key::new("a").unwrap(), Key::new("b").unwrap()];
        let lease = LeaseId::foreign(b"w").unwrap();
        let acquired = Event::Acquired { keys: &keys, lease: &lease, token: None, nodes: &[] };
        assert_eq!(
            serde_json::to_string(&acquired).unwrap(),
            r#"{"event":"acquired","keys":["a","b"],"lease":"w","token":null,"message":"acquired \"a\", \"b\" as lease w"}"#
        );
        let failure = Failure::usage("no");
        assert_eq!(
            serde_json::to_string(&Event::Failed { failure: &failure }).unwrap(),
            r#"{"event":"error","kind":"invalid_input","exit_code":64,"message":"no"}"#
        );
        let unreadable = [Unreadable::new("a\n", Error::corrupt("damaged"))];
        assert_eq!(
            serde_json::to_string(&Event::Unreadable { unreadable: &unreadable }).unwrap(),
            r#"{"event":"unreadable","names":["a\n"],"kind":"corrupt","message":"left out 1 that cannot be read: \"a\\n\"; damaged"}"#
        );
        let many = vec![Unreadable::new("x", Error::corrupt("damaged")); FEW + 2];
        let printed = Event::Unreadable { unreadable: &many }.to_string();
        assert!(
            printed.contains("left out 12") && printed.contains("\"x\" and 2 more; damaged"),
            "{printed}"
        );
        let left = Event::Renewed { remaining: Remaining::For(Duration::from_millis(1_500)) };
        assert_eq!(
            serde_json::to_string(&left).unwrap(),
            r#"{"event":"renewed","remaining_us":1500000,"message":"renewed: 1.5 s left"}"#
        );
    }
}
