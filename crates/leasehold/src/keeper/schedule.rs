use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::lease::state::LeaseState;

/// The leases in care, ordered by when the Keeper must look at them.
///
/// Taking one in wakes the Keeper only if it is due before what the Keeper already waits for, so that an
/// ordinary acquire sends it no message.
#[derive(Debug, Default)]
pub(super) struct Schedule(Mutex<Entries>);

/// So many times in vain are often.
const OFTEN: u32 = 32;

#[derive(Debug, Default)]
struct Entries {
    /// In the order of arrival.
    leases: BTreeMap<u64, (Arc<LeaseState>, Option<Duration>)>,
    queue: BTreeSet<(Duration, u64)>,
    /// When the Keeper wakes by itself.
    planned: Option<Duration>,
    /// How often it was woken since the last promise that it kept, and nothing was left to be done.
    in_vain: u32,
    longest_slack: Duration,
}

impl Schedule {
    /// Takes a lease in; true if the Keeper must be woken.
    pub(super) fn insert(&self, held: &Arc<LeaseState>) -> bool {
        let mut entries = self.entries();
        entries.longest_slack = entries.longest_slack.max(held.slack());
        let wake = held.next_wake();
        entries.leases.insert(held.number, (Arc::clone(held), wake));
        entries.enqueue(held.number, wake)
    }

    /// Notes that a lease's next wake may have changed; true if the Keeper must be woken.
    pub(super) fn reschedule(&self, held: &Arc<LeaseState>) -> bool {
        let mut entries = self.entries();
        let wake = held.next_wake();
        let Some((_, known)) = entries.leases.get_mut(&held.number) else { return false };
        let before = std::mem::replace(known, wake);
        entries.dequeue(held.number, before);
        entries.enqueue(held.number, wake)
    }

    /// Forgets a lease.
    pub(super) fn remove(&self, held: &Arc<LeaseState>) {
        let mut entries = self.entries();
        if let Some((_, wake)) = entries.leases.remove(&held.number) {
            entries.dequeue(held.number, wake);
        }
    }

    /// If one is due now: all that may be renewed with it.
    pub(super) fn due(&self, now: Duration) -> Vec<Arc<LeaseState>> {
        let entries = self.entries();
        if entries.queue.first().is_none_or(|(wake, _)| *wake > now) {
            return Vec::new();
        }
        let horizon = now.saturating_add(entries.longest_slack);
        let soon = entries.queue.iter().take_while(|(wake, _)| *wake <= horizon);
        soon.filter_map(|(_, number)| entries.leases.get(number))
            .map(|(held, _)| Arc::clone(held))
            .collect()
    }

    /// When the Keeper will wake, which it now promises to do. Once it has been woken in vain often, because leases
    /// were released before it looked, the promise stands also without a lease: else each short hold would wake it.
    pub(super) fn plan(&self, now: Duration) -> Option<Duration> {
        let mut entries = self.entries();
        let due = entries.queue.first().map(|(wake, _)| *wake);
        let promised = entries.planned.filter(|planned| *planned > now);
        entries.in_vain = match (promised, due) {
            (None, _) => 0,
            (Some(_), None) => entries.in_vain.saturating_add(1),
            (Some(_), Some(_)) => entries.in_vain,
        };
        let stands = promised.filter(|_| entries.in_vain >= OFTEN);
        entries.planned = stands.into_iter().chain(due).min();
        entries.planned
    }

    pub(super) fn all(&self) -> Vec<Arc<LeaseState>> {
        self.entries().leases.values().map(|(held, _)| Arc::clone(held)).collect()
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entries {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_promise_stands_without_a_lease_once_many_were_given_in_vain() {
        const S: Duration = Duration::from_secs(1);
        let schedule = Schedule::default();
        let plan = |promised: Option<Duration>, now| {
            schedule.entries().planned = promised;
            schedule.plan(now)
        };
        for _ in 1..OFTEN {
            assert_eq!(plan(Some(10 * S), S), None);
        }
        assert_eq!(plan(Some(10 * S), S), Some(10 * S));
        assert_eq!(plan(Some(10 * S), 9 * S), Some(10 * S));
        assert_eq!(plan(Some(10 * S), 10 * S), None, "it was kept");
        assert_eq!(plan(Some(20 * S), 11 * S), None, "it is counted anew");
    }
}
