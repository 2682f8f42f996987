//! Requests that arrive while others are under way travel together.

mod combine;
mod queue;
mod sender;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::vec;

use leasehold_core::{Effect, Error, Result};
use tokio::sync::oneshot;

pub use self::combine::Combine;
use self::queue::Queue;
#[cfg(feature = "sql")]
pub(crate) use self::queue::now;
use self::sender::{MANY, Sender};

/// Sends requests in batches: those that arrive while as many batches as there may be are under way travel in the next.
/// Requests for one key are sent in the order in which they arrived, each after the reply to the one before.
///
/// A batch that stalls keeps others waiting only as long as they are willing to [`pass`](Self::pass) it: then another
/// lane opens, for requests whose keys are in no unanswered batch, and for those that [may pass](Combine::may_pass) an
/// unanswered one of their key. There is one lane more than batches under way.
///
/// The batches are sent by tasks that live while there are requests, on the runtimes of those who asked.
pub struct Combiner<C: Combine>(Arc<Shared<C>>);

struct Shared<C: Combine> {
    combine: C,
    most: usize,
    lanes: usize,
    queue: Mutex<Queue<C>>,
}

/// A request that has entered a [`Combiner`].
pub struct Turn<C: Combine> {
    combiner: Combiner<C>,
    number: u64,
    reply: oneshot::Receiver<Option<Result<C::Reply>>>,
}

impl<C: Combine> Turn<C> {
    /// Waits for the reply. `None` if the request did not act, and must be sent by the caller without others behind it.
    ///
    /// # Errors
    /// That of the request; `Unavailable` with an unknown effect if the runtime that sent it has ended.
    ///
    /// # Cancel safety
    /// May be dropped and called again, until it has returned.
    pub async fn reply(&mut self) -> Option<Result<C::Reply>> {
        (&mut self.reply).await.unwrap_or_else(|_| {
            let message = "the async runtime that sent the request has ended, or nobody drives it";
            Some(Err(Error::unavailable(Effect::Unknown, message)))
        })
    }

    /// Takes the request back. Whether it was not sent, and never will be.
    pub fn withdraw(self) -> bool {
        self.combiner.0.queue().withdraw(self.number)
    }
}

impl<C: Combine> Combiner<C> {
    /// A combiner of batches of at most `most` requests, of which one is under way at a time, and where many requests wait
    /// up to `lanes`.
    pub fn new(combine: C, most: usize, lanes: usize) -> Self {
        Self(Arc::new(Shared { combine, most, lanes, queue: Mutex::new(Queue::new()) }))
    }

    /// How requests are sent.
    pub fn combine(&self) -> &C {
        &self.0.combine
    }

    /// Sends these requests in their turn, even if nobody waits for the replies. They arrive at once, so that they travel
    /// in as few batches as they can.
    pub fn enter(&self, requests: impl IntoIterator<Item = C::Request>) -> vec::IntoIter<Turn<C>> {
        let (turns, sender) = {
            let mut queue = self.0.queue();
            let mut may_be_sent = false;
            let mut turns = Vec::new();
            for request in requests {
                may_be_sent |= !queue.is_held_up(&request);
                let (reply, replied) = oneshot::channel();
                let number = queue.enter(request, reply);
                turns.push(Turn { combiner: self.clone(), number, reply: replied });
            }
            let sender = if may_be_sent { self.0.next_sender(&mut queue) } else { None };
            (turns, sender)
        };
        sender.into_iter().for_each(Sender::start);
        turns.into_iter()
    }

    /// Lets what waits go past the batches that have been under way for `patience` or longer: for a caller who has waited
    /// for so long. Another task, on this runtime, sends it, for the connection may be dead, or nobody may drive the
    /// runtime of the task that should have sent it.
    pub fn pass(&self, patience: Duration) {
        let (stalls, sender) = {
            let mut queue = self.0.queue();
            let stalls = queue.pass(patience, self.0.combine.limit());
            (stalls, self.0.next_sender(&mut queue))
        };
        if stalls {
            self.0.combine.distrust();
        }
        sender.into_iter().for_each(Sender::start);
    }
}

impl<C: Combine> Shared<C> {
    fn queue(&self) -> MutexGuard<'_, Queue<C>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Another sender, if one is needed.
    fn next_sender(self: &Arc<Self>, queue: &mut Queue<C>) -> Option<Sender<C>> {
        let waiting = queue.waiting.len();
        let is_needed = match queue.running() {
            0 => waiting > 0,
            running => running < self.lanes && waiting > MANY,
        };
        (is_needed && queue.lanes.len() <= self.lanes).then(|| Sender::new(self, queue))
    }
}

impl<C: Combine> Clone for Combiner<C> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<C: Combine> fmt::Debug for Combiner<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Combiner")
    }
}

impl<C: Combine> fmt::Debug for Turn<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Turn({})", self.number)
    }
}

#[cfg(test)]
mod tests;
