//! Requests that arrive while others are under way are sent in batches.

mod queue;
mod request;
mod sender;
mod server;

use std::collections::HashSet;
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::vec;

use futures_util::future::join_all;
use leasehold_core::{Effect, Error, Result};
use tokio::sync::oneshot;
use tokio::time::Instant;

use self::queue::Queue;
use self::request::Group;
pub use self::request::{Errand, Outcome, Outcomes, Request, Requests, Ticket};
use self::sender::Sender;
pub use self::server::{Exchange, Server, each_kind};
use crate::deadline::now;
use crate::{Deadline, outliving};

/// What takes longer waits more for a disk than the server works.
const SLOW: Duration = Duration::from_micros(2_200);

/// How large batches are, and how many.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::exhaustive_structs, reason = "each store states all of them")]
pub struct Sizes {
    /// The most requests of a batch.
    pub most: usize,
    /// The most batches under way.
    pub lanes: usize,
    /// If more requests than these wait, another batch at a time is faster.
    pub many: usize,
    /// Whether acquires and releases may share a batch. Renewals never do.
    pub are_mixed: bool,
    /// Whether batches wait for each other at the disk. If a sync takes long, one large batch is faster than two: acquires and
    /// releases share batches, where they may. Otherwise they are sent beside each other. Renewals are always sent beside both.
    pub share_a_disk: bool,
}

/// Sends requests in batches. Requests that arrive meanwhile go in the next one.
/// Requests for one key are sent in the order in which they arrived, each after the reply to the one before.
///
/// A batch that stalls keeps others waiting only as long as they are willing to pass it: then another
/// lane opens, for requests whose keys are in no unanswered batch, and for those that may pass an unanswered one of their
/// key. There is one lane more than batches under way.
///
/// The batches are sent by tasks that live while there are requests, on the runtimes of their callers.
///
/// Cheap to clone; clones are one queue.
pub struct Batches<S: Server>(Arc<Shared<S>>);

struct Shared<S> {
    server: Arc<S>,
    sizes: Sizes,
    /// The time limit of an operation.
    timeout: Duration,
    queue: Mutex<Queue>,
    /// When the connections were last retired because a batch stalled.
    retired: Mutex<Option<Instant>>,
}

/// A request that has entered [`Batches`].
struct Turn<S: Server, R: Request> {
    batches: Arc<Shared<S>>,
    number: u64,
    reply: oneshot::Receiver<Outcome<R::Reply>>,
}

impl<S: Server, R: Request> Turn<S, R> {
    /// Waits for the outcome: done, with an unknown effect, if the runtime that sent the request has ended.
    ///
    /// # Cancel safety
    /// May be dropped and called again, until it has returned.
    async fn outcome(&mut self) -> Outcome<R::Reply> {
        (&mut self.reply).await.unwrap_or_else(|_| {
            let message = "the async runtime that sent the request has ended, or nobody drives it";
            Outcome::Done(Err(Error::unavailable(Effect::Unknown, message)))
        })
    }

    /// Takes the request back. Returns true if it was not sent, and never will be.
    fn withdraw(self) -> bool {
        self.batches.queue().withdraw(self.number)
    }
}

impl<S: Server> Batches<S> {
    /// Batches of these sizes.
    pub fn new(server: Arc<S>, sizes: Sizes, timeout: Duration) -> Self {
        let (queue, retired) = (Mutex::default(), Mutex::default());
        Self(Arc::new(Shared { server, sizes, timeout, queue, retired }))
    }

    /// Sends these requests in their turn, even if nobody waits for the replies. They arrive at once, so that they go in
    /// as few batches as they can.
    fn enter<R: Request>(
        &self,
        requests: impl IntoIterator<Item = (Arc<R>, Deadline)>,
    ) -> vec::IntoIter<Turn<S, R>> {
        let (turns, sender) = {
            let mut queue = self.0.queue();
            let mut may_be_sent = false;
            let mut turns = Vec::new();
            for (request, until) in requests {
                let (replies, reply) = oneshot::channel();
                let ticket = R::ticket(Errand { request, until, reply: replies });
                may_be_sent |= !queue.is_held_up(&ticket);
                turns.push(Turn {
                    batches: Arc::clone(&self.0),
                    number: queue.enter(ticket),
                    reply,
                });
            }
            let sender = if may_be_sent { self.0.next_sender(&mut queue) } else { None };
            (turns, sender)
        };
        sender.into_iter().for_each(Sender::start);
        turns.into_iter()
    }

