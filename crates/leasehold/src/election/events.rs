use std::fmt;

use tokio::sync::broadcast::{self, error::RecvError};

use super::event::LeadershipEvent;
use super::leader::{Identity, identity};
use super::observer::Observer;

/// The transitions of one election, and nothing in between: where it stands at the call of `observe`, as far
/// as that is known, then each change.
///
/// A candidate tells of itself and of the leaders that it met; a reader that lags more than 64 transitions
/// behind misses the oldest, never the last. An [observer](crate::Election::observe) only tells
/// [`Changed`](LeadershipEvent::Changed).
#[derive(Debug)]
pub struct LeadershipEvents(Source);

enum Source {
    Candidate {
        known: Option<LeadershipEvent>,
        receiver: Option<Receiver>,
        /// Who was told to lead, if that was told last: told again to those who came since, it is no change.
        told: Option<Option<Identity>>,
    },
    Observer(Box<Observer>),
}

/// `None` is sent when the candidate has ended.
pub(super) type Receiver = broadcast::Receiver<Option<LeadershipEvent>>;

/// How many transitions a slow reader may lag behind.
pub(super) const LAG: usize = 64;

impl LeadershipEvents {
    pub(super) fn of_candidate(known: Option<LeadershipEvent>, receiver: Option<Receiver>) -> Self {
        Self(Source::Candidate { known, receiver, told: None })
    }

    pub(super) fn observed(observer: Observer) -> Self {
        Self(Source::Observer(Box::new(observer)))
    }

    /// The next transition; `None` when the candidate has ended, or after [`LeadershipEvent::Failed`].
    ///
    /// # Cancel safety
    /// No transition is lost if the future is dropped.
    pub async fn next(&mut self) -> Option<LeadershipEvent> {
        match &mut self.0 {
            Source::Candidate { known, receiver, told } => loop {
                let next = match known.take() {
                    Some(known) => Some(known),
                    None => next_of(receiver.as_mut()?).await,
                };
                let Some(next) = next else {
                    *receiver = None;
                    return None;
                };
                let leader = match &next {
                    LeadershipEvent::Changed(leader) => Some(leader.as_deref().map(identity)),
                    _ => None,
                };
                let news = leader.is_none() || *told != leader;
                *told = leader;
                if news {
                    return Some(next);
                }
            },
            Source::Observer(observer) => observer.next().await,
        }
    }

    /// Calls `each` with every transition; ends when [`next`](LeadershipEvents::next) has no more.
    ///
    /// # Cancel safety
    /// May be dropped at any time.
    pub async fn for_each(mut self, mut each: impl FnMut(LeadershipEvent)) {
        while let Some(transition) = self.next().await {
            each(transition);
        }
    }
}

/// What a candidate tells next, `None` when it has ended.
pub(super) async fn next_of<T: Clone>(receiver: &mut broadcast::Receiver<Option<T>>) -> Option<T> {
    loop {
        match receiver.recv().await {
            Ok(told) => return told,
            Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => return None,
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
