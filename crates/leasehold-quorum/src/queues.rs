use std::collections::{BTreeMap, HashMap};
use std::iter::repeat_with;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leasehold_core::{Key, LeaseId};
use tokio::sync::Notify;

/// The unanswered requests, in one queue for each lease, key and node.
///
/// On one node a release must not overtake the acquire of its lease, which would then stay; and a renewal or
/// release must not reach a later lease of the same id. So a request joins the queues of everything that it names
/// at once, acts on a node when it is first in them, and leaves when everything that it sent there is answered.
/// Empty queues are removed.
#[derive(Debug)]
pub(crate) struct Queues {
    nodes: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    requests: u64,
    /// One queue for each node.
    queues: HashMap<Name, Vec<Queue>>,
}

type Name = (LeaseId, Key);

/// Requests by their numbers.
type Queue = BTreeMap<u64, Member>;

#[derive(Debug)]
struct Member {
    woken: Arc<Notify>,
    /// It may put the lease where it is not.
    adds: bool,
}

/// The place of one lease of a request in the queues of one node. Dropping its last clone leaves them, also before
/// its turn: those behind it still wait for those before it.
#[derive(Debug, Clone)]
pub(crate) struct Place(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    queues: Arc<Queues>,
    node: usize,
    request: u64,
    lease: usize,
    names: Arc<[Name]>,
    woken: Arc<Notify>,
    follows_addition: bool,
}

impl Queues {
    pub(crate) fn new(nodes: usize) -> Arc<Self> {
        Arc::new(Self { nodes, state: Mutex::default() })
    }

    /// Queues a request about these leases, and these keys of them, behind all earlier ones; returns its places on
    /// each node. `adds`: it may put a lease where it is not.
    pub(crate) fn join<'a, K>(
        self: &Arc<Self>,
        adds: bool,
        leases: impl Iterator<Item = (&'a LeaseId, K)>,
    ) -> Vec<Vec<Place>>
    where
        K: Iterator<Item = &'a Key>,
    {
        let woken: Vec<Arc<Notify>> = (0..self.nodes).map(|_| Arc::default()).collect();
        let mut places = vec![Vec::with_capacity(leases.size_hint().0); self.nodes];
        let mut state = self.state();
        state.requests += 1;
        let request = state.requests;
        for (lease, (id, keys)) in leases.enumerate() {
            let names: Arc<[Name]> = keys.map(|key| (id.clone(), key.clone())).collect();
            let mut follows_addition = vec![false; self.nodes];
            for name in names.iter() {
                let queues = state.queues.entry(name.clone());
                let queues =
                    queues.or_insert_with(|| repeat_with(Queue::new).take(self.nodes).collect());
                for (node, queue) in queues.iter_mut().enumerate() {
                    follows_addition[node] |= queue.values().any(|earlier| earlier.adds);
                    queue.insert(request, Member { woken: Arc::clone(&woken[node]), adds });
                }
            }
            for (node, woken) in woken.iter().enumerate() {
                places[node].push(Place(Arc::new(Inner {
                    queues: Arc::clone(self),
                    node,
                    request,
                    lease,
                    names: Arc::clone(&names),
                    woken: Arc::clone(woken),
                    follows_addition: follows_addition[node],
                })));
            }
        }
        places
    }