    /// Carries out requests, each in a batch if it may go in one, and otherwise alone: all at once, or one after the other if a
    /// key is named twice. They continue if their caller goes away.
    pub async fn carry_out<R: Request, F>(
        &self,
        requests: impl IntoIterator<Item = R>,
        until: Deadline,
        is_batched: impl Fn(&R) -> bool,
        alone: impl Fn(Arc<R>) -> F,
    ) -> Vec<Result<R::Reply>>
    where
        F: Future<Output = Result<R::Reply>> + Send + 'static,
    {
        let requests: Vec<_> = requests.into_iter().map(Arc::new).collect();
        let alone = &alone;
        let are_apart = {
            let (mut keys, mut named) =
                (requests.iter().flat_map(|one| one.keys()), HashSet::new());
            keys.all(|key| named.insert(key))
        };
        if are_apart {
            // Asked once: the answer may change, and a request in a batch must not go alone too.
            let are_batched: Vec<_> = requests.iter().map(|one| is_batched(one)).collect();
            let batched = requests.iter().zip(&are_batched).filter(|(_, is_batched)| **is_batched);
            let mut turns = self.enter(batched.map(|(one, _)| (Arc::clone(one), until)));
            let outcomes = requests.into_iter().zip(are_batched).map(|(request, is_batched)| {
                let turn = if is_batched { turns.next() } else { None };
                self.carry_out_one(request, turn, until, alone)
            });
            return join_all(outcomes).await;
        }
        let mut outcomes = Vec::new();
        for request in requests {
            let enter = || self.enter([(Arc::clone(&request), until)]).next();
            let turn = is_batched(&request).then(enter).flatten();
            outcomes.push(self.carry_out_one(request, turn, until, alone).await);
        }
        outcomes
    }

    async fn carry_out_one<R: Request, F>(
        &self,
        request: Arc<R>,
        turn: Option<Turn<S, R>>,
        until: Deadline,
        alone: impl Fn(Arc<R>) -> F,
    ) -> Result<R::Reply>
    where
        F: Future<Output = Result<R::Reply>> + Send + 'static,
    {
        if let Some(turn) = turn {
            let patience = request.patience(self.0.timeout);
            if let Outcome::Done(reply) = self.outcome(patience, turn, until).await {
                return reply;
            }
        }
        outliving(alone(request)).await
    }

    /// How a request ends that has entered, within the time limit of its operation.
    async fn outcome<R: Request>(
        &self,
        patience: Duration,
        mut turn: Turn<S, R>,
        until: Deadline,
    ) -> Outcome<R::Reply> {
        while !until.left().is_zero() {
            match until.within(patience).bound(turn.outcome()).await {
                Some(outcome) => return outcome,
                None => self.pass(patience),
            }
        }
        // What was not sent has no effect.
        let effect = if turn.withdraw() { Effect::NotApplied } else { Effect::Unknown };
        Outcome::Done(Err(self.0.server.unanswered(until.limit(), effect)))
    }

    /// Lets waiting requests pass the batches that have been under way for `patience` or longer. Another task, on this runtime, sends it, for the connection may be dead, or nobody may drive the
    /// runtime of the task that should have sent it.
    fn pass(&self, patience: Duration) {
        let (stalls, sender) = {
            let mut queue = self.0.queue();
            // For the connection, and for the exchange. A batch that takes longer is on a runtime that nobody drives.
            let stalls = queue.pass(patience, 2 * self.0.timeout);
            (stalls, self.0.next_sender(&mut queue))
        };
        if stalls {
            self.0.retire();
        }
        sender.into_iter().for_each(Sender::start);
    }
}

impl<S: Server> Shared<S> {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether batches wait for the disk rather than for the work of the server.
    fn is_slow(&self, queue: &Queue) -> bool {
        self.sizes.share_a_disk && queue.took >= SLOW
    }

    /// Whether acquires and releases share batches: where they would wait for each other anyway.
    fn are_mixed(&self, queue: &Queue) -> bool {
        self.sizes.are_mixed && (self.sizes.lanes == 1 || self.is_slow(queue))
    }

    /// The group of a request that may be sent beside the batches of the lanes, but for lane `except`. The server works for each batch
    /// on one of its cores.
    fn another_group(&self, queue: &Queue, except: Option<u64>) -> Option<Group> {
        let are_beside = self.sizes.share_a_disk && self.sizes.lanes > 1;
        if are_beside { queue.another_group(self.are_mixed(queue), except) } else { None }
    }

    /// Another sender, if one is needed.
    fn next_sender(self: &Arc<Self>, queue: &mut Queue) -> Option<Sender<S>> {
        let waiting = queue.waiting.len();
        let is_needed = match queue.running() {
            0 => waiting > 0,
            running => {
                // Those that are about to send leave less.
                let leaving = if self.is_slow(queue) { running - queue.under_way() } else { 0 };
                let are_many = waiting > self.sizes.many * (1 + leaving);
                // One that is about to send takes it.
                let is_left =
                    || queue.under_way() == running && self.another_group(queue, None).is_some();
                running < self.sizes.lanes && (are_many || is_left())
            }
        };
        (is_needed && queue.lanes.len() <= self.sizes.lanes).then(|| Sender::new(self, queue))
    }

    /// A connection stalls, and perhaps all that were made before: what is sent from now on uses new ones.
    fn retire(&self) {
        let (now, pause) = (now(), self.timeout / 5);
        let mut retired = self.retired.lock().unwrap_or_else(PoisonError::into_inner);
        // A server that is only slow must find the time to accept new ones.
        if retired.is_none_or(|last| now.saturating_duration_since(last) >= pause) {
            *retired = Some(now);
            drop(retired);
            self.server.retire();
        }
    }
}

impl<S: Server> Clone for Batches<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S: Server> fmt::Debug for Batches<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Batches({} waiting)", self.0.queue().waiting.len())
    }
}

#[cfg(test)]
mod tests;
