//! Tokens of a quorum whose nodes mint from clocks that are seconds apart.

use crate::faulty::{
    Cluster, Fault, LIMIT, Sent, ask, grant, id, key, ms, released, renew, renewal, renewed,
};
use leasehold_core::{
    AcquireReply, Clock, Effect, ErrorKind, FencingToken, LeaseId, Mode, ReleaseEntry,
    ReleaseOutcome, ReleaseRequest, RenewOutcome, RenewRequest, Store,
};

/// The token in the confirmation of a live lease.
async fn confirmed(cluster: &Cluster, lease: &LeaseId) -> Option<FencingToken> {
    match cluster.store.acquire(&ask(lease)).await {
        Ok(AcquireReply::Granted(granted)) => {
            assert!(!granted.fresh);
            granted.token
        }
        other => panic!("{other:?}"),
    }
}

async fn token_on(cluster: &Cluster, node: usize) -> FencingToken {
    cluster.nodes[node].records().await[0].token.unwrap()
}

/// Without the write-back, a majority of nodes whose clocks are behind would next grant a smaller token.
#[tokio::test(start_paused = true)]
async fn tokens_grow_whichever_majority_grants() {
    let cluster = Cluster::new(3, true);
    let mut highest = None;
    let mut grants = 0;
    for round in 0..60 {
        // Another node is down each time, now and then none.
        let away = round % 4;
        if let Some(node) = cluster.nodes.get(away) {
            node.down(Fault::Unreachable);
        }
        let own = id(&format!("own {round}"));
        let token = grant(&cluster.store, &own).await;
        assert!(token > highest, "round {round}: {token:?} after {highest:?}");
        highest = token;
        grants += 1;
        assert_eq!(confirmed(&cluster, &own).await, token, "round {round}");
        cluster.mend().await;
        released(&cluster.store, &own).await;
        cluster.mend().await;
    }
    println!("{grants} grants");
}

#[tokio::test(start_paused = true)]
async fn a_majority_has_the_token_before_the_grant_is_returned() {
    for away in 0..4 {
        let cluster = Cluster::new(3, true);
        if let Some(node) = cluster.nodes.get(away) {
            node.down(Fault::Unreachable);
        }
        let token = grant(&cluster.store, &id("own")).await.unwrap();
        let mut have = 0;
        for node in &cluster.nodes {
            let records = node.records().await;
            let of_lease = records.first().and_then(|record| record.token);
            let mark = node.local().snapshot().mark();
            have += usize::from(of_lease >= Some(token) && mark >= token.get());
        }
        assert!(have >= 2, "{have} nodes have the token {token}, with n{away} away");
        cluster.mend().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_grant_whose_token_no_majority_took_is_rolled_back() {
    for (fault, took) in [(Fault::Unreachable, ms(0)), (Fault::SlowRequest(ms(2_000)), LIMIT)] {
        let cluster = Cluster::new(3, true);
        let own = id("own");
        cluster.nodes[2].down(Fault::Unreachable);
        // It grants, and is down when the token is written back.
        cluster.nodes[0].next(&[Fault::None, fault]);
        let since = cluster.clock.now();
        let error = cluster.store.acquire(&ask(&own)).await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::NotApplied));
        assert!(error.to_string().contains("token"), "{error}");
        assert_eq!(error.nodes().len(), 3);
        assert_eq!(cluster.clock.now() - since, took);
        cluster.mend().await;
        assert_eq!(cluster.copies(&own).await, 0);
        let next = grant(&cluster.store, &id("next")).await;
        assert!(next.is_some());
    }
}

