//! A renewal puts a lease back on a node that lacks it, as long as that helps its holder.

use crate::faulty::{
    Cluster, Fault, Node, Request, Sent, TERM, ask, grant, held, id, ms, released, renew, renewal,
    renewed, ttl,
};
use leasehold_core::{
    AcquireReply, AcquireRequest, Claims, FencingToken, Key, LeaseId, Mode, RenewEntry,
    RenewOutcome, RenewReply, RenewRequest, Store,
};

/// How many leases are put back on one node at a time.
const AT_ONCE: usize = 16;

fn acquires(node: &Node) -> usize {
    node.log().iter().filter(|asked| matches!(asked, Sent::Acquire(_))).count()
}

fn all_held(renewed: &RenewReply) -> bool {
    renewed.leases.iter().all(|lease| matches!(lease, RenewOutcome::Held(_)))
}

/// Leases that all nodes had and n2 has forgotten, and their requests.
async fn forgotten(count: usize) -> (Cluster, Vec<AcquireRequest>, RenewRequest) {
    let cluster = Cluster::new(3, false);
    let mut acquires = Vec::new();
    let mut renewals = Vec::new();
    for at in 0..count {
        let own = id(&format!("own {at}"));
        let claims = Claims::one(Key::new(&format!("job:{at}")).unwrap(), Mode::Exclusive);
        let request = AcquireRequest::new(own.clone(), claims.clone(), ttl(TERM));
        assert!(matches!(cluster.store.acquire(&request).await, Ok(AcquireReply::Granted(_))));
        acquires.push(request);
        renewals.push(RenewEntry::extend(own, claims, ttl(TERM)));
    }
    cluster.store.settled().await;
    cluster.nodes[2].forget();
    cluster.nodes.iter().for_each(|node| node.forget_sent());
    (cluster, acquires, RenewRequest::new(renewals))
}

