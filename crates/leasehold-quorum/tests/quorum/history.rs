//! Clients that contend for one key while every request meets a fault, judged by the checker of histories: one
//! holder by its own clock, tokens that grow, no lease that revives.
//!
//! On paused time, from seeds: a failure repeats with its seed.

#![expect(clippy::disallowed_methods, reason = "clients run at the same time")]

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use crate::faulty::{Cluster, Fault, claims, key, ms};
use leasehold_conformance::history::{History, Violation, check};
use leasehold_core::{EvictRequest, Filter, Store as _};
use leasehold_testkit::contender::{Contender, Habit};
use leasehold_testkit::crowd::Tally;

const TERM: Duration = Duration::from_secs(2);
const CLIENTS: u64 = 4;
const ATTEMPTS: u64 = 25;

/// Most requests succeed; the others fail, act late, or answer late, up to far beyond the term.
fn draw(random: &mut fastrand::Rng, faults: u64) -> Fault {
    if random.u64(..100) >= faults {
        return Fault::SlowReply(ms(random.u64(..4)));
    }
    match random.u64(..6) {
        0 | 1 => Fault::Unreachable,
        2 => Fault::SlowRequest(ms(random.u64(..150))),
        3 => Fault::SlowRequest(ms(random.u64(..6_000))),
        4 => Fault::SlowReply(ms(random.u64(..150))),
        _ => Fault::SlowReply(ms(random.u64(..6_000))),
    }
}

/// What happens to the nodes.
#[derive(Debug, Clone, Copy)]
struct Trial {
    nodes: usize,
    fenced: bool,
    /// One after the other is restarted without its memory, and then grants nothing for this long.
    restarts: Option<Duration>,
}

/// What the clients saw while this many of a hundred requests met a fault.
async fn history(trial: Trial, seed: u64, faults: u64) -> History {
    let Trial { nodes, fenced, restarts } = trial;
    let cluster = Cluster::new(nodes, fenced);
    let mut random = fastrand::Rng::with_seed(seed);
    for node in &cluster.nodes {
        let mut random = random.fork();
        node.draw(Some(Box::new(move || draw(&mut random, faults))));
    }
    let instant = Arc::new(AtomicU64::new(1));
    let mut running = Vec::new();
    for _ in 0..CLIENTS {
        let store = cluster.another(|config| config.fenced(fenced));
        let habit = Habit { claims: claims(), term: TERM, hold: 900, rest: 600 };
        let random = random.fork();
        let mut client = Contender::new(store, habit, cluster.clock, random, &instant);
        running.push(tokio::spawn(async move {
            for _ in 0..ATTEMPTS {
                client.attempt().await;
            }
            client
        }));
    }
    let restarting = tokio::spawn({
        let nodes = cluster.nodes.clone();
        async move {
            let Some(quarantine) = restarts else { return };
            for node in nodes.iter().cycle() {
                tokio::time::sleep(ms(500 + random.u64(..3_000))).await;
                node.forget();
                node.quarantine(quarantine);
            }
        }
    });
    let mut history = History::new(Vec::new(), Vec::new());
    let mut stores = Vec::new();
    for client in running {
        stores.push(client.await.unwrap().tell(&mut history));
    }
    restarting.abort();
    for store in stores {
        store.settled().await;
        assert_eq!(store.remembered(), 0, "what is answered is forgotten");
    }
    // Only what was never released is left, and only until its term ends.
    cluster.nodes.iter().for_each(|node| node.draw(None));
    tokio::time::sleep(TERM).await;
    cluster.store.evict(&EvictRequest::expired(Filter::default().with_key(key()))).await.unwrap();
    crate::faulty::grant(&cluster.store, &crate::faulty::id("last")).await;
    history
}

fn faults(seed: u64) -> u64 {
    [10, 25, 45][usize::try_from(seed % 3).unwrap()]
}

async fn judge(trial: Trial, seeds: u64) {
    let mut tally = Tally::default();
    for seed in 0..seeds {
        let history = history(trial, seed, faults(seed)).await;
        let found = check(&history);
        assert!(found.is_empty(), "{trial:?}, seed {seed}: {found:?}");
        tally += Tally::of(&history);
    }
    println!("{trial:?}: {seeds} histories, {tally}");
    // A run without contention or without faults proves nothing.
    let least = 5 * usize::try_from(seeds).unwrap();
    assert!(tally.grants > least && tally.kept > least && tally.unanswered > least);
}

#[tokio::test(start_paused = true)]
async fn three_nodes() {
    judge(Trial { nodes: 3, fenced: false, restarts: None }, 40).await;
}

#[tokio::test(start_paused = true)]
async fn three_nodes_with_tokens() {
    judge(Trial { nodes: 3, fenced: true, restarts: None }, 60).await;
}

#[tokio::test(start_paused = true)]
async fn five_nodes() {
    judge(Trial { nodes: 5, fenced: false, restarts: None }, 20).await;
}

#[tokio::test(start_paused = true)]
async fn five_nodes_with_tokens() {
    judge(Trial { nodes: 5, fenced: true, restarts: None }, 30).await;
}

/// A quarantine as long as the longest term stands in for durable writes.
#[tokio::test(start_paused = true)]
async fn nodes_that_forget_and_keep_a_quarantine() {
    judge(Trial { nodes: 3, fenced: false, restarts: Some(TERM) }, 40).await;
}

/// The checker must be able to see violations.
#[tokio::test(start_paused = true)]
async fn nodes_that_forget_and_keep_none_let_a_second_holder_in() {
    let trial = Trial { nodes: 3, fenced: false, restarts: Some(Duration::ZERO) };
    let mut overlaps = 0;
    for seed in 0..20 {
        let found = check(&history(trial, seed, faults(seed)).await);
        let is_overlap = |fault: &Violation| matches!(fault, Violation::Overlap(..));
        overlaps += usize::from(found.iter().any(is_overlap));
    }
    println!("{overlaps} of 20 histories with two holders");
    assert!(overlaps > 0);
}
