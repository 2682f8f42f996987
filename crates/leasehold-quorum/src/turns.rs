use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use leasehold_core::LeaseId;
use tokio::sync::watch;

/// Who comes after whom on each node, for every lease id that an unanswered request names.
///
/// On one node a release of a lease must not overtake its acquire, which would then stay. So whatever adds or
/// ends a lease takes a turn on the node, at once and not in the task that waits for it, and ends it when all that
/// was sent in it is answered. Entries vanish with the last request.
#[derive(Debug)]
pub(crate) struct Turns {
    nodes: usize,
    leases: Mutex<HashMap<LeaseId, Weak<LeaseTurns>>>,
}

/// The turns on all nodes for one lease id.
#[derive(Debug)]
pub(crate) struct LeaseTurns {
    id: LeaseId,
    book: Arc<Turns>,
    state: Mutex<State>,
    changed: watch::Sender<()>,
}

#[derive(Debug)]
struct State {
    /// How often the lease was ended here: what was begun before puts it back nowhere.
    ends: u64,
    nodes: Vec<NodeState>,
}

#[derive(Debug, Clone, Default)]
struct NodeState {
    taken: u64,
    /// The numbers of the turns that are not over.
    open: BTreeSet<u64>,
    /// How many renewals are not answered.
    renewals: usize,
}

/// One request's place in line on one node. Its last clone ends the turn when it is dropped: whoever comes later then
/// waits for those before it, if it never was its turn.
#[derive(Debug, Clone)]
pub(crate) struct Turn(Arc<Slot>);

#[derive(Debug)]
struct Slot {
    lease: Arc<LeaseTurns>,
    node: usize,
    number: u64,
}

/// A renewal on one node that is not answered until it is dropped.
#[derive(Debug)]
pub(crate) struct Renewal {
    lease: Arc<LeaseTurns>,
    node: usize,
}

impl Turns {
    pub(crate) fn new(nodes: usize) -> Arc<Self> {
        Arc::new(Self { nodes, leases: Mutex::default() })
    }

    /// The turns of the lease `id`.
    pub(crate) fn of(self: &Arc<Self>, id: &LeaseId) -> Arc<LeaseTurns> {
        let mut leases = self.leases();
        if let Some(lease) = leases.get(id).and_then(Weak::upgrade) {
            return lease;
        }
        let state = State { ends: 0, nodes: vec![NodeState::default(); self.nodes] };
        let lease = Arc::new(LeaseTurns {
            id: id.clone(),
            book: Arc::clone(self),
            state: Mutex::new(state),
            changed: watch::Sender::new(()),
        });
        leases.insert(id.clone(), Arc::downgrade(&lease));
        lease
    }

    /// How many lease ids are remembered.
    pub(crate) fn len(&self) -> usize {
        self.leases().len()
    }

    fn leases(&self) -> MutexGuard<'_, HashMap<LeaseId, Weak<LeaseTurns>>> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LeaseTurns {
    /// Takes the next turn on a node.
    pub(crate) fn take(self: &Arc<Self>, node: usize) -> Turn {
        self.turn(&mut self.state(), node)
    }

    /// Says that a renewal is sent to a node: no acquire follows before it is answered, which it might undo.
    pub(crate) fn renewing(self: &Arc<Self>, node: usize) -> Renewal {
        self.state().nodes[node].renewals += 1;
        Renewal { lease: Arc::clone(self), node }
    }

    /// Ends the lease: what was begun before puts it back nowhere.
    pub(crate) fn end(&self) {
        self.state().ends += 1;
    }

    /// How often the lease was ended.
    pub(crate) fn ends(&self) -> u64 {
        self.state().ends
    }

    /// Takes a turn for putting the lease back on a node, unless it was ended since `ends` or another request
    /// is in line there.
    pub(crate) fn put_back(self: &Arc<Self>, node: usize, ends: u64) -> Option<Turn> {
        let mut state = self.state();
        if state.ends != ends || !state.nodes[node].is_idle() {
            return None;
        }
        Some(self.turn(&mut state, node))
    }

    /// A mark that stays the same as long as nobody is in line on the node; `None` if somebody is.
    ///
    /// A renewal counts what it finds there only if the mark is the same before and after: what an acquire put
    /// there may yet be taken back.
    pub(crate) fn idle(&self, node: usize) -> Option<u64> {
        let state = self.state();
        let node = &state.nodes[node];
        node.is_idle().then_some(node.taken)
    }

    fn turn(self: &Arc<Self>, state: &mut State, node: usize) -> Turn {
        let of_node = &mut state.nodes[node];
        of_node.taken += 1;
        of_node.open.insert(of_node.taken);
        Turn(Arc::new(Slot { lease: Arc::clone(self), node, number: of_node.taken }))
    }

