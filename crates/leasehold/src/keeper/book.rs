use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::held::Held;

/// The leases in care, ordered by when the Keeper must look at them.
///
/// Taking one in wakes the Keeper only if it is due before what the Keeper already waits for, so that an
/// ordinary acquire sends it no message.
#[derive(Debug, Default)]
pub(super) struct Book(Mutex<Pages>);

#[derive(Debug, Default)]
struct Pages {
    /// In the order of arrival.
    leases: BTreeMap<u64, (Arc<Held>, Option<Duration>)>,
    queue: BTreeSet<(Duration, u64)>,
    /// When the Keeper wakes by itself.
    planned: Option<Duration>,
    longest_slack: Duration,
}

impl Book {
    /// Takes a lease in; true if the Keeper must be woken.
    pub(super) fn insert(&self, held: &Arc<Held>) -> bool {
        let mut pages = self.pages();
        pages.longest_slack = pages.longest_slack.max(held.slack());
        let wake = held.next_wake();
        pages.leases.insert(held.number, (Arc::clone(held), wake));
        pages.enqueue(held.number, wake)
    }

    /// Notes that a lease's next wake may have changed; true if the Keeper must be woken.
    pub(super) fn reschedule(&self, held: &Arc<Held>) -> bool {
        let mut pages = self.pages();
        let wake = held.next_wake();
        let Some((_, known)) = pages.leases.get_mut(&held.number) else { return false };
        let before = std::mem::replace(known, wake);
        pages.dequeue(held.number, before);
        pages.enqueue(held.number, wake)
    }

    /// Forgets a lease.
    pub(super) fn remove(&self, held: &Arc<Held>) {
        let mut pages = self.pages();
        if let Some((_, wake)) = pages.leases.remove(&held.number) {
            pages.dequeue(held.number, wake);
        }
    }

    /// If one is due now: all that may be renewed with it.
    pub(super) fn due(&self, now: Duration) -> Vec<Arc<Held>> {
        let pages = self.pages();
        if pages.queue.first().is_none_or(|(wake, _)| *wake > now) {
            return Vec::new();
        }
        let horizon = now.saturating_add(pages.longest_slack);
        let soon = pages.queue.iter().take_while(|(wake, _)| *wake <= horizon);
        soon.filter_map(|(_, number)| pages.leases.get(number))
            .map(|(held, _)| Arc::clone(held))
            .collect()
    }

    /// When the Keeper must wake, which it now promises to do.
    pub(super) fn plan(&self) -> Option<Duration> {
        let mut pages = self.pages();
        pages.planned = pages.queue.first().map(|(wake, _)| *wake);
        pages.planned
    }

    pub(super) fn all(&self) -> Vec<Arc<Held>> {
        self.pages().leases.values().map(|(held, _)| Arc::clone(held)).collect()
    }

    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pages {
    fn enqueue(&mut self, number: u64, wake: Option<Duration>) -> bool {
        let Some(wake) = wake else { return false };
        self.queue.insert((wake, number));
        let sooner = self.planned.is_none_or(|planned| wake < planned);
        if sooner {
            self.planned = Some(wake);
        }
        sooner
    }

    fn dequeue(&mut self, number: u64, wake: Option<Duration>) {
        if let Some(wake) = wake {
            self.queue.remove(&(wake, number));
        }
    }
}
