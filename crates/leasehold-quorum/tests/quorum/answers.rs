//! What a quorum answers, and when, while nodes hang, fail, are in quarantine or mislead.

use std::sync::Arc;
use std::time::Duration;

use crate::faulty::{
    Cluster, Fault, Faulty, LIMIT, Node, TERM, ask, claims, grant, id, key, ms, refused, released,
    renewed, ttl,
};
use leasehold_core::{
    AcquireReply, AcquireRequest, Clock, Cursor, Effect, Error, ErrorKind, Filter, ListReply,
    ListRequest, ReleaseOutcome, Remaining, RenewEntry, RenewOutcome, RenewRequest, Result, Store,
};
use leasehold_driver::TokioClock;
use leasehold_quorum::{QuorumConfig, QuorumStore};

#[tokio::test(start_paused = true)]
async fn one_hung_node_costs_at_most_its_time_limit() {
    let cluster = Cluster::new(3, false);
    cluster.nodes[1].down(Fault::Stalled);
    let own = id("own");
    let began = || cluster.clock.now();
    let at_once = |since: std::time::Duration| assert_eq!(cluster.clock.now() - since, ms(0));
    let within = |since| assert!(cluster.clock.now() - since <= LIMIT);
    let since = began();
    grant(&cluster.store, &own).await;
    at_once(since);
    assert!(matches!(renewed(&cluster.store, &own).await, RenewOutcome::Held(_)));
    at_once(since);
    refused(&cluster.store, &id("other")).await;
    at_once(since);
    assert!(matches!(released(&cluster.store, &own).await, ReleaseOutcome::Released));
    at_once(since);
    let since = began();
    cluster.store.list(&ListRequest::new(Filter::default().with_key(key()))).await.unwrap();
    within(since);
    let since = began();
    cluster.store.check().await.unwrap();
    within(since);
    let since = began();
    cluster.store.subscribe(&[key()]).await.unwrap();
    within(since);
    cluster.nodes[2].down(Fault::Stalled);
    let since = began();
    cluster.store.acquire(&ask(&id("second"))).await.unwrap_err();
    within(since);
    cluster.mend().await;
}

