//! Interleavings that were shown unsafe for other quorums: what arrives late does no harm.

#![expect(clippy::disallowed_methods, reason = "clients run at the same time")]

use crate::faulty::{
    Cluster, Fault, LIMIT, Node, Sent, TERM, ask, grant, held, id, key, ms, refused, released,
    renewal, renewed,
};
use leasehold_core::{
    AcquireReply, Clock, Effect, ErrorKind, EvictRequest, EvictTarget, LostReason, ReleaseOutcome,
    RenewOutcome, RenewRequest, Store,
};
use leasehold_quorum::QuorumConfig;

fn acquires(node: &Node) -> usize {
    node.log().iter().filter(|asked| matches!(asked, Sent::Acquire(_))).count()
}

fn releases(node: &Node) -> usize {
    node.log().iter().filter(|asked| matches!(asked, Sent::Release(_))).count()
}

/// C3: with one id for two tries, the late roll-back of the first ends the grant of the second.
#[tokio::test(start_paused = true)]
async fn a_late_roll_back_does_not_end_a_later_grant_of_the_same_id() {
    let cluster = Cluster::new(3, false);
    let own = id("own");
    cluster.nodes[0].next(&[Fault::Unreachable]);
    cluster.nodes[1].next(&[Fault::SlowRequest(ms(20_000))]);
    let error = cluster.store.acquire(&ask(&own)).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::NotApplied));
    // The first try's request to n1 is still in flight.
    grant(&cluster.store, &own).await;
    cluster.mend().await;
    assert_eq!(cluster.copies(&own).await, 2);
    assert!(cluster.nodes[0].has(&own).await && cluster.nodes[2].has(&own).await);
    refused(&cluster.store, &id("other")).await;
    assert!(matches!(renewed(&cluster.store, &own).await, RenewOutcome::Held(_)));
}

/// C3: what an earlier try of the id left in flight to a node will be rolled back there, and is not a vote.
#[tokio::test(start_paused = true)]
async fn a_node_that_an_earlier_try_of_the_id_may_still_reach_does_not_count() {
    let cluster = Cluster::new(3, false);
    let own = id("own");
    cluster.nodes[0].next(&[Fault::Unreachable]);
    cluster.nodes[1].next(&[Fault::SlowRequest(ms(20_000))]);
    cluster.store.acquire(&ask(&own)).await.unwrap_err();
    cluster.nodes[2].down(Fault::Unreachable);
    let error = cluster.store.acquire(&ask(&own)).await.unwrap_err();
    assert!(error.nodes()[1].error.is_some(), "n1 may yet take it back: {error}");
    cluster.mend().await;
    assert_eq!(cluster.copies(&own).await, 0);
}

/// C3: nor for the try after that one, which gave up before its turn on the node had come.
#[tokio::test(start_paused = true)]
async fn a_try_that_leaves_before_its_turn_lets_nobody_pass_the_one_before() {
    let cluster = Cluster::new(3, false);
    let own = id("own");
    cluster.nodes[1].next(&[Fault::SlowReply(ms(20_000))]);
    cluster.nodes[2].down(Fault::Unreachable);
    for _ in 0..3 {
        let again = ask(&own).again(None);
        let error = cluster.store.acquire(&again).await.unwrap_err();
        assert!(error.nodes()[1].error.is_some(), "n1 is still to take back the first: {error}");
    }
    cluster.mend().await;
    assert_eq!(cluster.copies(&own).await, 0);
}

/// C3: a release that was sent again because it was not answered may still arrive: until it has, the node does not
/// count for a later try of the id.
#[tokio::test(start_paused = true)]
async fn a_late_attempt_at_a_release_does_not_end_a_later_try_with_the_same_id() {
    let cluster = Cluster::new(3, false);
    let own = id("own");
    cluster.nodes[0].next(&[Fault::Unreachable]);
    // For the try, and for the first attempt to roll it back; the second is answered.
    cluster.nodes[1].next(&[Fault::None, Fault::SlowRequest(ms(20_000))]);
    cluster.nodes[2].next(&[Fault::Unreachable]);
    cluster.store.acquire(&ask(&own)).await.unwrap_err();
    tokio::time::sleep(ms(5_000)).await;
    assert!(releases(&cluster.nodes[1]) >= 1);
    cluster.nodes[2].down(Fault::Unreachable);
    let error = cluster.store.acquire(&ask(&own)).await.unwrap_err();
    assert!(error.nodes()[1].error.is_some(), "a release may yet arrive at n1: {error}");
    cluster.mend().await;
    assert_eq!(cluster.copies(&own).await, 0);
}

