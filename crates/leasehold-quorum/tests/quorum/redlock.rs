//! Defects of a Redlock client that a quorum must not have, by number.

use crate::faulty::{
    Cluster, Fault, TERM, ask, claims, grant, held, id, ms, refused, release, released, renew,
    renewed, ttl,
};
use leasehold_core::{
    AcquireReply, AcquireRequest, Clock, Effect, ErrorKind, NodeOutcome, ReleaseOutcome, Remaining,
    RenewOutcome, Store,
};
use leasehold_quorum::QuorumConfig;

/// redlock: the roll-back of a failed re-acquire deleted the lock that was held.
#[tokio::test(start_paused = true)]
async fn redlock_01_a_failed_re_acquire_keeps_what_was_held() {
    let (cluster, own) = held().await;
    cluster.nodes[1].down(Fault::Unreachable);
    cluster.nodes[2].down(Fault::Unreachable);
    cluster.store.acquire(&ask(&own).again(None)).await.unwrap_err();
    cluster.mend().await;
    assert_eq!(cluster.copies(&own).await, 3);
    refused(&cluster.store, &id("other")).await;
}

/// redlock: a renewal that reached a minority was left there, and a restarted node was never filled again.
#[tokio::test(start_paused = true)]
async fn redlock_02_quorum_does_not_erode_over_restarts_of_its_nodes() {
    let (cluster, own) = held().await;
    for restarted in &cluster.nodes {
        restarted.forget();
        assert!(matches!(renewed(&cluster.store, &own).await, RenewOutcome::Held(_)));
        cluster.store.settled().await;
        assert_eq!(cluster.copies(&own).await, 3);
    }
}

/// redlock: extending a lost lock never returned.
#[tokio::test(start_paused = true)]
async fn redlock_03_extending_a_lost_lock_returns_at_once() {
    let cluster = Cluster::new(3, false);
    let own = id("own");
    let since = cluster.clock.now();
    assert!(matches!(renewed(&cluster.store, &own).await, RenewOutcome::Lost(_)));
    assert_eq!(cluster.clock.now(), since);
}

/// redlock: one node held by another client blocked acquire-or-extend for ever.
#[tokio::test(start_paused = true)]
async fn redlock_04_a_foreign_lock_on_a_minority_does_not_block() {
    let cluster = Cluster::new(3, false);
    let own = id("own");
    grant(&cluster.nodes[0].local(), &id("foreign")).await;
    let since = cluster.clock.now();
    for _ in 0..2 {
        assert!(matches!(
            cluster.store.acquire(&ask(&own).again(None)).await,
            Ok(AcquireReply::Granted(_))
        ));
    }
    assert!(matches!(renewed(&cluster.store, &own).await, RenewOutcome::Held(_)));
    assert_eq!(cluster.clock.now(), since);
    assert!(matches!(released(&cluster.store, &own).await, ReleaseOutcome::Released));
    cluster.mend().await;
    assert!(cluster.nodes[0].has(&id("foreign")).await);
}

/// redlock: one hung or refusing node spent the term of every lock.
#[tokio::test(start_paused = true)]
async fn redlock_05_a_hung_or_failing_minority_does_not_cost_a_short_term() {
    for way in [Fault::Stalled, Fault::Unreachable, Fault::SlowReply(ms(2_000))] {
        let cluster = Cluster::new(3, false);
        cluster.nodes[0].down(way);
        let request = AcquireRequest::new(id("own"), claims(), ttl(ms(100)));
        let since = cluster.clock.now();
        match cluster.store.acquire(&request).await {
            Ok(AcquireReply::Granted(granted)) => {
                assert_eq!(granted.remaining, Remaining::For(ms(100)), "{way:?}");
            }
            other => panic!("{way:?}: {other:?}"),
        }
        assert_eq!(cluster.clock.now(), since, "{way:?}");
        cluster.mend().await;
    }
}

