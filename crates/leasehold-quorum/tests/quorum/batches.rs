//! Requests about several leases: what happens to one lease on a node does not happen to the others.

use std::time::Duration;

use leasehold_core::{
    AcquireReply, AcquireRequest, Claims, Clock, Key, LeaseId, Mode, ReleaseEntry, ReleaseOutcome,
    ReleaseRequest, RenewEntry, RenewOutcome, RenewRequest, Store,
};

use crate::faulty::{Cluster, Fault, LIMIT, Sent, TERM, id, ms, ttl};

/// Leases on all nodes, each on its own key, by the names of both.
async fn held(names: &[&str]) -> Cluster {
    let cluster = Cluster::new(3, false);
    for name in names {
        grant_of(&cluster, name, TERM).await;
    }
    cluster.nodes.iter().for_each(|node| node.forget_sent());
    cluster
}

async fn grant_of(cluster: &Cluster, name: &str, term: Duration) {
    let request = AcquireRequest::new(id(name), claims(name), ttl(term));
    assert!(matches!(cluster.store.acquire(&request).await, Ok(AcquireReply::Granted(_))));
    cluster.store.settled().await;
}

fn claims(name: &str) -> Claims {
    Claims::one(Key::new(name).unwrap(), Mode::Exclusive)
}

fn renew(names: &[&str]) -> RenewRequest {
    let entry = |name: &&str| RenewEntry::extend(id(name), claims(name), ttl(TERM));
    RenewRequest::new(names.iter().map(entry).collect())
}

fn release(names: &[&str]) -> ReleaseRequest {
    let entry = |name: &&str| ReleaseEntry::new(id(name), [Key::new(name).unwrap()]);
    ReleaseRequest::new(names.iter().map(entry).collect())
}

fn ids(names: &[&str]) -> Vec<LeaseId> {
    names.iter().map(|name| id(name)).collect()
}

/// Leaves a renewal of the lease `a` in flight to n1, and takes n2 down.
async fn with_one_hung(cluster: &Cluster) {
    cluster.nodes[1].next(&[Fault::SlowRequest(ms(20_000))]);
    let renewed = cluster.store.renew(&renew(&["a"])).await.unwrap();
    assert!(matches!(renewed.leases[..], [RenewOutcome::Held(_)]));
    cluster.nodes[2].down(Fault::Unreachable);
    cluster.nodes.iter().for_each(|node| node.forget_sent());
}

#[tokio::test(start_paused = true)]
async fn a_hung_renewal_of_one_lease_keeps_no_other_from_being_renewed() {
    let cluster = held(&["a", "b", "c"]).await;
    with_one_hung(&cluster).await;
    let renewed = cluster.store.renew(&renew(&["a", "b", "c"])).await.unwrap();
    assert!(
        matches!(
            renewed.leases[..],
            [RenewOutcome::Failed(_), RenewOutcome::Held(_), RenewOutcome::Held(_)]
        ),
        "{renewed:?}"
    );
    assert_eq!(cluster.nodes[1].log(), [Sent::Renew(ids(&["b", "c"]))]);
    cluster.mend().await;
    // Not asked while nobody would read the answer.
    assert_eq!(cluster.nodes[1].log().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_hung_renewal_of_one_lease_keeps_no_other_from_being_released() {
    let cluster = held(&["a", "b", "c"]).await;
    with_one_hung(&cluster).await;
    let began = cluster.clock.now();
    let released = cluster.store.release(&release(&["a", "b", "c"])).await.unwrap();
    assert!(released.leases.iter().all(|lease| matches!(lease, ReleaseOutcome::Released)));
    assert_eq!(cluster.clock.now() - began, LIMIT / 2, "the hung one is released too");
    let asked = [Sent::Release(ids(&["b", "c"])), Sent::Release(ids(&["a"]))];
    assert_eq!(cluster.nodes[1].log(), asked);
    cluster.mend().await;
    // Again when the renewal has arrived.
    assert_eq!(cluster.nodes[1].log()[2..], [Sent::Release(ids(&["a"]))]);
}

/// The lease `a` is lost on one node and awaits the hung one; `b` needs only the two that answer.
#[tokio::test(start_paused = true)]
async fn a_batch_with_short_leases_waits_for_a_hung_node_for_a_part_of_the_shortest_term() {
    let short = ms(600);
    for (node_timeout, waits) in [(None, short / 20), (Some(ms(500)), short / 4)] {
        let cluster = Cluster::with(3, |config| match node_timeout {
            Some(limit) => config.node_timeout(limit),
            None => config,
        });
        for (name, term) in [("a", TERM), ("b", short)] {
            grant_of(&cluster, name, term).await;
        }
        cluster.nodes[1].local().release(&release(&["a"])).await.unwrap();
        cluster.nodes[2].down(Fault::Stalled);
        let entry = |(name, term)| RenewEntry::extend(id(name), claims(name), ttl(term));
        let batch = RenewRequest::new([("a", TERM), ("b", short)].map(entry).into());
        let began = cluster.clock.now();
        let renewed = cluster.store.renew(&batch).await.unwrap();
        assert_eq!(cluster.clock.now() - began, waits, "{node_timeout:?}");
        assert!(
            matches!(renewed.leases[..], [RenewOutcome::Failed(_), RenewOutcome::Held(_)]),
            "{renewed:?}"
        );
        cluster.mend().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_named_twice_is_released_twice_in_one_request() {
    let cluster = held(&["a"]).await;
    let released = cluster.store.release(&release(&["a", "a"])).await.unwrap();
    assert!(matches!(released.leases[..], [ReleaseOutcome::Released, ReleaseOutcome::NotHeld]));
    cluster.mend().await;
    assert_eq!(cluster.nodes[1].log(), [Sent::Release(ids(&["a", "a"]))]);
}
