use std::fmt;

use super::event::LeadershipEvent;
use super::leader::{Identity, identity};
use super::observer::Observer;
use super::state::Follower;

/// The events of one election: its state at the call of `observe`, if known, then each change.
///
/// A candidate reports itself and the leaders that it met. A reader that lags more than 64 events behind misses
/// the oldest, never the last. An [observer](crate::Election::observe) reports only
/// [`Changed`](LeadershipEvent::Changed), [`Unknown`](LeadershipEvent::Unknown) and
/// [`Failed`](LeadershipEvent::Failed).
#[derive(Debug)]
pub struct LeadershipEvents(Source);

enum Source {
    Candidate {
        known: Option<LeadershipEvent>,
        next: Option<Follower<LeadershipEvent>>,
        /// The leader, if the last event named one: a later event that only repeats it for newer readers is no
        /// change.
        reported: Option<Option<Identity>>,
    },
    Observer(Box<Observer>),
}

impl LeadershipEvents {
    pub(super) fn of_candidate(
        known: Option<LeadershipEvent>,
        next: Option<Follower<LeadershipEvent>>,
    ) -> Self {
        Self(Source::Candidate { known, next, reported: None })
    }

    pub(super) fn observed(observer: Observer) -> Self {
        Self(Source::Observer(Box::new(observer)))
    }

    /// The next event; `None` when the candidate has ended, or after [`LeadershipEvent::Failed`].
    ///
    /// # Cancel safety
    /// No event is lost if the future is dropped.
    pub async fn next(&mut self) -> Option<LeadershipEvent> {
        match &mut self.0 {
            Source::Candidate { known, next, reported } => loop {
                let event = match known.take() {
                    Some(known) => known,
                    None => next.as_mut()?.next().await?,
                };
                let leader = match &event {
                    LeadershipEvent::Changed(leader) => Some(leader.as_deref().map(identity)),
                    _ => None,
                };
                let news = leader.is_none() || *reported != leader;
                *reported = leader;
                if news {
                    return Some(event);
                }
            },
            Source::Observer(observer) => observer.next().await,
        }
    }

    /// Calls `each` with every event; ends when [`next`](LeadershipEvents::next) returns `None`.
    ///
    /// # Cancel safety
    /// May be dropped at any time.
    pub async fn for_each(mut self, mut each: impl FnMut(LeadershipEvent)) {
        while let Some(transition) = self.next().await {
            each(transition);
        }
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Candidate { .. } => "of a candidate",
            Self::Observer(_) => "observed",
        })
    }
}
