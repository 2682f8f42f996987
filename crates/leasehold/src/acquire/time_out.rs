use std::time::Duration;

use leasehold_core::{Clock, Wait};

/// How much longer than the wait its last try may take, unless the wait is shorter than this.
const LAST_TRY: Duration = Duration::from_millis(250);

/// When a wait ends.
#[derive(Clone, Copy)]
pub(super) struct TimeOut<'a> {
    pub(super) clock: &'a dyn Clock,
    /// The end of the wait; none if `None`.
    at: Option<Duration>,
    /// The end of its last try; that of any try if `None`.
    last_at: Option<Duration>,
}

impl<'a> TimeOut<'a> {
    /// The end of a wait that starts `now`. A wait of zero ends at once, and its one try is limited like that of
    /// [`Wait::No`].
    pub(super) fn of(wait: Wait, now: Duration, clock: &'a dyn Clock) -> Self {
        let limit = match wait {
            Wait::UpTo(limit) => Some(limit),
            Wait::No | Wait::Attempts(_) | Wait::Forever => None,
        };
        let at = limit.map(|limit| now.saturating_add(limit));
        let last_at = at.zip(limit.filter(|limit| !limit.is_zero()));
        let last_at = last_at.map(|(at, limit)| at.saturating_add(limit.min(LAST_TRY)));
        Self { clock, at, last_at }
    }

    /// When a try that starts `now` ends at the latest, if one operation may take `operation`.
    pub(super) fn of_try(&self, now: Duration, last: bool, operation: Duration) -> Duration {
        let end = now.saturating_add(operation);
        let wait = if last { self.last_at } else { self.at };
        wait.map_or(end, |wait| end.min(wait))
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over_at(self.clock.now())
    }

    pub(super) fn is_over_at(&self, now: Duration) -> bool {
        self.at.is_some_and(|at| at <= now)
    }

    /// Ends when the wait does.
    pub(super) async fn over(&self) {
        match self.at {
            Some(at) => self.clock.sleep_until(at).await,
            None => std::future::pending().await,
        }
    }
}
