use std::future::Future;
use std::time::Duration;

use tokio::time::Instant;

/// When an operation must have ended, whatever it does until then.
#[derive(Debug, Clone, Copy)]
pub struct Deadline {
    at: Instant,
    limit: Duration,
}

impl Deadline {
    /// After so long from now.
    pub fn after(limit: Duration) -> Self {
        Self { at: now() + limit, limit }
    }

    /// The same operation's, for a step that must leave time for another one: after three quarters of what is left.
    #[must_use]
    pub fn earlier(self) -> Self {
        Self { at: now() + self.left() * 3 / 4, ..self }
    }

    /// The same operation's, for a step that may take so long.
    #[must_use]
    pub fn within(self, limit: Duration) -> Self {
        Self { at: self.at.min(now() + limit), ..self }
    }

    /// The same operation's, after a pause that does not count.
    #[must_use]
    pub fn later(self, pause: Duration) -> Self {
        Self { at: self.at + pause, ..self }
    }

    /// The limit of the whole operation, for messages.
    pub fn limit(self) -> Duration {
        self.limit
    }

    /// How long it is until then.
    pub fn left(self) -> Duration {
        self.at.saturating_duration_since(now())
    }

    /// How long the operation has taken.
    pub fn spent(self) -> Duration {
        self.limit.saturating_sub(self.left())
    }

    /// What comes before it; `None` if it does not.
    pub async fn bound<T>(self, coming: impl Future<Output = T>) -> Option<T> {
        tokio::time::timeout_at(self.at, coming).await.ok()
    }
}

#[expect(clippy::disallowed_methods, reason = "the driver's own timers count on this clock")]
pub(crate) fn now() -> Instant {
    Instant::now()
}
