//! The quorum's truth table: every combination of node states, for every operation, compared with counts alone.
//!
//! After each case the nodes are mended, hung requests arrive late, and stragglers end. Then nothing of a failed
//! acquire may be left, and what others hold must be unchanged.

use crate::faulty::{Cluster, Fault, LIMIT, TERM, ask, grant, id, ms, released, renewed};
use leasehold_core::{
    AcquireReply, Clock, Effect, ErrorKind, LeaseId, Record, ReleaseOutcome, RenewOutcome, Store,
};

/// The state of a node when the operation begins. All nodes had granted the lease of a renewal, a release or a
/// re-acquire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nothing is in the way: for an acquire the key is free, otherwise the lease is there.
    Good,
    /// Another client holds the key there.
    Held,
    Down,
    Hung,
    /// The request arrives after the limit.
    SlowRequest,
    /// It acts at once, and the answer comes after the limit.
    SlowReply,
    /// It was restarted and has forgotten everything.
    Restarted,
}

use State::{Down, Good, Held, Hung, Restarted, SlowReply, SlowRequest};

const STATES: [State; 7] = [Good, Held, Down, Hung, SlowRequest, SlowReply, Restarted];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Op {
    Acquire,
    Renew,
    Release,
    Again,
}

const OPS: [Op; 4] = [Op::Acquire, Op::Renew, Op::Release, Op::Again];

/// The outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Yes,
    No,
    Failed,
}

/// The outcome, from only the numbers of nodes in each state.
fn expected(op: Op, states: &[State]) -> Outcome {
    let nodes = states.len();
    let count = |wanted: &[State]| states.iter().filter(|state| wanted.contains(state)).count();
    let (yes, no) = match op {
        Op::Acquire | Op::Again => (count(&[Good, Restarted]), count(&[Held])),
        Op::Renew | Op::Release => (count(&[Good]), count(&[Held, Restarted])),
    };
    if yes * 2 > nodes {
        Outcome::Yes
    } else if (nodes - no) * 2 <= nodes {
        Outcome::No
    } else {
        Outcome::Failed
    }
}

/// Puts the nodes into these states; returns what others hold.
async fn arrange(
    cluster: &Cluster,
    op: Op,
    states: &[State],
    ours: &LeaseId,
) -> Vec<Option<Record>> {
    if op != Op::Acquire {
        grant(&cluster.store, ours).await;
        cluster.store.settled().await;
    }
    let mut others = Vec::new();
    for (at, (node, state)) in cluster.nodes.iter().zip(states).enumerate() {
        if matches!(state, Held | Restarted) {
            node.forget();
        }
        others.push(match state {
            Held => {
                grant(&node.local(), &id(&format!("other {at}"))).await;
                node.records().await.pop()
            }
            _ => None,
        });
        node.down(match state {
            Good | Held | Restarted => Fault::None,
            Down => Fault::Unreachable,
            Hung => Fault::Stalled,
            SlowRequest => Fault::SlowRequest(ms(2_000)),
            SlowReply => Fault::SlowReply(ms(2_000)),
        });
        node.forget_sent();
    }
    others
}

async fn operate(cluster: &Cluster, op: Op, states: &[State], ours: &LeaseId) -> Outcome {
    let store = &cluster.store;
    let what = || format!("{op:?} on {states:?}");
    match op {
        Op::Acquire | Op::Again => {
            let mut request = ask(ours);
            if op == Op::Again {
                request = request.again(None);
            }
            match store.acquire(&request).await {
                Ok(AcquireReply::Granted(granted)) => {
                    let confirming = states.iter().filter(|state| **state == Good).count() * 2;
                    let fresh = op == Op::Acquire || confirming <= states.len();
                    assert_eq!(granted.fresh, fresh, "{}", what());
                    assert_eq!(granted.nodes.len(), states.len(), "{}", what());
                    Outcome::Yes
                }
                Ok(AcquireReply::Refused(refused)) => {
                    assert_eq!(refused.nodes.len(), states.len(), "{}", what());
                    Outcome::No
                }
                Err(error) => {
                    // Rolled back: the id is not used again (C10).
                    assert_eq!(error.kind(), ErrorKind::Unavailable, "{}: {error:?}", what());
                    assert_eq!(error.effect(), Effect::NotApplied, "{}: {error:?}", what());
                    assert_eq!(error.nodes().len(), states.len(), "{}: {error:?}", what());
                    Outcome::Failed
                }
            }
        }
        Op::Renew => match renewed(store, ours).await {
            RenewOutcome::Held(_) => Outcome::Yes,
            RenewOutcome::Lost(_) => Outcome::No,
            RenewOutcome::Failed(error) => {
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{}: {error:?}", what());
                Outcome::Failed
            }
        },
        Op::Release => match released(store, ours).await {
            ReleaseOutcome::Released => Outcome::Yes,
            ReleaseOutcome::NotHeld => Outcome::No,
            ReleaseOutcome::Failed(error) => {
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{}: {error:?}", what());
                Outcome::Failed
            }
            other => panic!("{}: {other:?}", what()),
        },
    }
}