/// What happens to the last of many leases while it waits its turn to be put back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meanwhile {
    Released,
    /// An acquire under its id fails and is rolled back everywhere.
    TakenBack,
    /// An acquire under the id of a lease that may be held fails, and only what it added is rolled back.
    AskedAgain,
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_ended_before_its_turn_is_not_put_back() {
    for meanwhile in [Meanwhile::Released, Meanwhile::TakenBack, Meanwhile::AskedAgain] {
        let (cluster, leases, all) = forgotten(AT_ONCE + 4).await;
        let (node, last) = (&cluster.nodes[2], leases.last().unwrap());
        // For the renewal, and for the leases that are put back first.
        node.next(&[vec![Fault::None], vec![Fault::SlowRequest(ms(100)); AT_ONCE]].concat());
        assert!(all_held(&cluster.store.renew(&all).await.unwrap()));
        tokio::time::sleep(ms(1)).await;
        assert_eq!(acquires(node), AT_ONCE);
        if meanwhile == Meanwhile::Released {
            let ending =
                leasehold_core::ReleaseEntry::new(last.id().clone(), last.claims().keys().cloned());
            cluster
                .store
                .release(&leasehold_core::ReleaseRequest::new(vec![ending]))
                .await
                .unwrap();
        } else {
            cluster.nodes[..2].iter().for_each(|node| node.down(Fault::Unreachable));
            let mut request = last.clone();
            if meanwhile == Meanwhile::AskedAgain {
                request = request.again(None);
            }
            cluster.store.acquire(&request).await.unwrap_err();
        }
        tokio::time::sleep(ms(50)).await;
        assert!(!node.has(last.id()).await, "{meanwhile:?}");
        cluster.mend().await;
        assert!(!node.has(last.id()).await, "{meanwhile:?}");
        for other in &leases[..leases.len() - 1] {
            assert!(node.has(other.id()).await, "{meanwhile:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_nodes_answer_after_the_term_puts_nothing_back() {
    for (late, put_back) in [(TERM - ms(1), 1), (TERM, 0)] {
        let (cluster, own) = held().await;
        cluster.nodes[2].forget();
        cluster.nodes[2].forget_sent();
        cluster.nodes[2].next(&[Fault::SlowReply(late)]);
        assert!(matches!(renewed(&cluster.store, &own).await, RenewOutcome::Held(_)));
        cluster.mend().await;
        assert_eq!(acquires(&cluster.nodes[2]), put_back, "after {late:?}");
    }
}

/// Nobody has seen a majority that holds it.
#[tokio::test(start_paused = true)]
async fn a_renewal_whose_caller_went_away_puts_nothing_back() {
    let (cluster, own) = held().await;
    cluster.nodes[2].forget();
    cluster.nodes.iter().for_each(|node| node.forget_sent());
    for node in &cluster.nodes[..2] {
        node.next(&[Fault::SlowReply(ms(100))]);
    }
    let dropped = tokio::time::timeout(ms(50), cluster.store.renew(&renew(&own))).await;
    assert!(dropped.is_err());
    cluster.mend().await;
    assert_eq!(acquires(&cluster.nodes[2]), 0);
}

/// It found there what was not there throughout.
#[tokio::test(start_paused = true)]
async fn a_renewal_does_not_count_what_another_put_back_meanwhile() {
    let (cluster, own) = held().await;
    cluster.nodes[2].forget();
    // The other's, then this one's.
    cluster.nodes[1].next(&[Fault::None, Fault::Unreachable]);
    cluster.nodes[2].next(&[Fault::None, Fault::SlowRequest(ms(10))]);
    let other = renewed(&cluster.store, &own).await;
    assert!(matches!(other, RenewOutcome::Held(_)), "{other:?}");
    tokio::time::sleep(ms(1)).await;
    let this = renewed(&cluster.store, &own).await;
    tokio::time::sleep(ms(20)).await;
    assert!(cluster.nodes[2].has(&own).await);
    assert!(matches!(this, RenewOutcome::Failed(_)), "{this:?}");
    cluster.mend().await;
    assert!(matches!(renewed(&cluster.store, &own).await, RenewOutcome::Held(_)));
}

#[tokio::test(start_paused = true)]
async fn the_second_of_two_concurrent_renewals_puts_back() {
    let (cluster, own) = held().await;
    cluster.nodes[2].forget();
    cluster.nodes[2].forget_sent();
    let both = tokio::join!(renewed(&cluster.store, &own), renewed(&cluster.store, &own));
    assert!(matches!(both, (RenewOutcome::Held(_), RenewOutcome::Held(_))), "{both:?}");
    cluster.mend().await;
    assert!(cluster.nodes[2].has(&own).await);
    assert_eq!(acquires(&cluster.nodes[2]), 1);
}

/// A fenced quorum, a lease that n0 has forgotten, and its token.
async fn fenced() -> (Cluster, LeaseId, FencingToken) {
    let (cluster, own) = (Cluster::new(3, true), id("own"));
    let token = grant(&cluster.store, &own).await.unwrap();
    cluster.store.settled().await;
    cluster.nodes[0].forget();
    cluster.nodes[0].forget_sent();
    (cluster, own, token)
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_put_back_again_with_the_larger_of_its_tokens() {
    let (cluster, own, token) = fenced().await;
    let larger = FencingToken::new(token.get() + 7).unwrap();
    let raised = renewal(&own).with_token(token).with_token_raised_to(larger);
    assert!(all_held(&cluster.store.renew(&RenewRequest::new(vec![raised])).await.unwrap()));
    cluster.mend().await;
    let again = cluster.nodes[0].requests().into_iter().filter_map(|request| match request {
        Request::Acquire(request) => Some(request.is_again()),
        _ => None,
    });
    assert_eq!(again.collect::<Vec<_>>(), [Some(Some(token))]);
    assert!(cluster.nodes[0].records().await[0].token >= Some(larger));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_refused_or_has_no_tokens_gets_none() {
    let (cluster, own, token) = fenced().await;
    grant(&cluster.nodes[0].local(), &id("other")).await;
    let named = RenewRequest::new(vec![renewal(&own).with_token(token)]);
    assert!(all_held(&cluster.store.renew(&named).await.unwrap()));
    cluster.mend().await;
    let twice = [Sent::Renew(vec![own.clone()]), Sent::Acquire(own.clone())];
    assert_eq!(cluster.nodes[0].log(), twice);
    let (unfenced, own) = held().await;
    unfenced.nodes[0].forget();
    unfenced.nodes[0].forget_sent();
    assert!(all_held(&unfenced.store.renew(&named).await.unwrap()));
    unfenced.mend().await;
    assert!(unfenced.nodes[0].has(&own).await);
    assert_eq!(unfenced.nodes[0].log(), twice);
}

/// A renewal sets the token, and would end what does not match it (C3b).
#[tokio::test(start_paused = true)]
async fn a_node_whose_token_is_not_given_yet_does_not_count_for_a_later_try() {
    let (cluster, own, token) = fenced().await;
    // For the renewal, the acquire that puts it back, and the token.
    cluster.nodes[0].next(&[Fault::None, Fault::None, Fault::SlowRequest(ms(20_000))]);
    let named = RenewRequest::new(vec![renewal(&own).with_token(token)]);
    assert!(all_held(&cluster.store.renew(&named).await.unwrap()));
    tokio::time::sleep(ms(1)).await;
    released(&cluster.store, &own).await;
    cluster.nodes[2].down(Fault::Unreachable);
    let error = cluster.store.acquire(&ask(&own)).await.unwrap_err();
    assert!(error.nodes()[0].error.is_some(), "a token may yet arrive at n0: {error}");
    cluster.mend().await;
    assert_eq!(cluster.copies(&own).await, 0);
}
