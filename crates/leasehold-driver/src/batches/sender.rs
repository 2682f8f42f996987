//! The tasks that send.

use std::ops::ControlFlow;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};
use leasehold_core::Clock as _;
use tokio::sync::oneshot;

use super::queue::Queue;
use super::request::Batch;
use super::server::Server;
use super::{Shared, Sizes};
use crate::deadline::now;
use crate::{Deadline, SystemClock};

/// From this many on, fewer batches are faster than shorter ones.
const VERY_MANY: usize = 400;

/// About how long a server works for one request of a batch.
const EACH: Duration = Duration::from_micros(5);

/// What part of the time of a batch its callers have to send their next requests, before the next batch leaves without them.
const SHARE: u32 = 20;

/// The most time that they have.
const LONGEST: Duration = Duration::from_millis(1);

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
            if self.send(batch).await.is_break() {
                return;
            }
        }
    }

    /// Sends a batch and answers it, unless the queue has given this task up.
    async fn send(&mut self, mut batch: Batch) -> ControlFlow<()> {
        batch.sort();
        let requests = batch.requests();
        // What has no connection by then can still be sent alone, and did not act.
        let Some(begin) = batch.until().map(Deadline::earlier) else {
            return ControlFlow::Continue(());
        };
        let began = now();
        let outcomes = self.shared.server.send(&requests, begin);
        // First of all, so that a task that nobody drove for long sends nothing more.
        let Either::Right((outcomes, _)) = select(&mut self.given_up, pin!(outcomes)).await else {
            return ControlFlow::Break(());
        };
        let answered = u32::try_from(requests.keys().count()).unwrap_or(u32::MAX);
        let took = now().saturating_duration_since(began);
        let entered = {
            let mut queue = self.shared.queue();
            queue.took = took.saturating_sub(EACH.saturating_mul(answered));
            if let Some(lane) = queue.lanes.get_mut(&self.number) {
                lane.batch.clear();
            }
            queue.entered()
        };
        batch.answer(outcomes);
        if answered > 1 {
            self.let_enter(entered + u64::from(answered), (took / SHARE).min(LONGEST)).await;
        }
        ControlFlow::Continue(())
    }

    /// Callers that have just been answered often have a next request: it goes in the next batch if they have a moment to run.
    /// So many requests in all are expected.
    async fn let_enter(&self, expected: u64, patience: Duration) {
        // Tokio's clock may stand still, in a test.
        let (clock, began) = (SystemClock::new(), SystemClock::new().now());
        loop {
            tokio::task::yield_now().await;
            let is_over = clock.now().saturating_sub(began) >= patience;
            if is_over || self.shared.queue().entered() >= expected {
                return;
            }
        }
    }

    /// The next batch; `None` at the end of this task.
    fn next(&self) -> Option<Batch> {
        let (batch, sender) = {
            let mut queue = self.shared.queue();
            let Sizes { most, lanes, many, .. } = self.shared.sizes;
            let is_passed = queue.lanes.get(&self.number)?.is_passed;
            let others_took_its_place = is_passed && queue.running() >= lanes;
            let another = self.shared.another_group(&queue, Some(self.number));
            // The other may be about to send.
            let mut others = queue.lanes.iter().filter(|(number, _)| **number != self.number);
            let is_small = queue.waiting.len() <= many && others.any(|(_, lane)| !lane.is_passed);
            let others_do_it = is_small && another.is_none() && self.shared.is_slow(&queue);
            if others_took_its_place || others_do_it {
                queue.lanes.remove(&self.number);
                return None;
            }
            let most = match queue.waiting.len() {
                VERY_MANY.. => most,
                waiting => {
                    let others = queue.lanes.iter().filter(|(number, _)| **number != self.number);
                    let busy = others.filter(|(_, lane)| lane.has_begun).count();
                    let free = lanes.saturating_sub(busy).max(1);
                    // None is small.
                    let parts = (waiting / many.max(1)).clamp(1, free);
                    waiting.div_ceil(parts).min(most)
                }
            };
            let are_mixed = self.shared.are_mixed(&queue);
            let of_another = another.and_then(|group| queue.take(most, are_mixed, Some(group)));
            let taken = of_another.or_else(|| queue.take(most, are_mixed, None));
            let Some((batch, sent, group)) = taken else {
                queue.lanes.remove(&self.number);
                return None;
            };
            let lane = queue.lanes.get_mut(&self.number)?;
            (lane.batch, lane.group) = (sent, Some(group));
            (lane.since, lane.has_begun, lane.is_passed) = (now(), true, false);
            (batch, self.shared.next_sender(&mut queue))
        };
        sender.into_iter().for_each(Sender::start);
        Some(batch)
    }
}

impl<S: Server> Drop for Sender<S> {
    /// With its runtime, too.
    fn drop(&mut self) {
        self.shared.queue().lanes.remove(&self.number);
    }
}