/// C3: the same request finds the same token, even if a node that answered late minted a larger one.
#[tokio::test(start_paused = true)]
async fn a_confirmation_returns_the_token_of_the_grant() {
    let cluster = Cluster::new(3, true);
    let own = id("own");
    // The node with the largest clock grants after the grant was returned.
    cluster.nodes[2].next(&[Fault::SlowRequest(ms(100))]);
    let token = grant(&cluster.store, &own).await.unwrap();
    cluster.store.settled().await;
    assert!(token_on(&cluster, 2).await > token, "n2 minted its own");
    assert_eq!(confirmed(&cluster, &own).await, Some(token));
    // n2 first: the others are awaited.
    cluster.nodes[0].next(&[Fault::SlowReply(ms(100))]);
    assert_eq!(confirmed(&cluster, &own).await, Some(token));
    cluster.store.settled().await;
    // With n0 down no majority agrees on a token; a caller who names the token keeps it.
    cluster.nodes[0].down(Fault::Unreachable);
    match cluster.store.acquire(&ask(&own).again(Some(token))).await {
        Ok(AcquireReply::Granted(granted)) => {
            assert_eq!((granted.token, granted.fresh), (Some(token), false));
        }
        other => panic!("{other:?}"),
    }
    // Otherwise it is the larger one, and no later grant is below it.
    let larger = confirmed(&cluster, &own).await;
    assert!(larger > Some(token));
    cluster.mend().await;
    released(&cluster.store, &own).await;
    cluster.mend().await;
    cluster.nodes[2].down(Fault::Unreachable);
    assert!(grant(&cluster.store, &id("next")).await > larger);
    cluster.mend().await;
}

/// A lease that no majority is seen to hold is a new grant, even if the caller names its old token.
#[tokio::test(start_paused = true)]
async fn a_lease_that_a_majority_lost_gets_a_new_token() {
    let cluster = Cluster::new(3, true);
    let own = id("own");
    let token = grant(&cluster.store, &own).await.unwrap();
    cluster.store.settled().await;
    for node in &cluster.nodes[1..] {
        node.local().release(&crate::faulty::release(&own)).await.unwrap();
    }
    granted_anew(&cluster, &own, token).await;
    cluster.mend().await;
}

/// Even if the largest token that a node then mints is that of the earlier grant.
#[tokio::test(start_paused = true)]
async fn a_new_grant_has_a_larger_token_than_a_node_that_kept_the_lease() {
    let cluster = Cluster::new(3, true);
    let own = id("own");
    cluster.nodes[0].next(&[Fault::Unreachable]);
    let token = grant(&cluster.store, &own).await.unwrap();
    cluster.store.settled().await;
    assert_eq!(token_on(&cluster, 2).await, token);
    // n0, whose clock is behind, never received it; n1 does not answer.
    cluster.nodes[1].down(Fault::Unreachable);
    let larger = granted_anew(&cluster, &own, token).await;
    cluster.mend().await;
    assert_eq!(confirmed(&cluster, &own).await, Some(larger));
    released(&cluster.store, &own).await;
    cluster.mend().await;
    cluster.nodes[2].down(Fault::Unreachable);
    assert!(grant(&cluster.store, &id("next")).await > Some(larger));
    cluster.mend().await;
}