async fn run(op: Op, states: &[State], fenced: bool) {
    let what = format!("{op:?} on {states:?}, fenced {fenced}");
    let cluster = Cluster::new(states.len(), fenced);
    let ours = id("ours");
    let others = arrange(&cluster, op, states, &ours).await;
    let began = cluster.clock.now();
    let outcome = operate(&cluster, op, states, &ours).await;
    let took = cluster.clock.now() - began;
    assert_eq!(outcome, expected(op, states), "{what}");
    assert!(took <= LIMIT, "{what} took {took:?}");
    // By its own clock the holder believes for less than its term, counted from before the request.
    assert!(took < TERM / 2, "{what} took {took:?}");
    cluster.mend().await;
    for ((node, state), other) in cluster.nodes.iter().zip(states).zip(&others) {
        let records = node.records().await;
        let has_ours = node.has(&ours).await;
        let what = format!("{what}: {outcome:?} left {records:?} on the node that was {state:?}");
        match other {
            // No other lease is affected.
            Some(other) => {
                assert_eq!(records.len(), 1, "{what}");
                assert_eq!((&records[0].id, records[0].mode), (&other.id, other.mode), "{what}");
            }
            None => match (op, outcome) {
                (Op::Acquire, Outcome::Yes) => {
                    // A node that is down never received it.
                    assert_eq!(has_ours, *state != Down, "{what}");
                }
                (Op::Acquire, _) => assert!(!has_ours, "{what}"),
                // A node that lacks it gets it back once a majority was seen to have it.
                (Op::Renew, Outcome::Yes) => assert!(has_ours, "{what}"),
                (Op::Renew, _) => assert_eq!(has_ours, *state != Restarted, "{what}"),
                (Op::Release, _) => assert_eq!(has_ours, *state == Down, "{what}"),
                (Op::Again, Outcome::Yes) => assert!(has_ours, "{what}"),
                // Only what was fresh is rolled back.
                (Op::Again, _) => assert_eq!(has_ours, *state != Restarted, "{what}"),
            },
        }
    }
    let mut holders: Vec<_> = Vec::new();
    for node in &cluster.nodes {
        holders.extend(node.records().await.into_iter().filter_map(|record| record.id));
    }
    holders.sort_unstable();
    let by_majority =
        holders.chunk_by(|a, b| a == b).filter(|c| c.len() * 2 > states.len()).count();
    assert!(by_majority <= 1, "{what}: {holders:?}");
}

#[tokio::test(start_paused = true)]
async fn every_combination_of_states_of_three_nodes() {
    let mut cases = 0;
    for a in STATES {
        for b in STATES {
            for c in STATES {
                for op in OPS {
                    for fenced in [false, true] {
                        run(op, &[a, b, c], fenced).await;
                        cases += 1;
                    }
                }
            }
        }
    }
    println!("{cases} cases");
    assert_eq!(cases, 7 * 7 * 7 * 4 * 2);
}

#[tokio::test(start_paused = true)]
async fn every_subset_of_five_nodes_for_every_fault() {
    let mut cases = 0;
    for fault in &STATES[1..] {
        for subset in 0..32 {
            let states: Vec<_> =
                (0..5).map(|at| if subset & (1 << at) == 0 { Good } else { *fault }).collect();
            for op in OPS {
                for fenced in [false, true] {
                    run(op, &states, fenced).await;
                    cases += 1;
                }
            }
        }
    }
    println!("{cases} cases");
    assert_eq!(cases, 6 * 32 * 4 * 2);
}