    /// How many keys of leases are kept.
    pub(crate) fn len(&self) -> usize {
        self.state().queues.len()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// The index of its lease in the request.
    pub(crate) fn lease(&self) -> usize {
        self.0.lease
    }

    /// Ends when every earlier request that names a key of the lease is answered.
    ///
    /// # Cancel safety
    /// May be dropped; the place stays.
    pub(crate) async fn turn(&self) {
        while !self.is_first() {
            self.0.woken.notified().await;
        }
    }

    /// Whether an earlier request, unanswered when this one joined, may put the lease where it was not.
    pub(crate) fn follows_addition(&self) -> bool {
        self.0.follows_addition
    }

    /// Makes the request one that adds the lease, unless another waits behind it; returns whether it did.
    pub(crate) fn add_if_last(&self) -> bool {
        let Inner { queues, node, request, names, .. } = &*self.0;
        let mut state = queues.state();
        let is_last = names.iter().all(|name| {
            let last = state.queues.get(name).and_then(|queues| queues[*node].last_key_value());
            last.is_some_and(|(last, _)| last == request)
        });
        for name in names.iter().filter(|_| is_last) {
            let queues = state.queues.get_mut(name);
            if let Some(member) = queues.and_then(|queues| queues[*node].get_mut(request)) {
                member.adds = true;
            }
        }
        is_last
    }

    fn is_first(&self) -> bool {
        let Inner { queues, node, request, names, .. } = &*self.0;
        let state = queues.state();
        names.iter().all(|name| {
            let first = state.queues.get(name).and_then(|queues| queues[*node].first_key_value());
            first.is_none_or(|(first, _)| first >= request)
        })
    }
}

/// Takes all places whose turn has come, as soon as there is one; `None` if none is left.
///
/// # Cancel safety
/// May be dropped; the places stay.
pub(crate) async fn next_turns(waiting: &mut Vec<Place>) -> Option<Vec<Place>> {
    loop {
        let woken = Arc::clone(&waiting.first()?.0.woken);
        let (turns, rest): (Vec<_>, _) = waiting.drain(..).partition(Place::is_first);
        *waiting = rest;
        if !turns.is_empty() {
            return Some(turns);
        }
        woken.notified().await;
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let mut state = self.queues.state();
        for name in self.names.iter() {
            let Some(queues) = state.queues.get_mut(name) else { continue };
            queues[self.node].remove(&self.request);
            if let Some((_, next)) = queues[self.node].first_key_value() {
                next.woken.notify_one();
            }
            if queues.iter().all(Queue::is_empty) {
                state.queues.remove(name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::iter;

    use futures_util::FutureExt;

    use super::*;

    fn join(queues: &Arc<Queues>, leases: &[(&str, &str)]) -> Vec<Vec<Place>> {
        let named: Vec<_> = leases
            .iter()
            .map(|(id, key)| (LeaseId::foreign(id.as_bytes()).unwrap(), Key::new(key).unwrap()))
            .collect();
        queues.join(false, named.iter().map(|(id, key)| (id, iter::once(key))))
    }

    /// Joins with one lease and returns its place on the first node.
    fn one(queues: &Arc<Queues>, id: &str, key: &str) -> Place {
        join(queues, &[(id, key)]).remove(0).remove(0)
    }

    fn is_first(place: &Place) -> bool {
        place.turn().now_or_never().is_some()
    }

    #[test]
    fn each_lease_key_and_node_has_a_fifo_of_its_own() {
        let queues = Queues::new(2);
        let mut first = join(&queues, &[("a", "k")]);
        let mut second = join(&queues, &[("a", "k")]);
        assert!(is_first(&first[0][0]) && is_first(&one(&queues, "b", "k")));
        assert!(is_first(&one(&queues, "a", "other")) && !is_first(&second[0][0]));
        let third = one(&queues, "a", "k");
        drop(first.remove(1));
        assert!(is_first(&second[1][0]) && !is_first(&second[0][0]));
        // It leaves before its turn: the next one still waits for the one before.
        drop(second.remove(0));
        assert!(!is_first(&third));
        let attempt = first[0][0].clone();
        drop(first);
        assert!(!is_first(&third), "not all that was sent is answered");
        drop(attempt);
        assert!(is_first(&third));
    }

    #[tokio::test]
    async fn leaving_wakes_the_next() {
        let queues = Queues::new(1);
        let (first, second) = (one(&queues, "a", "k"), one(&queues, "a", "k"));
        let turn = second.turn();
        tokio::pin!(turn);
        assert!(turn.as_mut().now_or_never().is_none());
        drop(first);
        turn.await;
    }

    #[test]
    fn a_busy_queue_of_one_lease_delays_no_other() {
        let queues = Queues::new(1);
        let busy = one(&queues, "b", "k");
        let mut waiting = join(&queues, &[("a", "k"), ("b", "k"), ("c", "k")]).remove(0);
        let turns = next_turns(&mut waiting).now_or_never().flatten().unwrap();
        assert_eq!(turns.iter().map(Place::lease).collect::<Vec<_>>(), [0, 2]);
        assert!(next_turns(&mut waiting).now_or_never().is_none());
        drop(busy);
        let turns = next_turns(&mut waiting).now_or_never().flatten().unwrap();
        assert_eq!(turns.iter().map(Place::lease).collect::<Vec<_>>(), [1]);
        assert!(next_turns(&mut waiting).now_or_never().unwrap().is_none());
    }

    #[test]
    fn a_request_knows_what_may_be_added_before_its_turn() {
        let queues = Queues::new(1);
        let first = one(&queues, "a", "k");
        assert!(first.add_if_last());
        let second = one(&queues, "a", "k");
        assert!(second.follows_addition() && !first.follows_addition());
        assert!(!one(&queues, "a", "other").follows_addition());
        drop(first);
        let third = one(&queues, "a", "k");
        assert!(!third.follows_addition());
        assert!(!second.add_if_last(), "the third was told otherwise");
        let added =
            queues.join(true, iter::once((&third.0.names[0].0, iter::once(&third.0.names[0].1))));
        assert!(one(&queues, "a", "k").follows_addition());
        drop(added);
    }

    #[test]
    fn a_lease_named_twice_does_not_wait_for_itself() {
        let queues = Queues::new(1);
        let mut waiting = join(&queues, &[("a", "k"), ("a", "k")]).remove(0);
        let mut turns = next_turns(&mut waiting).now_or_never().flatten().unwrap();
        assert_eq!(turns.len(), 2);
        drop(turns.pop());
        assert!(is_first(&turns[0]));
    }

    #[test]
    fn empty_queues_are_removed() {
        let queues = Queues::new(3);
        let mut places = join(&queues, &[("a", "k"), ("b", "k")]);
        assert_eq!(queues.len(), 2);
        for left in [2, 2, 0] {
            drop(places.pop());
            assert_eq!(queues.len(), left);
        }
    }
}
