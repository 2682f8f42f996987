use leasehold_core::{Error, LostReason, Remaining};
use tokio::sync::broadcast::{self, error::RecvError};

/// An event of a lease while it is held ([F14](crate::contract)).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Event {
    /// The store answered a renewal in time.
    Renewed {
        /// How much longer the holder may trust the lease.
        remaining: Remaining,
    },
    /// A renewal failed. The lease is still held, and renewal is tried again until its term ends.
    Failed(Error),
    /// The lease is lost.
    Lost(LostReason),
    /// The guard was released, handed over or lost; no event follows.
    Stopped,
}

/// The events of one [`Guard`](crate::Guard), from the call of [`events`](crate::Guard::events) on.
///
/// A reader that lags more than 64 events behind misses the oldest, never the last.
#[derive(Debug)]
pub struct Events(Option<broadcast::Receiver<Event>>);

impl Events {
    pub(crate) fn new(receiver: broadcast::Receiver<Event>) -> Self {
        Self(Some(receiver))
    }

    /// No events.
    pub(crate) fn ended() -> Self {
        Self(None)
    }

    /// The next event; `None` after [`Event::Stopped`].
    ///
    /// # Cancel safety
    /// No event is lost if the future is dropped.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            match self.0.as_mut()?.recv().await {
                Ok(event) => {
                    if matches!(event, Event::Stopped) {
                        self.0 = None;
                    }
                    return Some(event);
                }
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => {
                    self.0 = None;
                    return Some(Event::Stopped);
                }
            }
        }
    }

    /// Calls `each` with every event; ends after [`Event::Stopped`].
    ///
    /// # Cancel safety
    /// May be dropped at any time.
    pub async fn for_each(mut self, mut each: impl FnMut(Event)) {
        while let Some(event) = self.next().await {
            each(event);
        }
    }
}