async fn granted_anew(cluster: &Cluster, lease: &LeaseId, old: FencingToken) -> FencingToken {
    match cluster.store.acquire(&ask(lease).again(Some(old))).await {
        Ok(AcquireReply::Granted(granted)) => {
            assert!(granted.fresh && granted.token > Some(old), "{granted:?} after {old}");
            granted.token.unwrap()
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_put_back_has_at_least_its_token() {
    let cluster = Cluster::new(3, true);
    let own = id("own");
    let token = grant(&cluster.store, &own).await.unwrap();
    cluster.store.settled().await;
    // The node whose clock is behind forgets.
    cluster.nodes[0].forget();
    let named = RenewRequest::new(vec![renewal(&own).with_token(token)]);
    let answer = cluster.store.renew(&named).await.unwrap();
    assert!(matches!(answer.leases[..], [RenewOutcome::Held(_)]));
    cluster.store.settled().await;
    assert!(token_on(&cluster, 0).await >= token);
    assert_eq!(confirmed(&cluster, &own).await, Some(token));
}

/// One more exchange if the tokens differ, and none if they do not.
#[tokio::test(start_paused = true)]
async fn the_write_back_is_sent_only_where_a_majority_lacks_the_token() {
    let cluster = Cluster::new(3, true);
    grant(&cluster.store, &id("first")).await;
    cluster.mend().await;
    released(&cluster.store, &id("first")).await;
    cluster.mend().await;
    let renewals = |node: usize| {
        let asked = cluster.nodes[node].log();
        asked.iter().filter(|asked| matches!(asked, Sent::Renew(_))).count()
    };
    assert_eq!(renewals(0) + renewals(1), 2);
    let unfenced = Cluster::new(3, false);
    assert_eq!(grant(&unfenced.store, &id("own")).await, None);
    assert!(matches!(renewed(&unfenced.store, &id("own")).await, RenewOutcome::Held(_)));
    unfenced.mend().await;
    let renewals: usize = unfenced.nodes.iter().map(|node| node.log().len()).sum();
    assert_eq!(renewals, 6, "an acquire and a renewal on each node");
}

#[tokio::test(start_paused = true)]
async fn a_fenced_quorum_refuses_what_it_cannot_do_and_reports_why() {
    let fenced = Cluster::new(3, true);
    let shared = leasehold_core::Claims::one(crate::faulty::key(), Mode::SHARED);
    let request =
        leasehold_core::AcquireRequest::new(id("own"), shared, crate::faulty::ttl(ms(1_000)));
    let error = fenced.store.acquire(&request).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("the same token"), "{error}");
    let unfenced = Cluster::new(3, false);
    assert!(matches!(unfenced.store.acquire(&request).await, Ok(AcquireReply::Granted(_))));
    let raise = renewal(&id("own")).with_token_raised_to(FencingToken::new(7).unwrap());
    let error = unfenced.store.renew(&RenewRequest::new(vec![raise])).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("fenced"), "{error}");
    assert!(unfenced.store.renew(&renew(&id("own"))).await.is_ok());
}

/// C3: a write-back that arrives late would extend the next lease of the same id, or end what does not match it.
#[tokio::test(start_paused = true)]
async fn a_node_that_a_write_back_may_still_reach_does_not_count() {
    let cluster = Cluster::new(3, true);
    let own = id("own");
    cluster.nodes[0].next(&[Fault::None, Fault::SlowRequest(ms(20_000))]);
    let error = cluster.store.acquire(&ask(&own)).await.unwrap_err();
    assert!(error.to_string().contains("accepted the grant's token"), "{error}");
    tokio::time::sleep(LIMIT * 4).await;
    cluster.nodes[2].down(Fault::Unreachable);
    let error = cluster.store.acquire(&ask(&own)).await.unwrap_err();
    assert!(error.nodes()[0].error.is_some(), "a write-back may yet arrive at n0: {error}");
    assert_eq!(cluster.nodes[0].acquires().len(), 1);
    cluster.mend().await;
    assert_eq!(cluster.copies(&own).await, 0);
}

/// Each node compares with the token that it has minted itself, so the quorum names none to it.
#[tokio::test(start_paused = true)]
async fn nodes_get_requests_without_the_token_of_the_quorum() {
    let cluster = Cluster::new(3, true);
    let own = id("own");
    let token = grant(&cluster.store, &own).await.unwrap();
    cluster.store.settled().await;
    let named = RenewRequest::new(vec![renewal(&own).with_token(token)]);
    let renewed = cluster.store.renew(&named).await.unwrap();
    assert!(matches!(renewed.leases[..], [RenewOutcome::Held(_)]), "{renewed:?}");
    let ending = ReleaseEntry::new(own.clone(), [key()]).with_token(token);
    let released = cluster.store.release(&ReleaseRequest::new(vec![ending])).await.unwrap();
    assert!(matches!(released.leases[..], [ReleaseOutcome::Released]), "{released:?}");
    cluster.mend().await;
    assert_eq!(cluster.copies(&own).await, 0);
}
