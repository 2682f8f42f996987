//! Reports why a wait continues.

use std::io::IsTerminal as _;
use std::time::Duration;

use leasehold::store::{Clock as _, SystemClock};
use leasehold::{Key, WaitCause, WaitReport};

use crate::failure::Failure;
use crate::report::{Event, Reporter};

/// How often a cause that lasts is reported again on a terminal.
const REPEAT: Duration = Duration::from_secs(60);

/// Reports each cause of a wait at once, again when it or the holder changes, and on a terminal again every minute.
pub(crate) struct WaitMessages<'a> {
    keys: &'a [Key],
    reporter: &'a Reporter,
    clock: SystemClock,
    reported: Reported,
}

impl<'a> WaitMessages<'a> {
    pub(crate) fn new(keys: &'a [Key], reporter: &'a Reporter) -> Self {
        let repeat = std::io::stderr().is_terminal().then_some(REPEAT);
        Self {
            keys,
            reporter,
            clock: SystemClock::new(),
            reported: Reported { last: None, repeat },
        }
    }

    /// A try was not granted.
    pub(crate) fn blocked(&mut self, report: &WaitReport) {
        match &report.cause {
            WaitCause::Held => {
                let holder = report.holder.as_ref().and_then(|holder| holder.id.as_ref());
                let cause = holder.map(ToString::to_string).unwrap_or_default();
                if self.reported.is_new(&cause, self.clock.now()) {
                    let on_terminal = self.reported.repeat.is_some();
                    self.reporter.report(&Event::Waiting { keys: self.keys, report, on_terminal });
                }
            }
            WaitCause::Store(error) => self.failed(&Failure::from(error.clone())),
            _ => self.failed(&Failure::too_late()),
        }
    }

    /// The store failed.
    pub(crate) fn failed(&mut self, failure: &Failure) {
        if self.reported.is_new(&failure.to_string(), self.clock.now()) {
            self.reporter.report(&Event::StoreAwaited { failure });
        }
    }
}

/// What was reported last.
struct Reported {
    last: Option<(String, Duration)>,
    repeat: Option<Duration>,
}

impl Reported {
    /// True if `cause` must be reported at `now`: it is another one, or was reported long ago.
    fn is_new(&mut self, cause: &str, now: Duration) -> bool {
        let is_known = self.last.as_ref().is_some_and(|(last, at)| {
            last == cause && self.repeat.is_none_or(|every| now.saturating_sub(*at) < every)
        });
        if !is_known {
            self.last = Some((cause.to_owned(), now));
        }
        !is_known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_reported_at_once_on_each_change_and_every_minute_on_a_terminal() {
        let at = Duration::from_secs;
        for (repeat, later) in [(None, false), (Some(REPEAT), true)] {
            let mut reported = Reported { last: None, repeat };
            let mut is_new = |cause: &str, now| reported.is_new(cause, at(now));
            assert!(is_new("held", 0));
            assert!(!is_new("held", 59));
            assert_eq!(is_new("held", 60), later);
            assert!(!is_new("held", 119));
            assert_eq!(is_new("held", 120), later);
            assert!(is_new("refused", 121));
            assert!(is_new("held", 122));
        }
    }
}