/// A late renewal of an earlier lease of the id ends what does not match it (C3b).
#[tokio::test(start_paused = true)]
async fn a_node_that_an_earlier_renewal_may_still_reach_does_not_count() {
    let cluster = Cluster::new(3, false);
    let own = id("own");
    grant(&cluster.store, &own).await;
    cluster.nodes[1].next(&[Fault::SlowRequest(ms(20_000))]);
    assert!(matches!(renewed(&cluster.store, &own).await, RenewOutcome::Held(_)));
    released(&cluster.store, &own).await;
    cluster.nodes[2].down(Fault::Unreachable);
    let error = cluster.store.acquire(&ask(&own)).await.unwrap_err();
    assert!(error.nodes()[1].error.is_some(), "a renewal may yet arrive at n1: {error}");
    cluster.mend().await;
    assert_eq!(cluster.copies(&own).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_release_follows_the_acquires_answer_on_each_node() {
    let cluster = Cluster::new(3, false);
    let own = id("own");
    cluster.nodes[2].next(&[Fault::SlowReply(ms(200))]);
    grant(&cluster.store, &own).await;
    let released = released(&cluster.store, &own).await;
    assert!(matches!(released, ReleaseOutcome::Released), "{released:?}");
    // Not before n2 has answered.
    tokio::time::sleep(ms(199)).await;
    assert_eq!(releases(&cluster.nodes[2]), 0);
    cluster.mend().await;
    assert_eq!(releases(&cluster.nodes[2]), 1);
    assert_eq!(cluster.copies(&own).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_release_that_was_sent_before_the_acquires_answer_is_sent_again() {
    let cluster = Cluster::new(3, false);
    let own = id("own");
    cluster.nodes[2].next(&[Fault::SlowRequest(ms(10_000))]);
    grant(&cluster.store, &own).await;
    released(&cluster.store, &own).await;
    tokio::time::sleep(ms(5_000)).await;
    assert_eq!(releases(&cluster.nodes[2]), 1, "a hung acquire does not keep the release back");
    cluster.mend().await;
    assert_eq!(releases(&cluster.nodes[2]), 2);
    assert_eq!(cluster.copies(&own).await, 0);
}

/// The roll-back of a failed first acquire reaches nodes that did not answer, in time or at all.
#[tokio::test(start_paused = true)]
async fn an_acquire_that_acts_after_the_release_timeout_is_still_rolled_back() {
    let cluster = Cluster::new(3, false);
    let own = id("own");
    cluster.nodes[0].next(&[Fault::SlowRequest(ms(12_000))]);
    cluster.nodes[1].next(&[Fault::SlowRequest(ms(12_000))]);
    cluster.store.acquire(&ask(&own)).await.unwrap_err();
    tokio::time::sleep(ms(11_999)).await;
    assert_eq!(cluster.copies(&own).await, 0);
    cluster.mend().await;
    assert_eq!(cluster.copies(&own).await, 0);
    grant(&cluster.store, &id("next")).await;
}

/// A node that cannot be reached for a while is released again until the limit.
#[tokio::test(start_paused = true)]
async fn a_failed_roll_back_is_repeated_until_its_limit() {
    let cluster = Cluster::new(3, false);
    let own = id("own");
    for node in &cluster.nodes[1..] {
        node.down(Fault::Unreachable);
    }
    cluster.nodes[0].next(&[
        Fault::None,
        Fault::Unreachable,
        Fault::Unreachable,
        Fault::Unreachable,
    ]);
    cluster.store.acquire(&ask(&own)).await.unwrap_err();
    let began = cluster.clock.now();
    cluster.mend().await;
    assert_eq!(cluster.copies(&own).await, 0);
    assert!(cluster.clock.now() - began < QuorumConfig::DEFAULT_RELEASE_TIMEOUT);
    // If it stays down, it is given up, and the lease ends with its term.
    cluster.nodes[0].next(&[Fault::None]);
    cluster.nodes.iter().for_each(|node| node.down(Fault::Unreachable));
    let began = cluster.clock.now();
    cluster.store.acquire(&ask(&id("second"))).await.unwrap_err();
    cluster.store.settled().await;
    let took = cluster.clock.now() - began;
    assert!(took <= QuorumConfig::DEFAULT_RELEASE_TIMEOUT + LIMIT, "{took:?}");
    assert_eq!(cluster.copies(&id("second")).await, 1);
}

/// Putting old terms back late would break exclusion: it does not happen.
#[tokio::test(start_paused = true)]
async fn a_renewal_that_misses_its_majority_sends_nothing_more() {
    let (cluster, own) = held().await;
    cluster.nodes[1].down(Fault::Unreachable);
    cluster.nodes[2].down(Fault::Unreachable);
    cluster.nodes.iter().for_each(|node| node.forget_sent());
    assert!(matches!(renewed(&cluster.store, &own).await, RenewOutcome::Failed(_)));
    cluster.mend().await;
    for node in &cluster.nodes {
        assert_eq!(node.log(), [Sent::Renew(vec![own.clone()])]);
    }
    // It is tried again, and the lease is as it was.
    assert!(matches!(renewed(&cluster.store, &own).await, RenewOutcome::Held(_)));
}

#[tokio::test(start_paused = true)]
async fn a_restarted_node_recovers_and_does_not_count_before() {
    let (cluster, own) = held().await;
    cluster.nodes[2].forget();
    cluster.nodes[1].down(Fault::Unreachable);
    // Only n0 still holds it: n2 is free, and is not filled.
    assert!(matches!(renewed(&cluster.store, &own).await, RenewOutcome::Failed(_)));
    cluster.store.settled().await;
    assert!(!cluster.nodes[2].has(&own).await);
    cluster.nodes[1].up();
    assert!(matches!(renewed(&cluster.store, &own).await, RenewOutcome::Held(_)));
    cluster.store.settled().await;
    assert!(cluster.nodes[2].has(&own).await);
    // Now it counts.
    cluster.nodes[1].down(Fault::Unreachable);
    assert!(matches!(renewed(&cluster.store, &own).await, RenewOutcome::Held(_)));
}

#[tokio::test(start_paused = true)]
async fn a_lease_put_back_is_as_it_was_written() {
    let (cluster, own) = held().await;
    cluster.nodes[2].forget();
    let note = leasehold_core::Note::default().with_comment("nightly").unwrap();
    let group = leasehold_core::GroupName::new("worker").unwrap();
    let full = renewal(&own).with_group(group.clone()).with_note(note.clone());
    cluster.store.renew(&RenewRequest::new(vec![full])).await.unwrap();
    cluster.store.settled().await;
    let record = cluster.nodes[2].records().await.remove(0);
    assert_eq!((record.group, record.note), (Some(group), note));
    assert_eq!(record.mode, leasehold_core::Mode::Exclusive);
}

/// An expired lease does not revive by being put back where it is absent.
#[tokio::test(start_paused = true)]
async fn an_expired_lease_is_not_put_back() {
    let (cluster, own) = held().await;
    tokio::time::sleep(TERM).await;
    assert!(matches!(renewed(&cluster.store, &own).await, RenewOutcome::Lost(_)));
    cluster.store.settled().await;
    assert_eq!(cluster.copies(&own).await, 0);
    grant(&cluster.store, &id("next")).await;
}

/// Put back on one node by an earlier renewal, and on the next by one that found a majority again: one round of an
/// eviction does not end the lease.
#[tokio::test(start_paused = true)]
async fn an_eviction_repeats_until_fewer_than_a_majority_have_the_lease() {
    let cluster = Cluster::new(3, false);
    let admin = cluster.another(|config| config);
    let own = id("own");
    grant(&cluster.store, &own).await;
    cluster.store.settled().await;
    cluster.nodes[2].forget();
    // The renewal, then the re-addition.
    cluster.nodes[2].next(&[Fault::None, Fault::SlowRequest(ms(5))]);
    assert!(matches!(renewed(&cluster.store, &own).await, RenewOutcome::Held(_)));
    tokio::time::sleep(ms(1)).await;
    assert_eq!(acquires(&cluster.nodes[2]), 2, "the re-addition is on its way");
    cluster.nodes[1].next(&[Fault::SlowRequest(ms(300))]);
    let evicting = tokio::spawn(async move {
        let target = EvictTarget::new(key(), Some(id("own")));
        admin.evict(&EvictRequest::exactly(vec![target], None)).await
    });
    tokio::time::sleep(ms(10)).await;
    assert!(!cluster.nodes[0].has(&own).await && cluster.nodes[2].has(&own).await);
    // n1 was not reached yet, and n2 has it again: a majority, so n0 gets it too.
    assert!(matches!(renewed(&cluster.store, &own).await, RenewOutcome::Held(_)));
    cluster.store.settled().await;
    assert_eq!(cluster.copies(&own).await, 3);
    let evicted = evicting.await.unwrap().unwrap();
    assert_eq!(evicted.removed.len(), 1);
    assert_eq!(cluster.copies(&own).await, 0);
    let lost = renewed(&cluster.store, &own).await;
    assert!(matches!(lost, RenewOutcome::Lost(Some(LostReason::Evicted(_)))), "{lost:?}");
    cluster.mend().await;
    grant(&cluster.store, &id("next")).await;
}

/// A break during a re-addition still breaks the lease.
#[tokio::test(start_paused = true)]
async fn re_adding_after_a_break_does_not_revive_the_lease() {
    let cluster = Cluster::new(3, false);
    let admin = cluster.another(|config| config);
    let own = id("own");
    grant(&cluster.store, &own).await;
    cluster.store.settled().await;
    cluster.nodes[2].forget();
    cluster.nodes[2].next(&[Fault::None, Fault::SlowRequest(ms(100))]);
    assert!(matches!(renewed(&cluster.store, &own).await, RenewOutcome::Held(_)));
    let target = EvictTarget::new(key(), Some(own.clone()));
    let evicted = admin.evict(&EvictRequest::exactly(vec![target], None)).await.unwrap();
    assert_eq!(evicted.removed.len(), 1);
    cluster.store.settled().await;
    assert!(cluster.nodes[2].has(&own).await, "the re-addition came after the break");
    assert!(matches!(renewed(&cluster.store, &own).await, RenewOutcome::Lost(_)));
    released(&cluster.store, &own).await;
    cluster.mend().await;
    assert_eq!(cluster.copies(&own).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_re_addition_on_its_way_is_followed_by_the_release() {
    let (cluster, own) = held().await;
    cluster.nodes[2].forget();
    cluster.nodes[2].next(&[Fault::None, Fault::SlowRequest(ms(5_000))]);
    assert!(matches!(renewed(&cluster.store, &own).await, RenewOutcome::Held(_)));
    tokio::time::sleep(ms(1)).await;
    let ended = released(&cluster.store, &own).await;
    assert!(matches!(ended, ReleaseOutcome::Released), "{ended:?}");
    cluster.mend().await;
    assert_eq!(cluster.copies(&own).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_lease_released_meanwhile_is_not_put_back() {
    let (cluster, own) = held().await;
    cluster.nodes[2].forget();
    cluster.nodes.iter().for_each(|node| node.forget_sent());
    // n2 answers late that it does not have the lease.
    cluster.nodes[2].next(&[Fault::SlowReply(ms(100))]);
    assert!(matches!(renewed(&cluster.store, &own).await, RenewOutcome::Held(_)));
    released(&cluster.store, &own).await;
    cluster.mend().await;
    assert_eq!(acquires(&cluster.nodes[2]), 0);
    assert_eq!(cluster.copies(&own).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_release_right_after_a_renewal_leaves_nothing_to_put_back() {
    let (cluster, own) = held().await;
    cluster.nodes[2].forget();
    cluster.nodes.iter().for_each(|node| node.forget_sent());
    assert!(matches!(renewed(&cluster.store, &own).await, RenewOutcome::Held(_)));
    // The re-addition was decided, and is not sent yet.
    released(&cluster.store, &own).await;
    cluster.mend().await;
    assert_eq!(acquires(&cluster.nodes[2]), 0);
    assert_eq!(cluster.copies(&own).await, 0);
}

/// What a failed re-acquire added to a node, and will roll back, is not part of a majority.
#[tokio::test(start_paused = true)]
async fn a_renewal_does_not_count_what_may_yet_be_rolled_back() {
    let (cluster, own) = held().await;
    cluster.nodes[2].forget();
    cluster.nodes[1].down(Fault::Unreachable);
    cluster.nodes[2].next(&[Fault::SlowReply(ms(2_000))]);
    let error = cluster.store.acquire(&ask(&own).again(None)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(cluster.nodes[2].has(&own).await, "it acted there");
    // n0 has it, n1 is down, and n2 will lose it again.
    assert!(matches!(renewed(&cluster.store, &own).await, RenewOutcome::Failed(_)));
    cluster.mend().await;
    assert!(!cluster.nodes[2].has(&own).await);
    assert_eq!(cluster.copies(&own).await, 2);
}

#[tokio::test(start_paused = true)]
async fn a_renewal_does_not_count_what_a_re_acquire_adds_meanwhile() {
    let (cluster, own) = held().await;
    cluster.nodes[2].forget();
    cluster.nodes[2].next(&[Fault::SlowRequest(ms(10))]);
    let again = cluster.store.acquire(&ask(&own).again(None)).await;
    assert!(matches!(again, Ok(AcquireReply::Granted(_))), "{again:?}");
    // n0 is asked before n2 has it.
    cluster.nodes[1].down(Fault::Unreachable);
    assert!(matches!(renewed(&cluster.store, &own).await, RenewOutcome::Failed(_)));
    cluster.mend().await;
    assert_eq!(cluster.copies(&own).await, 3);
}

/// A caller that goes away leaves its requests running; they may be sent again to learn the outcome.
#[tokio::test(start_paused = true)]
async fn a_dropped_acquire_continues_and_may_be_sent_again() {
    let cluster = Cluster::new(3, false);
    let own = id("own");
    cluster.nodes.iter().for_each(|node| node.next(&[Fault::SlowRequest(ms(100))]));
    let dropped = tokio::time::timeout(ms(50), cluster.store.acquire(&ask(&own))).await;
    assert!(dropped.is_err());
    match cluster.store.acquire(&ask(&own)).await {
        Ok(AcquireReply::Granted(granted)) => assert!(!granted.fresh),
        other => panic!("{other:?}"),
    }
    cluster.mend().await;
    assert_eq!(cluster.copies(&own).await, 3);
}
