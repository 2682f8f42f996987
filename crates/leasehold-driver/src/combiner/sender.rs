//! The tasks that send.

use std::pin::pin;
use std::sync::Arc;

use futures_util::future::{Either, select};
use tokio::sync::oneshot;

use super::queue::{Queue, Waiting, now};
use super::{Combine, Shared};

/// From so many waiting requests on, a second batch at a time pays.
pub(super) const MANY: usize = 40;
/// From so many on, fewer batches pay more than shorter ones.
const VERY_MANY: usize = 400;

/// The task that sends what waits.
pub(super) struct Sender<C: Combine> {
    shared: Arc<Shared<C>>,
    number: u64,
    given_up: oneshot::Receiver<()>,
}

impl<C: Combine> Sender<C> {
    /// With a lane of its own in the queue.
    pub(super) fn new(shared: &Arc<Shared<C>>, queue: &mut Queue<C>) -> Self {
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
            let many = batch.len() > 1;
            let (requests, replies): (Vec<_>, Vec<_>) =
                batch.into_iter().map(|waiting| (waiting.request, waiting.reply)).unzip();
            let combine = &self.shared.combine;
            let answers = async {
                match &requests[..] {
                    [request] => vec![combine.send(request).await],
                    requests => combine.send_together(requests).await,
                }
            };
            // First of all, so that a task that nobody drove for long sends nothing more.
            let Either::Right((answers, _)) = select(&mut self.given_up, pin!(answers)).await
            else {
                return;
            };
            if let Some(lane) = self.shared.queue().lanes.get_mut(&self.number) {
                lane.batch.clear();
            }
            for (reply, answer) in replies.into_iter().zip(answers) {
                // The caller may have gone.
                drop(reply.send(answer));
            }
            if many {
                // Callers that have just been answered often have a next request.
                tokio::task::yield_now().await;
            }
        }
    }

    /// The next batch; `None` at the end of this task.
    fn next(&self) -> Option<Vec<Waiting<C>>> {
        let (batch, other) = {
            let mut queue = self.shared.queue();
            let lanes = self.shared.lanes;
            if queue.lanes.get(&self.number)?.is_passed && queue.running() >= lanes {
                // Others have taken its place.
                queue.lanes.remove(&self.number);
                return None;
            }
            let most = match queue.waiting.len() {
                VERY_MANY.. => self.shared.most,
                waiting => {
                    let others = queue.lanes.iter().filter(|(number, _)| **number != self.number);
                    let busy = others.filter(|(_, lane)| lane.has_begun).count();
                    let free = lanes.saturating_sub(busy).max(1);
                    waiting.div_ceil(free).max(MANY).min(self.shared.most)
                }
            };
            let batch = queue.take(most);
            let of_key =
                |waiting: &Waiting<C>| (C::key(&waiting.request).clone(), waiting.request.clone());
            let lane = queue.lanes.get_mut(&self.number)?;
            if batch.is_empty() {
                queue.lanes.remove(&self.number);
                return None;
            }
            lane.batch = batch.iter().map(of_key).collect();
            (lane.since, lane.has_begun, lane.is_passed) = (now(), true, false);
            (batch, self.shared.next_sender(&mut queue))
        };
        other.into_iter().for_each(Sender::start);
        Some(batch)
    }
}

impl<C: Combine> Drop for Sender<C> {
    /// With its runtime, too.
    fn drop(&mut self) {
        self.shared.queue().lanes.remove(&self.number);
    }
}