/// redlock: failures of nodes were reported as "already held".
#[tokio::test(start_paused = true)]
async fn redlock_06_node_failures_are_shown_and_are_not_held() {
    let cluster = Cluster::new(3, false);
    cluster.nodes.iter().for_each(|node| node.down(Fault::Unreachable));
    let error = cluster.store.acquire(&ask(&id("own"))).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::NotApplied));
    assert_eq!((error.store(), error.operation()), (Some("quorum"), Some("acquire")));
    // Two of three decide.
    assert!(error.nodes()[..2].iter().all(|node| node.error.is_some()));
    assert!(error.to_string().contains("n1: the network failed"), "{error}");
    // One of three holds, two fail: neither held nor free.
    grant(&cluster.nodes[0].local(), &id("other")).await;
    cluster.nodes[0].up();
    let error = cluster.store.acquire(&ask(&id("own"))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let of_n0 = &error.nodes()[0];
    assert!(of_n0.error.is_none() && matches!(of_n0.leases[..], [NodeOutcome::Refused]));
    for answer in [
        cluster.store.renew(&renew(&id("own"))).await.map(drop),
        cluster.store.release(&release(&id("own"))).await.map(drop),
    ] {
        let error = answer.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::Unknown));
        assert_eq!(error.nodes().len(), 3);
    }
    cluster.mend().await;
}

/// redlock: a lost reply was taken for another client's lock.
#[tokio::test(start_paused = true)]
async fn redlock_09_a_lost_reply_leaves_no_orphan() {
    let cluster = Cluster::new(3, false);
    cluster.nodes.iter().for_each(|node| node.next(&[Fault::SlowReply(ms(3_000))]));
    cluster.store.acquire(&ask(&id("own"))).await.unwrap_err();
    cluster.mend().await;
    assert_eq!(cluster.copies(&id("own")).await, 0);
    grant(&cluster.store, &id("next")).await;
}

/// redlock: zero nodes caused an endless retry, and even numbers passed without a warning.
#[tokio::test(start_paused = true)]
async fn redlock_15_zero_nodes_are_refused_and_an_even_number_is_a_hazard() {
    let error = QuorumConfig::new().build().unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::InvalidInput, Effect::NotApplied));
    for (count, hazards) in [(1, 1), (2, 2), (3, 0), (4, 1), (5, 0)] {
        let cluster = Cluster::new(count, false);
        let health = cluster.store.check().await.unwrap();
        assert_eq!(health.hazards.len(), hazards, "{count} nodes: {:?}", health.hazards);
        // Two nodes need both.
        cluster.nodes[0].down(Fault::Unreachable);
        let survives = count >= 3;
        let answer = cluster.store.acquire(&ask(&id("own"))).await;
        assert_eq!(matches!(answer, Ok(AcquireReply::Granted(_))), survives, "{count}: {answer:?}");
        cluster.mend().await;
    }
}

/// redlock: a release never reported whether the lock was still held, nor where.
#[tokio::test(start_paused = true)]
async fn redlock_16_a_release_reports_each_nodes_outcome() {
    let (cluster, own) = held().await;
    cluster.nodes[0].forget();
    cluster.nodes[1].next(&[Fault::SlowReply(ms(10))]);
    cluster.nodes[2].next(&[Fault::SlowReply(ms(20))]);
    let answer = cluster.store.release(&release(&own)).await.unwrap();
    assert!(matches!(answer.leases[..], [ReleaseOutcome::Released]));
    let leases: Vec<_> = answer.nodes().iter().map(|node| format!("{:?}", node.leases)).collect();
    assert_eq!(leases, ["[NotHeld]", "[Released]", "[Released]"]);
    cluster.store.settled().await;
    assert!(matches!(released(&cluster.store, &own).await, ReleaseOutcome::NotHeld));
    grant(&cluster.store, &own).await;
    cluster.store.settled().await;
    tokio::time::sleep(TERM).await;
    assert!(matches!(released(&cluster.store, &own).await, ReleaseOutcome::Expired));
    cluster.nodes[1].down(Fault::Unreachable);
    cluster.nodes[2].down(Fault::Unreachable);
    let error = cluster.store.release(&release(&own)).await.unwrap_err();
    let failed = error.nodes().iter().filter(|node| node.error.is_some()).count();
    assert_eq!(failed, 2);
    cluster.mend().await;
}
