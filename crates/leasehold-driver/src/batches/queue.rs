//! What waits, and what is under way.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::time::Duration;

use leasehold_core::Key;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::request::{Batch, Group, Sent, Ticket};
use crate::deadline::now;

/// What waits, and what is under way.
#[derive(Default)]
pub(super) struct Queue {
    pub(super) waiting: VecDeque<Waiting>,
    /// The tasks that send them, by their numbers.
    pub(super) lanes: BTreeMap<u64, Lane>,
    /// How long the last batch took, without the work for its requests.
    pub(super) took: Duration,
    /// The last number of a request, and of a task.
    last: u64,
    last_lane: u64,
}

/// A request that nobody has sent yet.
pub(super) struct Waiting {
    number: u64,
    ticket: Ticket,
}

/// What a task has under way.
pub(super) struct Lane {
    /// The unanswered requests.
    pub(super) batch: HashMap<Key, Sent>,
    /// Their group, or that of the last batch.
    pub(super) group: Option<Group>,
    /// When it began.
    pub(super) since: Instant,
    /// It has sent one, and continues.
    pub(super) has_begun: bool,
    /// Requests of other lanes pass it.
    pub(super) is_passed: bool,
    /// Ends the task when it is dropped.
    _gives_up: oneshot::Sender<()>,
}

impl Queue {
    /// Adds a request, and returns its number.
    pub(super) fn enter(&mut self, ticket: Ticket) -> u64 {
        self.last += 1;
        self.waiting.push_back(Waiting { number: self.last, ticket });
        self.last
    }

    /// A number that grows with each request that enters.
    pub(super) fn entered(&self) -> u64 {
        self.last
    }

    /// Removes the request with this number. Returns whether it was still waiting.
    pub(super) fn withdraw(&mut self, number: u64) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|waiting| waiting.number != number);
        self.waiting.len() < before
    }

    /// A lane for another task, which ends when the queue gives it up.
    pub(super) fn open_lane(&mut self) -> (u64, oneshot::Receiver<()>) {
        let (gives_up, given_up) = oneshot::channel();
        self.last_lane += 1;
        let (batch, group) = (HashMap::new(), None);
        let (since, has_begun, is_passed) = (now(), false, false);
        let lane = Lane { batch, group, since, has_begun, is_passed, _gives_up: gives_up };
        self.lanes.insert(self.last_lane, lane);
        (self.last_lane, given_up)
    }

    /// How many lanes are not passed.
    pub(super) fn running(&self) -> usize {
        self.lanes.values().filter(|lane| !lane.is_passed).count()
    }

    /// How many of them have a batch under way; the others send what waits next.
    pub(super) fn under_way(&self) -> usize {
        let lanes = self.lanes.values();
        lanes.filter(|lane| !lane.is_passed && !lane.batch.is_empty()).count()
    }

    /// The group of the first request that may be sent and is of no group that a lane has: only those count that are not passed,
    /// and not lane `except`.
    pub(super) fn another_group(&self, are_mixed: bool, except: Option<u64>) -> Option<Group> {
        let has = |lane: &Lane, group| lane.group.is_some_and(|of| of.overlaps(group));
        let is_under_way = |group| {
            let mut lanes = self.lanes.iter().filter(|(number, _)| Some(**number) != except);
            lanes.any(|(_, lane)| !lane.is_passed && has(lane, group))
        };
        let mut keys = HashSet::new();
        let tickets = self.waiting.iter().map(|waiting| &waiting.ticket);
        let mut first_of_keys = tickets.filter(|ticket| keys.insert(ticket.key()));
        first_of_keys
            .find(|ticket| !is_under_way(ticket.group(are_mixed)) && !self.is_held_up(ticket))
            .map(|ticket| ticket.group(are_mixed))
    }

    /// Whether a request waits for the answer to one of its key.
    pub(super) fn is_held_up(&self, ticket: &Ticket) -> bool {
        let key = ticket.key();
        let mut earlier =
            self.lanes.values().filter_map(|lane| Some((lane.is_passed, lane.batch.get(key)?)));
        earlier.any(|(is_passed, earlier)| !is_passed || !ticket.may_pass(earlier))
    }

    /// Passes the lanes that are older than `patience`. Returns whether a batch of one of them has just begun to
    /// stall.
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

    /// Takes the first request that may be sent, of the group `only` if there is one, and those of its group after it, with what to
    /// remember of them; `None` if there is none. One that waits for an answer, or behind an earlier request of its key, stays.
    pub(super) fn take(
        &mut self,
        most: usize,
        are_mixed: bool,
        only: Option<Group>,
    ) -> Option<(Batch, HashMap<Key, Sent>, Group)> {
        let stalls = self.lanes.values().any(|lane| lane.is_passed);
        let (mut batch, mut earlier) = (Batch::default(), HashSet::new());
        let (mut sent, mut of_batch) = (HashMap::new(), only);
        for waiting in std::mem::take(&mut self.waiting) {
            let Waiting { number, ticket } = waiting;
            let key = ticket.key().clone();
            let is_first = earlier.insert(key.clone())
                || stalls && !sent.contains_key(&key) && self.may_pass_all(&ticket);
            let group = ticket.group(are_mixed);
            let is_other = of_batch.is_some_and(|of_batch| of_batch != group);
            if !is_first || is_other || sent.len() == most || self.is_held_up(&ticket) {
                self.waiting.push_back(Waiting { number, ticket });
                continue;
            }
            of_batch = Some(group);
            sent.insert(key, ticket.sent());
            batch.add(ticket);
        }
        of_batch.filter(|_| !sent.is_empty()).map(|group| (batch, sent, group))
    }

    /// Whether a request may pass all of its key that wait.
    fn may_pass_all(&self, ticket: &Ticket) -> bool {
        let mut of_key = self.waiting.iter().filter(|other| other.ticket.key() == ticket.key());
        of_key.all(|other| ticket.may_pass(&other.ticket.sent()))
    }
}
