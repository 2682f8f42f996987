//! C12: waiters are woken when a majority of the nodes may be free, and not by fewer.

use std::slice::from_ref;

use crate::faulty::{Cluster, Fault, Faulty, LIMIT, Node, ask, grant, id, key, ms, refused};
use futures_util::FutureExt;
use leasehold_core::{Clock, Effect, ErrorKind, Key, ReleaseEntry, ReleaseRequest, Store, Wakeups};
use leasehold_driver::TokioClock;
use leasehold_quorum::QuorumConfig;
use leasehold_sqlite::SqliteStore;

/// Hints to the listeners at the node that `key` may be free there.
async fn tell(node: &Node, key: &Key) {
    let ending = ReleaseEntry::new(id("another client"), [key.clone()]);
    node.local().release(&ReleaseRequest::new(vec![ending])).await.unwrap();
}

/// The hints so far.
fn next_hint(wakeups: &mut Wakeups) -> Option<Key> {
    wakeups.next().now_or_never()
}

#[tokio::test(start_paused = true)]
async fn hints_of_a_majority_wake_and_those_of_one_node_do_not() {
    let cluster = Cluster::new(3, false);
    let (nodes, key) = (&cluster.nodes, key());
    let mut wakeups = cluster.store.subscribe(from_ref(&key)).await.unwrap();
    assert_eq!(next_hint(&mut wakeups), None);
    for _ in 0..3 {
        // As when it rolls its own part back there, again and again.
        tell(&nodes[0], &key).await;
        assert_eq!(next_hint(&mut wakeups), None);
    }
    tell(&nodes[1], &key).await;
    assert_eq!(next_hint(&mut wakeups), Some(key.clone()));
    assert_eq!(next_hint(&mut wakeups), None);
}

#[tokio::test(start_paused = true)]
async fn each_wake_up_takes_a_majority_of_its_own() {
    let cluster = Cluster::new(5, false);
    let (nodes, key) = (&cluster.nodes, key());
    let mut wakeups = cluster.store.subscribe(from_ref(&key)).await.unwrap();
    for told in [[0, 1, 2], [2, 3, 4], [0, 2, 4]] {
        for (node, is_last) in told.into_iter().zip([false, false, true]) {
            tell(&nodes[node], &key).await;
            assert_eq!(next_hint(&mut wakeups).is_some(), is_last, "n{node} of {told:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn hints_of_different_keys_make_no_majority() {
    let cluster = Cluster::new(3, false);
    let (nodes, keys) = (&cluster.nodes, ["a", "b"].map(|key| Key::new(key).unwrap()));
    let mut wakeups = cluster.store.subscribe(&keys).await.unwrap();
    tell(&nodes[0], &keys[0]).await;
    tell(&nodes[1], &keys[1]).await;
    assert_eq!(next_hint(&mut wakeups), None);
    tell(&nodes[2], &keys[1]).await;
    assert_eq!(next_hint(&mut wakeups), Some(keys[1].clone()));
    tell(&nodes[2], &keys[0]).await;
    assert_eq!(next_hint(&mut wakeups), Some(keys[0].clone()), "n0 has told of it before");
}

/// Otherwise nothing would wake the waiters of a key that is free on a majority.
#[tokio::test(start_paused = true)]
async fn a_node_without_hints_counts_as_free() {
    for (count, silent, needed) in [(3, 1, 1), (3, 2, 1), (5, 1, 2), (5, 2, 1)] {
        let cluster = Cluster::new(count, false);
        let (silenced, telling) = cluster.nodes.split_at(silent);
        for node in silenced {
            node.next(&[Fault::Unreachable]);
        }
        let mut wakeups = cluster.store.subscribe(&[key()]).await.unwrap();
        for (at, node) in telling.iter().take(needed).enumerate() {
            assert_eq!(next_hint(&mut wakeups), None, "{at} of {count}, {silent} silent");
            tell(node, &key()).await;
        }
        assert_eq!(next_hint(&mut wakeups), Some(key()), "{needed} of {count}, {silent} silent");
    }
}

#[tokio::test(start_paused = true)]
async fn subscribing_to_no_reachable_node_is_an_error() {
    let cluster = Cluster::new(3, false);
    cluster.nodes.iter().for_each(|node| node.down(Fault::Unreachable));
    let since = cluster.clock.now();
    let error = cluster.store.subscribe(&[key()]).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::NotApplied));
    assert_eq!((error.nodes().len(), cluster.clock.now() - since), (3, ms(0)));
}

/// Those whom the contender refused do not wait for a wake-up: each would try, split the nodes again, and wake all.
#[tokio::test(start_paused = true)]
async fn a_contender_whom_a_minority_granted_wakes_nobody() {
    let cluster = Cluster::new(3, false);
    for node in &cluster.nodes[1..] {
        grant(&node.local(), &id("holder")).await;
    }
    let mut wakeups = cluster.nodes[0].local().subscribe(&[key()]).await.unwrap();
    refused(&cluster.store, &id("contender")).await;
    cluster.mend().await;
    assert_eq!(cluster.copies(&id("contender")).await, 0);
    assert_eq!(next_hint(&mut wakeups), None);
}

/// Others may have been refused by the majority that it had.
#[tokio::test(start_paused = true)]
async fn an_acquire_that_a_majority_may_have_granted_wakes_when_it_is_taken_back() {
    let cluster = Cluster::new(3, false);
    cluster.nodes[0].down(Fault::Unreachable);
    cluster.nodes[1].next(&[Fault::SlowReply(LIMIT * 2)]);
    let mut wakeups = cluster.nodes[2].local().subscribe(&[key()]).await.unwrap();
    let error = cluster.store.acquire(&ask(&id("own"))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    cluster.mend().await;
    assert_eq!(next_hint(&mut wakeups), Some(key()));
}

/// Its capabilities report that it never notifies.
#[tokio::test]
async fn if_one_node_cannot_notify_no_node_is_subscribed_to() {
    let nodes = [(); 2].map(|()| Node::new(TokioClock::new(), 0));
    let silent = SqliteStore::in_memory().await.unwrap();
    let mut config = QuorumConfig::new().node("silent", silent);
    for (at, node) in nodes.iter().enumerate() {
        config = config.node(format!("n{at}"), Faulty(node.clone()));
    }
    let store = config.build().unwrap();
    assert!(!store.capabilities().notifications);
    let mut wakeups = store.subscribe(&[key()]).await.unwrap();
    for node in &nodes {
        assert_eq!(node.log(), []);
        tell(node, &key()).await;
    }
    assert_eq!(next_hint(&mut wakeups), None);
}
