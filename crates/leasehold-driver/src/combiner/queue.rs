//! What waits, and what is under way.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::time::Duration;

use leasehold_core::{Key, Result};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::combine::Combine;

/// What waits, and what is under way.
pub(super) struct Queue<C: Combine> {
    pub(super) waiting: VecDeque<Waiting<C>>,
    /// The tasks that send them, by their numbers.
    pub(super) lanes: BTreeMap<u64, Lane<C>>,
    /// The last number of a task or a request.
    last: u64,
}

/// A request that nobody has sent yet.
pub(super) struct Waiting<C: Combine> {
    number: u64,
    pub(super) request: C::Request,
    pub(super) reply: oneshot::Sender<Option<Result<C::Reply>>>,
}

/// What a task has under way.
pub(super) struct Lane<C: Combine> {
    /// The unanswered requests.
    pub(super) batch: HashMap<Key, C::Request>,
    /// When it began.
    pub(super) since: Instant,
    /// It has sent one, and goes on.
    pub(super) has_begun: bool,
    /// Others go past it.
    pub(super) is_passed: bool,
    /// Ends the task when it is dropped.
    _gives_up: oneshot::Sender<()>,
}

impl<C: Combine> Queue<C> {
    pub(super) fn new() -> Self {
        Self { waiting: VecDeque::new(), lanes: BTreeMap::new(), last: 0 }
    }

    /// Lets a request wait. Its number.
    pub(super) fn enter(
        &mut self,
        request: C::Request,
        reply: oneshot::Sender<Option<Result<C::Reply>>>,
    ) -> u64 {
        self.last += 1;
        self.waiting.push_back(Waiting { number: self.last, request, reply });
        self.last
    }

    /// Whether the request with this number was still waiting; it does not any more.
    pub(super) fn withdraw(&mut self, number: u64) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|waiting| waiting.number != number);
        self.waiting.len() < before
    }

    /// A lane for another task, which ends when the queue gives it up.
    pub(super) fn open_lane(&mut self) -> (u64, oneshot::Receiver<()>) {
        let (gives_up, given_up) = oneshot::channel();
        self.last += 1;
        let batch = HashMap::new();
        let (since, has_begun, is_passed) = (now(), false, false);
        let lane = Lane { batch, since, has_begun, is_passed, _gives_up: gives_up };
        self.lanes.insert(self.last, lane);
        (self.last, given_up)
    }

    /// How many lanes others do not go past.
    pub(super) fn running(&self) -> usize {
        self.lanes.values().filter(|lane| !lane.is_passed).count()
    }

    /// Whether a request waits for the answer to one of its key.
    pub(super) fn is_held_up(&self, request: &C::Request) -> bool {
        let key = C::key(request);
        let mut earlier =
            self.lanes.values().filter_map(|lane| Some((lane.is_passed, lane.batch.get(key)?)));
        earlier.any(|(is_passed, earlier)| !is_passed || !C::may_pass(request, earlier))
    }

    /// Goes past the lanes that are older than `patience`. Whether a batch of one of them has just begun to stall.
    pub(super) fn pass(&mut self, patience: Duration, limit: Duration) -> bool {
        let (now, mut stalls) = (now(), false);
        self.lanes.retain(|_, lane| {
            let age = now.saturating_duration_since(lane.since);
            if age >= patience && !lane.batch.is_empty() {
                stalls |= !lane.is_passed;
                lane.is_passed = true;
            }
            // A task that nobody drives ends when somebody does, and sends nothing more.
            age < if lane.batch.is_empty() { patience } else { limit }
        });
        stalls
    }

    /// Takes the first request that may be sent and those of its kind after it, in key order. One that waits for an
    /// answer, or behind an earlier request of its key, stays.
    pub(super) fn take(&mut self, most: usize) -> Vec<Waiting<C>> {
        let stalls = self.lanes.values().any(|lane| lane.is_passed);
        let (mut batch, mut earlier) = (Vec::<Waiting<C>>::new(), HashSet::new());
        for next in std::mem::take(&mut self.waiting) {
            let request = &next.request;
            let is_first = earlier.insert(C::key(request).clone())
                || stalls && self.may_pass_all(request, &batch);
            let is_alike =
                batch.first().is_none_or(|first| C::kind(&first.request) == C::kind(request));
            if is_first && !self.is_held_up(request) && is_alike && batch.len() < most {
                batch.push(next);
            } else {
                self.waiting.push_back(next);
            }
        }
        batch.sort_by(|a, b| C::key(&a.request).cmp(C::key(&b.request)));
        batch
    }

    /// Whether a request may pass all that wait, and none of its key is in the batch.
    fn may_pass_all(&self, request: &C::Request, batch: &[Waiting<C>]) -> bool {
        let of_key = |other: &&Waiting<C>| C::key(&other.request) == C::key(request);
        !batch.iter().any(|other| of_key(&other))
            && self.waiting.iter().filter(of_key).all(|other| C::may_pass(request, &other.request))
    }
}

#[expect(clippy::disallowed_methods, reason = "the timers of those who wait count on this clock")]
pub(crate) fn now() -> Instant {
    Instant::now()
}
