use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::lease::state::LeaseState;
use crate::telemetry::Held;

/// The held leases, ordered by when the Keeper must look at them.
///
/// Adding a lease wakes the Keeper only if it is due before the Keeper's next wake, so that an ordinary acquire
/// sends it no message.
#[derive(Debug, Default)]
pub(super) struct Schedule(Mutex<Entries>);

#[derive(Debug, Default)]
struct Entries {
    /// In the order of arrival.
    leases: BTreeMap<u64, Entry>,
    queue: BTreeSet<(Duration, u64)>,
    /// When the Keeper wakes by itself.
    planned: Option<Duration>,
    longest_slack: Duration,
}

#[derive(Debug)]
struct Entry {
    held: Arc<LeaseState>,
    /// When the Keeper must look at it.
    wake: Option<Duration>,
    #[expect(dead_code, reason = "counts the lease for as long as it is here")]
    counted: Held,
}

impl Schedule {
    /// Adds a lease; true if the Keeper must be woken.
    pub(super) fn insert(&self, held: &Arc<LeaseState>, counted: Held) -> bool {
        let mut entries = self.entries();
        entries.longest_slack = entries.longest_slack.max(held.slack());
        let wake = held.next_wake();
        let entry = Entry { held: Arc::clone(held), wake, counted };
        entries.leases.insert(held.number, entry);
        entries.enqueue(held.number, wake)
    }

    /// Notes that the next wake of a lease may have changed; true if the Keeper must be woken.
    pub(super) fn reschedule(&self, held: &Arc<LeaseState>) -> bool {
        let mut entries = self.entries();
        let wake = held.next_wake();
        let Some(entry) = entries.leases.get_mut(&held.number) else { return false };
        let before = std::mem::replace(&mut entry.wake, wake);
        entries.dequeue(held.number, before);
        entries.enqueue(held.number, wake)
    }

    /// Forgets a lease.
    pub(super) fn remove(&self, held: &Arc<LeaseState>) {
        let mut entries = self.entries();
        if let Some(entry) = entries.leases.remove(&held.number) {
            entries.dequeue(held.number, entry.wake);
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
            .map(|entry| Arc::clone(&entry.held))
            .collect()
    }

    /// When the Keeper wakes next; the Keeper must then wake.
    ///
    /// A plan stays although the lease it was made for has ended: then the next lease, which is due later, wakes no
    /// Keeper to plan anew.
    pub(super) fn plan(&self, now: Duration) -> Option<Duration> {
        let mut entries = self.entries();
        let first = entries.queue.first().map(|(wake, _)| *wake);
        let planned = entries.planned.filter(|planned| *planned > now);
        entries.planned = first.into_iter().chain(planned).min();
        entries.planned
    }

    /// When the Keeper wakes next, or should have.
    pub(super) fn planned(&self) -> Option<Duration> {
        self.entries().planned
    }

    pub(super) fn all(&self) -> Vec<Arc<LeaseState>> {
        self.entries().leases.values().map(|entry| Arc::clone(&entry.held)).collect()
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
    use crate::lease::state::tests::held;

    const S: Duration = Duration::from_secs(1);

    #[test]
    fn a_lease_that_follows_an_ended_one_wakes_no_keeper() {
        let schedule = Schedule::default();
        let [first, second] = [(); 2].map(|()| held(Some(10 * S)));
        let counted = || Held::new("local", None);
        assert!(schedule.insert(&first, counted()), "the Keeper has no plan");
        assert_eq!(schedule.plan(100 * S), Some(110 * S));
        schedule.remove(&first);
        assert_eq!(schedule.plan(101 * S), Some(110 * S), "the plan stays");
        assert!(!schedule.insert(&second, counted()), "it is not due sooner");
        schedule.remove(&second);
        assert_eq!(schedule.plan(110 * S), None, "the plan is carried out");
    }
}
