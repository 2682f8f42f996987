//! The tasks that send.

use std::ops::ControlFlow;
use std::pin::pin;
use std::sync::Arc;

use futures_util::future::{Either, select};
use tokio::sync::oneshot;

use super::queue::Queue;
use super::request::{Batch, Errand, Request};
use super::server::{Exchange, Server};
use super::{Shared, Sizes};
use crate::Deadline;
use crate::deadline::now;

/// From this many on, fewer batches are faster than shorter ones.
const VERY_MANY: usize = 400;

/// The task that sends what waits.
pub(super) struct Sender<S: Server> {
    shared: Arc<Shared<S>>,
    number: u64,
    given_up: oneshot::Receiver<()>,
}

impl<S: Server> Sender<S> {
    /// With a lane of its own in the queue.
    pub(super) fn new(shared: &Arc<Shared<S>>, queue: &mut Queue) -> Self {
        let (number, given_up) = queue.open_lane();
        Self { shared: Arc::clone(shared), number, given_up }
    }

    /// Not under the queue's lock: a runtime that is ending drops it at once.
    pub(super) fn start(self) {
        #[expect(clippy::disallowed_methods, reason = "a request outlives its caller (C15)")]
        drop(tokio::spawn(self.run()));
    }

    async fn run(mut self) {
        while let Some(batch) = self.next() {
            let is_given_up = match batch {
                Batch::Acquire(errands) => self.send(errands).await,
                Batch::Renew(errands) => self.send(errands).await,
                Batch::Release(errands) => self.send(errands).await,
            };
            if is_given_up.is_break() {
                return;
            }
        }
    }

    /// Sends a batch and answers it, unless the queue has given this task up.
    async fn send<R: Request>(&mut self, mut errands: Vec<Errand<R>>) -> ControlFlow<()>
    where
        S: Exchange<R>,
    {
        errands.sort_by(|a, b| a.request.key().cmp(b.request.key()));
        let requests: Vec<_> = errands.iter().map(|errand| &*errand.request).collect();
        // What has no connection by then can still be sent alone, and did not act.
        let first = errands.iter().map(|errand| errand.until).min_by_key(|until| until.left());
        let Some(begin) = first.map(Deadline::earlier) else { return ControlFlow::Continue(()) };
        let server = &self.shared.server;
        let outcomes = server.send(&requests, begin);
        // First of all, so that a task that nobody drove for long sends nothing more.
        let Either::Right((outcomes, _)) = select(&mut self.given_up, pin!(outcomes)).await else {
            return ControlFlow::Break(());
        };
        if let Some(lane) = self.shared.queue().lanes.get_mut(&self.number) {
            lane.batch.clear();
        }
        let many = errands.len() > 1;
        for (errand, outcome) in errands.into_iter().zip(outcomes) {
            // The caller may have gone.
            drop(errand.reply.send(outcome));
        }
        if many {
            // Callers that have just been answered often have a next request.
            tokio::task::yield_now().await;
        }
        ControlFlow::Continue(())
    }

    /// The next batch; `None` at the end of this task.
    fn next(&self) -> Option<Batch> {
        let (batch, other) = {
            let mut queue = self.shared.queue();
            let Sizes { most, lanes, many } = self.shared.sizes;
            if queue.lanes.get(&self.number)?.is_passed && queue.running() >= lanes {
                // Others have taken its place.
                queue.lanes.remove(&self.number);
                return None;
            }
            let most = match queue.waiting.len() {
                VERY_MANY.. => most,
                waiting => {
                    let others = queue.lanes.iter().filter(|(number, _)| **number != self.number);
                    let busy = others.filter(|(_, lane)| lane.has_begun).count();
                    let free = lanes.saturating_sub(busy).max(1);
                    waiting.div_ceil(free).max(many).min(most)
                }
            };
            let taken = queue.take(most);
            let Some((batch, sent)) = taken else {
                queue.lanes.remove(&self.number);
                return None;
            };
            let lane = queue.lanes.get_mut(&self.number)?;
            lane.batch = sent;
            (lane.since, lane.has_begun, lane.is_passed) = (now(), true, false);
            (batch, self.shared.next_sender(&mut queue))
        };
        other.into_iter().for_each(Sender::start);
        Some(batch)
    }
}

impl<S: Server> Drop for Sender<S> {
    /// With its runtime, too.
    fn drop(&mut self) {
        self.shared.queue().lanes.remove(&self.number);
    }
}
