//! The arguments of a shim.

use std::ffi::OsString;
use std::time::Duration;

use clap::ValueEnum as _;

use nix::unistd::Pid;

use super::link::Pipes;
use crate::plan::OnLost;

/// The arguments of a shim. They contain nothing that the arguments of `leasehold` do not show, nor the path of
/// anything of ours: `pkill -f leasehold` must not kill the shim too.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Assignment {
    /// The pipes to and from `leasehold`.
    pub(crate) pipes: Pipes,
    /// The time between asking the command to end and killing it.
    pub(crate) kill_after: Duration,
    pub(crate) on_lost: OnLost,
    /// When to kill the command after it was asked to end.
    pub(crate) kill_after_signal: Option<Duration>,
    /// Until when, in boot time, the keys stay taken for `--min-hold`.
    pub(crate) keep_until: Duration,
    /// How long the keys stay taken after a loss.
    pub(crate) lock_delay: Duration,
    /// The program and its arguments.
    pub(crate) words: Vec<OsString>,
}

impl Assignment {
    /// The arguments as text.
    pub(crate) fn to_args(&self) -> Vec<OsString> {
        let on_lost = self.on_lost.to_possible_value().expect("no action is hidden");
        let Pipes { owner, orders, notices } = self.pipes;
        let mut args = vec![
            owner.to_string().into(),
            orders.to_string().into(),
            notices.to_string().into(),
            self.kill_after.as_nanos().to_string().into(),
            on_lost.get_name().to_owned().into(),
            self.kill_after_signal.unwrap_or(Duration::MAX).as_nanos().to_string().into(),
            self.keep_until.as_nanos().to_string().into(),
            self.lock_delay.as_nanos().to_string().into(),
        ];
        args.extend_from_slice(&self.words);
        args
    }

    /// The assignment of this process.
    pub(crate) fn from_process() -> Option<Self> {
        Self::from_args(std::env::args_os().skip(1))
    }

    fn from_args(mut args: impl Iterator<Item = OsString>) -> Option<Self> {
        let mut number = || args.next()?.to_str()?.parse::<i32>().ok();
        let pipes =
            Pipes { owner: Pid::from_raw(number()?), orders: number()?, notices: number()? };
        let kill_after = duration(args.next()?)?;
        let on_lost = OnLost::from_str(args.next()?.to_str()?, false).ok()?;
        let mut duration = || duration(args.next()?);
        Some(Self {
            pipes,
            kill_after,
            on_lost,
            kill_after_signal: duration().map(|pause| (pause < NEVER).then_some(pause))?,
            keep_until: duration()?,
            lock_delay: duration()?,
            words: args.collect(),
        })
    }
}

/// In 584 years.
const NEVER: Duration = Duration::from_nanos(u64::MAX);

/// Written in nanoseconds.
fn duration(text: OsString) -> Option<Duration> {
    let nanos: u128 = text.to_str()?.parse().ok()?;
    Some(u64::try_from(nanos).map_or(NEVER, Duration::from_nanos))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Option<Assignment> {
        Assignment::from_args(args.iter().map(OsString::from))
    }

    #[test]
    fn arguments_carry_it() {
        for (on_lost, kill_after_signal) in [
            (OnLost::Kill, None),
            (OnLost::Signal, Some(Duration::ZERO)),
            (OnLost::Ignore, Some(Duration::from_secs(3))),
        ] {
            let assignment = Assignment {
                pipes: Pipes { owner: Pid::from_raw(77), orders: 9, notices: 11 },
                kill_after: Duration::from_micros(1_500),
                on_lost,
                kill_after_signal,
                keep_until: Duration::from_secs(7),
                lock_delay: Duration::ZERO,
                words: vec!["sh".into(), "-c".into(), "--".into(), "".into()],
            };
            assert_eq!(Assignment::from_args(assignment.to_args().into_iter()), Some(assignment));
        }
    }

    #[test]
    fn an_invalid_assignment_is_refused() {
        for bad in [
            &[][..],
            &["1", "2", "3"],
            &["1", "x", "3", "1", "kill"],
            &["1", "2", "3", "x", "kill"],
            &["1", "2", "3", "1"],
            &["1", "2", "3", "1", "hope"],
            &["1", "2", "3", "1", "kill", "0"],
            &["1", "2", "3", "1", "kill", "0", "0"],
            &["1", "2", "3", "1", "kill", "0", "x", "0"],
        ] {
            assert_eq!(parse(bad), None, "{bad:?}");
        }
    }
}