/// The nodes' requests run on other threads than their caller's.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_grant_can_be_renewed_at_once() {
    let cluster = Cluster::new(3, false);
    cluster.nodes[2].down(Fault::Unreachable);
    for round in 0..5_000 {
        let own = id(&format!("round {round}"));
        grant(&cluster.store, &own).await;
        assert!(matches!(renewed(&cluster.store, &own).await, RenewOutcome::Held(_)), "{round}");
        released(&cluster.store, &own).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_short_term_gives_a_node_a_twentieth_of_it() {
    let cluster = Cluster::new(3, false);
    cluster.nodes[0].down(Fault::Stalled);
    cluster.nodes[1].down(Fault::Stalled);
    for (term, limit) in [(2_000, 100), (100, 10), (30_000, 500)] {
        let since = cluster.clock.now();
        let request = AcquireRequest::new(id("own"), claims(), ttl(ms(term)));
        cluster.store.acquire(&request).await.unwrap_err();
        assert_eq!(cluster.clock.now() - since, ms(limit), "a term of {term} ms");
    }
    cluster.mend().await;
}

#[tokio::test(start_paused = true)]
async fn a_quarantine_is_not_a_refusal() {
    let cluster = Cluster::new(3, false);
    cluster.nodes[1].quarantine(ms(40_000));
    grant(&cluster.store, &id("one node may be")).await;
    released(&cluster.store, &id("one node may be")).await;
    cluster.store.settled().await;
    cluster.nodes[2].quarantine(ms(50_000));
    let error = cluster.store.acquire(&ask(&id("two may not"))).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::NotApplied));
    // Until the second of three is free: n0 now, n1 after 40 s.
    assert_eq!(error.retry_after(), Some(ms(40_000)));
    cluster.mend().await;
    assert_eq!(cluster.copies(&id("two may not")).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_reports_when_a_majority_is_free_and_names_the_holder() {
    let cluster = Cluster::new(3, false);
    grant(&cluster.nodes[0].local(), &id("minority")).await;
    for node in &cluster.nodes[1..] {
        let request = AcquireRequest::new(id("majority"), claims(), ttl(ms(20_000)));
        node.local().acquire(&request).await.unwrap();
    }
    // n0 would be free after 30 s, later than a majority; n1 and n2 after 20 s.
    cluster.nodes[0].next(&[Fault::SlowReply(ms(100))]);
    match cluster.store.acquire(&ask(&id("own"))).await {
        Ok(AcquireReply::Refused(refused)) => {
            let holder = match refused.why {
                leasehold_core::RefusalReason::Held(Some(holder)) => holder,
                other => panic!("{other:?}"),
            };
            assert_eq!(refused.retry_after, Some(ms(20_000)));
            assert_eq!(holder.id, Some(id("majority")));
            assert!(holder.token.is_none(), "tokens of single nodes mean nothing");
        }
        other => panic!("{other:?}"),
    }
}

/// A listing of fewer nodes than a majority proves nothing: none of them may be among the holders (C10).
#[tokio::test(start_paused = true)]
async fn a_listing_needs_a_majority() {
    let cluster = Cluster::new(3, false);
    grant(&cluster.store, &id("own")).await;
    cluster.store.settled().await;
    for filter in [Filter::default(), Filter::default().with_key(key())] {
        cluster.nodes[1].down(Fault::Unreachable);
        let mut request = ListRequest::new(filter.clone());
        let mut records = 0;
        let mut errors = 0;
        loop {
            let page = cluster.store.list(&request).await.unwrap();
            records += page.records.len();
            let shown_by = page.records.iter().map(|record| record.node.as_deref());
            assert!(shown_by.eq(
                page.nodes.iter().filter_map(|node| {
                    node.error.is_none().then_some(Some(node.node.as_str()))
                })
            ));
            errors += page.nodes.iter().filter(|node| node.error.is_some()).count();
            let Some(next) = page.next else { break };
            request = request.with_cursor(next);
        }
        assert_eq!((records, errors), (2, 1));
        cluster.nodes[0].down(Fault::Unreachable);
        let mut request = ListRequest::new(filter);
        let error = loop {
            match cluster.store.list(&request).await {
                Ok(page) => {
                    request = request.with_cursor(page.next.expect("no majority was asked"))
                }
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        cluster.mend().await;
    }
}

/// A fault in one node's page, which must not affect the listing of the others.
#[derive(Debug, Clone, Copy)]
enum Misled {
    /// More records than requested.
    TooMany,
    /// A page that names itself as the next one.
    Again,
    /// A lasting failure.
    Denied,
}

impl Misled {
    fn page(self, mut page: ListReply, request: &ListRequest) -> Result<ListReply> {
        match self {
            Self::TooMany => {
                let record = page.records[0].clone();
                page.records.resize(request.limit() + 1, record);
            }
            Self::Again => page.next = Some(Cursor::new(vec![7])),
            Self::Denied if request.cursor().is_some() => return Err(Error::denied("no more")),
            Self::Denied => page.next = Some(Cursor::new(vec![7])),
        }
        Ok(page)
    }
}

/// All pages; the listing must end.
async fn list_all(store: &QuorumStore, filter: &Filter) -> Result<ListReply> {
    let mut request = ListRequest::new(filter.clone()).with_limit(2);
    let mut whole = ListReply::new(Vec::new(), None);
    for _ in 0..20 {
        whole.append(store.list(&request).await?);
        let Some(next) = whole.next.take() else { return Ok(whole) };
        request = request.with_cursor(next);
    }
    panic!("a listing without end: {:?}", whole.nodes);
}

#[tokio::test(start_paused = true)]
async fn a_listing_that_fails_on_one_node_fails_no_other() {
    for misled in [Misled::TooMany, Misled::Again, Misled::Denied] {
        let cluster = Cluster::new(3, false);
        grant(&cluster.store, &id("own")).await;
        cluster.store.settled().await;
        for filter in [Filter::default(), Filter::default().with_key(key())] {
            cluster.nodes[1].mislead(Some(Arc::new(move |page, ask| misled.page(page, ask))));
            cluster.nodes[2].mislead(None);
            let whole = list_all(&cluster.store, &filter).await.expect("two nodes are fine");
            let failed: Vec<_> = whole.nodes.iter().map(|node| node.error.is_some()).collect();
            assert_eq!(failed, [false, true, false], "{misled:?}");
            assert_eq!(whole.holders().unwrap().len(), 1);
            cluster.nodes[2].mislead(Some(Arc::new(move |page, ask| misled.page(page, ask))));
            let error = list_all(&cluster.store, &filter).await.expect_err("one node is fine");
            let kind = match misled {
                Misled::Denied => ErrorKind::Denied,
                _ => ErrorKind::Unexpected,
            };
            assert_eq!(error.kind(), kind, "{misled:?}: {error}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn many_leases_are_renewed_in_one_exchange_with_each_node() {
    let cluster = Cluster::new(3, false);
    let mut leases = Vec::new();
    for n in 0..50 {
        let name = leasehold_core::Key::new(&format!("job:{n}")).unwrap();
        let one = leasehold_core::Claims::one(name, leasehold_core::Mode::Exclusive);
        let request = AcquireRequest::new(id(&format!("own {n}")), one.clone(), ttl(TERM));
        assert!(matches!(cluster.store.acquire(&request).await, Ok(AcquireReply::Granted(_))));
        leases.push(RenewEntry::extend(id(&format!("own {n}")), one, ttl(TERM)));
    }
    cluster.store.settled().await;
    cluster.nodes.iter().for_each(|node| node.forget_sent());
    cluster.nodes[1].forget();
    let renewed = cluster.store.renew(&RenewRequest::new(leases)).await.unwrap();
    assert_eq!(renewed.leases.len(), 50);
    let is_held = |lease: &RenewOutcome| matches!(lease, RenewOutcome::Held(Remaining::For(_)));
    assert!(renewed.leases.iter().all(is_held));
    cluster.mend().await;
    assert_eq!((cluster.nodes[0].log().len(), cluster.nodes[2].log().len()), (1, 1));
    assert_eq!(cluster.nodes[1].records().await.len(), 50);
}

/// By default it ends when a majority has answered, and the others follow.
#[tokio::test(start_paused = true)]
async fn a_release_can_wait_for_every_node() {
    for waits in [false, true] {
        let clock = TokioClock::new();
        let nodes: Vec<_> = (0..3).map(|_| Node::new(clock, 0)).collect();
        let config = QuorumConfig::new().clock(Arc::new(clock)).release_waits_for_all(waits);
        let named = nodes.iter().enumerate();
        let config = named
            .fold(config, |config, (at, node)| config.node(format!("n{at}"), Faulty(node.clone())));
        let store = config.build().expect("three nodes");
        let own = id("own");
        grant(&store, &own).await;
        store.settled().await;
        nodes[2].next(&[Fault::SlowRequest(ms(100))]);
        assert!(matches!(released(&store, &own).await, ReleaseOutcome::Released));
        assert_eq!(nodes[2].has(&own).await, !waits);
        // A node that does not answer delays it for the limit of a node, and no longer.
        grant(&store, &own).await;
        store.settled().await;
        nodes[2].down(Fault::Stalled);
        let before = clock.now();
        assert!(matches!(released(&store, &own).await, ReleaseOutcome::Released));
        assert_eq!(clock.now() - before, if waits { LIMIT } else { Duration::ZERO });
    }
}
