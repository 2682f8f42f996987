use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use leasehold_core::LeaseId;
use tokio::sync::watch;

/// Who comes after whom on each node, for every lease id that an unanswered request names.
///
/// On one node a release of a lease must not overtake its acquire, which would then stay. So whatever adds or
/// ends a lease takes a turn on the node, at once and not in the task that waits for it, and ends it when it
/// is answered. Entries vanish with the last request.
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
    last: Option<watch::Receiver<()>>,
}

/// One request's place in line on one node; dropping it ends the turn.
#[derive(Debug)]
pub(crate) struct Turn {
    before: Option<watch::Receiver<()>>,
    #[expect(dead_code, reason = "its drop is what the next one awaits")]
    done: watch::Sender<()>,
    #[expect(dead_code, reason = "keeps the entry while a request is unanswered")]
    lease: Arc<LeaseTurns>,
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
        self.turn(&mut self.state().nodes[node])
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
        Some(self.turn(&mut state.nodes[node]))
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

    fn turn(self: &Arc<Self>, node: &mut NodeState) -> Turn {
        let (done, last) = watch::channel(());
        node.taken += 1;
        Turn { before: node.last.replace(last), done, lease: Arc::clone(self) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl NodeState {
    fn is_idle(&self) -> bool {
        // The sender of the last turn is gone when the turn is over.
        self.last.as_ref().is_none_or(|last| last.has_changed().is_err())
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
    pub(crate) async fn ready(&mut self) {
        if let Some(before) = &mut self.before {
            while before.changed().await.is_ok() {}
            self.before = None;
        }
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
        let mut first = lease.take(0);
        let mut second = lease.take(0);
        let mut third = lease.take(0);
        let mut elsewhere = lease.take(1);
        let mut other = turns.of(&id("b")).take(0);
        for free in [&mut first, &mut elsewhere, &mut other] {
            assert!(free.ready().now_or_never().is_some());
        }
        assert!(second.ready().now_or_never().is_none());
        drop(first);
        assert!(second.ready().now_or_never().is_some());
        // Gone without ever having been first.
        let mut fourth = lease.take(0);
        assert!(third.ready().now_or_never().is_none());
        drop(second);
        drop(third);
        assert!(fourth.ready().now_or_never().is_some());
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
