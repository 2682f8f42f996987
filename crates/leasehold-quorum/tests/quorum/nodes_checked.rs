//! What a quorum requires of its nodes, and what it refuses before it asks any of them.

use std::time::Duration;

use crate::faulty::{Cluster, Fault, ask, claims, id, key, ms, renewal, ttl};
use leasehold_core::{
    AcquireRequest, Claims, Effect, Error, ErrorKind, Health, Level, Mode, ReleaseEntry,
    ReleaseRequest, RenewRequest, Result, Store, Ttl,
};
use leasehold_local::LocalStore;
use leasehold_quorum::QuorumConfig;

fn kind_and_text(answer: Result<Health>) -> (ErrorKind, String) {
    let error = answer.unwrap_err();
    (error.kind(), error.to_string())
}

fn refusal<T: std::fmt::Debug>(answer: Result<T>) -> Error {
    let error = answer.unwrap_err();
    assert_eq!(error.effect(), Effect::NotApplied, "{error:?}");
    error
}

#[test]
fn bad_input_is_refused_without_a_request() {
    let nodes = || {
        let config = QuorumConfig::new().node("a", LocalStore::new());
        config.node("b", LocalStore::new()).node("c", LocalStore::new())
    };
    for (config, fragment) in [
        (QuorumConfig::new(), "has no nodes"),
        (nodes().node("a", LocalStore::new()), "\"a\" is given twice"),
        (nodes().max_ttl(ms(9)), "max_ttl"),
        (nodes().node_timeout(ms(9)), "node_timeout"),
        (nodes().release_timeout(Duration::ZERO), "release_timeout"),
    ] {
        let error = refusal(config.build());
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains(fragment), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_quorum_refuses_what_it_cannot_do_without_a_request_and_reports_why() {
    let cluster = Cluster::with(3, |config| config.max_ttl(Duration::from_secs(20)));
    let store = &cluster.store;
    let limited = Mode::Shared { max: std::num::NonZeroU32::new(2) };
    let limited = AcquireRequest::new(id("own"), Claims::one(key(), limited), ttl(ms(1_000)));
    let longer = AcquireRequest::new(id("own"), claims(), ttl(ms(20_001)));
    let never = RenewRequest::new(vec![leasehold_core::RenewEntry::extend(
        id("own"),
        claims(),
        Ttl::NEVER,
    )]);
    let longest = RenewRequest::new(vec![renewal(&id("own"))]);
    let keep = ReleaseEntry::new(id("own"), [key()]).with_keep(ms(20_001));
    for (error, fragment) in [
        (refusal(store.acquire(&limited).await), "two of three nodes"),
        (refusal(store.acquire(&longer).await), "max_ttl"),
        (refusal(store.renew(&never).await), "without end"),
        (refusal(store.renew(&longest).await), "max_ttl"),
        (refusal(store.release(&ReleaseRequest::new(vec![keep])).await), "max_ttl"),
    ] {
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains(fragment), "{error}");
    }
    assert!(cluster.nodes.iter().all(|node| node.log().is_empty()), "a node was asked");
    let longest = AcquireRequest::new(id("own"), claims(), ttl(ms(20_000)));
    assert!(store.acquire(&longest).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_node_that_may_forget_is_refused_by_name() {
    let max_ttl = QuorumConfig::DEFAULT_MAX_TTL;
    let cluster = Cluster::new(3, false);
    cluster.nodes[1].set_health(|health| health.durable = false);
    let (kind, text) = kind_and_text(cluster.store.check().await);
    assert_eq!(kind, ErrorKind::Incompatible);
    assert!(text.contains("\"n1\"") && text.contains("quarantine"), "{text}");
    for (quarantine, is_fit) in [(max_ttl - ms(1), false), (max_ttl, true), (max_ttl + ms(1), true)]
    {
        cluster.nodes[1].set_health(|health| {
            health.durable = false;
            health.quarantine = quarantine;
        });
        assert_eq!(cluster.store.check().await.is_ok(), is_fit, "{quarantine:?}");
    }
    // In a quarantine, leases may be lost but tokens may not.
    let fenced = cluster.another(|config| config.fenced(true));
    let (kind, text) = kind_and_text(fenced.check().await);
    assert_eq!(kind, ErrorKind::Incompatible);
    assert!(text.contains("\"n1\"") && text.contains("fenced"), "{text}");
    cluster.nodes[1].set_health(|health| health.fails_over = true);
    let (kind, text) = kind_and_text(cluster.store.check().await);
    assert_eq!(kind, ErrorKind::Incompatible);
    assert!(text.contains("\"n1\"") && text.contains("fail over"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_level_is_for_the_terms_of_every_node() {
    let max_ttl = QuorumConfig::DEFAULT_MAX_TTL;
    let cluster = Cluster::new(3, false);
    for (of_a_node, of_the_quorum) in
        [(None, None), (Some(max_ttl), None), (Some(max_ttl - ms(1)), Some(max_ttl - ms(1)))]
    {
        cluster.nodes[1].set_health(|health| health.level_max_ttl = of_a_node);
        let health = cluster.store.check().await.unwrap();
        assert_eq!((health.level, health.level_max_ttl), (Level::Lease, of_the_quorum));
    }
    cluster.nodes[2].set_health(|health| health.level = Level::BestEffort);
    let health = cluster.store.check().await.unwrap();
    assert_eq!((health.level, health.level_max_ttl), (Level::BestEffort, None));
}

#[tokio::test]
async fn one_server_under_two_names_is_refused() {
    let one = LocalStore::new();
    let config = QuorumConfig::new().node("a", one.clone()).node("b", LocalStore::new());
    let store = config.node("c", one).build().unwrap();
    let (kind, text) = kind_and_text(store.check().await);
    assert_eq!(kind, ErrorKind::Incompatible);
    assert!(
        text.contains("\"a\"") && text.contains("\"c\"") && text.contains("the same server"),
        "{text}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_check_works_while_a_minority_is_down_and_names_it() {
    for way in [Fault::Unreachable, Fault::Stalled] {
        let cluster = Cluster::new(3, false);
        assert_eq!(cluster.store.check().await.unwrap().hazards, [""; 0]);
        cluster.nodes[1].down(way);
        let health = cluster.store.check().await.unwrap();
        assert!(health.hazards.len() == 1 && health.hazards[0].contains("\"n1\""), "{health:?}");
        cluster.nodes[2].down(way);
        let error = cluster.store.check().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert_eq!(error.nodes().len(), 3);
        cluster.mend().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_level_is_the_lowest_and_l2_only_if_fenced() {
    let cluster = Cluster::new(3, false);
    let fenced = cluster.another(|config| config.fenced(true));
    assert_eq!(cluster.store.check().await.unwrap().level, Level::Lease);
    assert_eq!(fenced.check().await.unwrap().level, Level::Fenced);
    cluster.nodes[1].set_health(|health| {
        health.level = Level::BestEffort;
        health.hazards.push("it swaps".to_owned());
        health.clock_difference_us = Some(-7);
    });
    let health = fenced.check().await.unwrap();
    assert_eq!((health.level, health.clock_difference_us), (Level::BestEffort, Some(-7)));
    assert_eq!(health.hazards, ["\"n1\": it swaps"]);
}

#[tokio::test(start_paused = true)]
async fn every_node_is_prepared_or_named_as_not_prepared() {
    let cluster = Cluster::new(3, false);
    cluster.store.prepare().await.unwrap();
    cluster.nodes[1].down(Fault::Unreachable);
    let error = cluster.store.prepare().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let text = error.to_string();
    for fragment in ["not every node is ready", "n0: ready", "n1: the network failed"] {
        assert!(text.contains(fragment), "{fragment:?} is not in {text}");
    }
}

#[tokio::test(start_paused = true)]
async fn requests_without_a_majority_of_nodes_name_them_and_their_failures() {
    let cluster = Cluster::new(3, false);
    cluster.nodes[0].down(Fault::Stalled);
    cluster.nodes[1].down(Fault::Unreachable);
    let text = cluster.store.acquire(&ask(&id("own"))).await.unwrap_err().to_string();
    for fragment in ["of 3 nodes no majority agreed", "n1: the network failed", "n2: granted"] {
        assert!(text.contains(fragment), "{fragment:?} is not in {text}");
    }
    cluster.mend().await;
}