    fn change(&self, node: usize, change: impl FnOnce(&mut NodeState)) {
        change(&mut self.state().nodes[node]);
        self.changed.send_replace(());
    }

    /// Ends when `is_so` of the node.
    async fn until(&self, node: usize, is_so: impl Fn(&NodeState) -> bool) {
        let mut changed = self.changed.subscribe();
        while !is_so(&self.state().nodes[node]) {
            let alive = changed.changed().await.is_ok();
            debug_assert!(alive, "the sender is ours");
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl NodeState {
    fn is_idle(&self) -> bool {
        self.open.is_empty()
    }
}

impl Drop for LeaseTurns {
    fn drop(&mut self) {
        let mut leases = self.book.leases();
        // A new one may have come meanwhile.
        if leases.get(&self.id).is_some_and(|lease| lease.strong_count() == 0) {
            leases.remove(&self.id);
        }
    }
}

impl Turn {
    /// Ends when every earlier turn is over.
    ///
    /// # Cancel safety
    /// May be dropped; the place in line stays.
    pub(crate) async fn ready(&self) {
        let Slot { lease, node, number } = &*self.0;
        lease.until(*node, |state| state.open.first() == Some(number)).await;
    }

    /// As [`ready`](Self::ready), when no renewal is unanswered either.
    ///
    /// # Cancel safety
    /// May be dropped; the place in line stays.
    pub(crate) async fn ready_alone(&self) {
        let Slot { lease, node, number } = &*self.0;
        let is_alone =
            |state: &NodeState| state.open.first() == Some(number) && state.renewals == 0;
        lease.until(*node, is_alone).await;
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.lease.change(self.node, |state| {
            state.open.remove(&self.number);
        });
    }
}

impl Drop for Renewal {
    fn drop(&mut self) {
        self.lease.change(self.node, |state| state.renewals -= 1);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn id(name: &str) -> LeaseId {
        LeaseId::foreign(name.as_bytes()).unwrap()
    }

    #[test]
    fn turns_come_in_the_order_they_were_taken_node_by_node() {
        let turns = Turns::new(2);
        let lease = turns.of(&id("a"));
        let first = lease.take(0);
        let second = lease.take(0);
        let third = lease.take(0);
        let elsewhere = lease.take(1);
        let other = turns.of(&id("b")).take(0);
        for free in [&first, &elsewhere, &other] {
            assert!(free.ready().now_or_never().is_some());
        }
        assert!(second.ready().now_or_never().is_none());
        drop(first);
        assert!(second.ready().now_or_never().is_some());
        let fourth = lease.take(0);
        assert!(third.ready().now_or_never().is_none());
        // Gone without ever having been first: the next still waits for the one before.
        drop(third);
        assert!(fourth.ready().now_or_never().is_none());
        assert_eq!(lease.idle(0), None);
        let attempt = second.clone();
        drop(second);
        assert!(fourth.ready().now_or_never().is_none(), "not all that was sent is answered");
        drop(attempt);
        assert!(fourth.ready().now_or_never().is_some());
    }

    #[test]
    fn an_acquire_waits_for_the_renewals_of_an_earlier_life() {
        let turns = Turns::new(1);
        let lease = turns.of(&id("a"));
        let renewal = lease.renewing(0);
        let turn = lease.take(0);
        assert!(turn.ready().now_or_never().is_some());
        assert!(turn.ready_alone().now_or_never().is_none());
        drop(renewal);
        assert!(turn.ready_alone().now_or_never().is_some());
    }

    #[test]
    fn nothing_is_put_back_after_an_end_or_out_of_turn() {
        let turns = Turns::new(1);
        let lease = turns.of(&id("a"));
        let ends = lease.ends();
        let acquire = lease.take(0);
        assert!(lease.put_back(0, ends).is_none());
        assert_eq!(lease.idle(0), None);
        drop(acquire);
        let mark = lease.idle(0);
        assert!(mark.is_some());
        drop(lease.put_back(0, ends).unwrap());
        assert_ne!(lease.idle(0), mark);
        lease.end();
        assert!(lease.put_back(0, ends).is_none());
    }

    #[test]
    fn what_is_answered_is_forgotten() {
        let turns = Turns::new(3);
        let turn = turns.of(&id("a")).take(1);
        let same = turns.of(&id("a"));
        assert_eq!(turns.len(), 1);
        drop(turn);
        assert_eq!(turns.len(), 1);
        drop(same);
        assert_eq!(turns.len(), 0);
    }
}
