//! Compares the store with the pure rules, reply by reply, for random operations.

mod generate;
mod judge;
mod tokens;
mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use leasehold_core::LeaseId;
use serde_json::{Value, json};

use crate::random::Random;
use crate::{Failure, Forgets, Result, Subject};

use generate::Generator;
use world::{Op, World};

/// Operations on one state before the next begins.
const EPISODE: usize = 500;

/// How many operations of a failed run are shown.
const SHOWN: usize = 30;

/// How many times a failed run is repeated with fewer operations.
const REPLAYS: usize = 400;

/// What the oracle compared.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Figures {
    /// The seed that repeats the run.
    pub seed: u64,
    /// How many operations were compared.
    pub operations: usize,
    /// How often each kind of reply occurred.
    pub replies: BTreeMap<&'static str, usize>,
}

impl Figures {
    pub(crate) fn to_json(&self) -> Value {
        json!({ "seed": self.seed, "operations": self.operations, "replies": self.replies })
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} operations, seed {}", self.operations, self.seed)?;
        for (reply, count) in &self.replies {
            write!(f, ", {reply} {count}")?;
        }
        Ok(())
    }
}

/// Compares as many operations as the subject states, or `LEASEHOLD_ORACLE_OPERATIONS`.
pub(crate) async fn run<S: Subject>(subject: &S) -> Result<Figures> {
    let seed = seed()?;
    let mut figures = Figures { seed, ..Figures::default() };
    let mut wanted = operations()?;
    let mut episode = 0;
    let mut expected = BTreeSet::new();
    while figures.operations < wanted.unwrap_or(1) {
        // Only some states of a store with counters forget them, so that its default is compared too.
        let forgetting = episode % 2 == 1;
        let mut world = open(subject, forgetting).await?;
        wanted.get_or_insert(subject.oracle_operations(&world.time));
        expected.extend(world.expected());
        let mut generator = Generator::new(Random::new(seed.wrapping_add(episode)), &world);
        let mut ops = Vec::new();
        for _ in 0..EPISODE {
            let op = generator.next(&world);
            ops.push(op);
            let op = ops.last().expect("one was just pushed");
            if let Err(found) = world.step(op).await {
                return Err(failed(subject, seed, episode, ops, forgetting, found).await);
            }
        }
        figures.operations += ops.len();
        for (reply, count) in world.replies {
            *figures.replies.entry(reply).or_default() += count;
        }
        episode += 1;
    }
    let missing: Vec<_> =
        expected.iter().filter(|reply| !figures.replies.contains_key(*reply)).collect();
    if missing.is_empty() {
        return Ok(figures);
    }
    Err(Failure::new(format!("the oracle showed nothing of {missing:?}: {figures}")))
}

async fn open<S: Subject>(subject: &S, forgetting: bool) -> Result<World<S::Backing>> {
    // It must forget at a purge, and report it.
    if forgetting && subject.reports().forgotten {
        if let Forgets::After(backing) = subject.open_forgetting(world::FORGET_AFTER).await? {
            return World::new(backing, subject.reports(), true).await;
        }
    }
    World::new(subject.open().await?, subject.reports(), false).await
}

/// Reports a difference, with the shortest run that still shows one.
async fn failed<S: Subject>(
    subject: &S,
    seed: u64,
    episode: u64,
    ops: Vec<Op>,
    forgetting: bool,
    found: Failure,
) -> Failure {
    let total = ops.len();
    let (ops, found) = shrink(subject, ops, forgetting, found).await;
    let shown = ops.iter().enumerate().skip(ops.len().saturating_sub(SHOWN));
    let lines: Vec<_> = shown.map(|(at, op)| format!("  {at}: {op:?}")).collect();
    Failure::new(format!(
        "operation {total} of episode {episode} (LEASEHOLD_SEED={seed}): {found}\n\
         the last of {} operations that show it:\n{}",
        ops.len(),
        lines.join("\n"),
    ))
}

/// Removes operations as long as a difference remains.
async fn shrink<S: Subject>(
    subject: &S,
    mut ops: Vec<Op>,
    forgetting: bool,
    mut found: Failure,
) -> (Vec<Op>, Failure) {
    let mut replays = 0;
    let mut length = ops.len() / 2;
    while length > 0 {
        let mut at = 0;
        while at < ops.len() && replays < REPLAYS {
            let end = ops.len().min(at + length);
            let less: Vec<_> = ops[..at].iter().chain(&ops[end..]).cloned().collect();
            replays += 1;
            match replay(subject, &less, forgetting).await {
                Some((failed_at, failure)) => {
                    ops = less;
                    ops.truncate(failed_at + 1);
                    found = failure;
                }
                None => at += length,
            }
        }
        length /= 2;
    }
    (ops, found)
}

/// Repeats the operations on a fresh state; returns where a difference shows. Nothing is repeated in real time.
async fn replay<S: Subject>(subject: &S, ops: &[Op], forgetting: bool) -> Option<(usize, Failure)> {
    let mut world = open(subject, forgetting).await.ok()?;
    if matches!(world.time, crate::Time::Real { .. }) {
        return None;
    }
    for (at, op) in ops.iter().enumerate() {
        if let Err(failure) = world.step(op).await {
            return Some((at, failure));
        }
    }
    None
}

/// The seed of `LEASEHOLD_SEED`: a number, or `random`; 1 if there is none.
pub(crate) fn seed() -> Result<u64> {
    match std::env::var("LEASEHOLD_SEED").ok().as_deref() {
        None => Ok(1),
        Some("random") => {
            let id = LeaseId::mint()?;
            Ok(id
                .to_bytes()
                .iter()
                .fold(0, |seed: u64, byte| seed.wrapping_mul(31).wrapping_add(u64::from(*byte))))
        }
        Some(seed) => Ok(seed.parse()?),
    }
}

fn operations() -> Result<Option<usize>> {
    match std::env::var("LEASEHOLD_ORACLE_OPERATIONS") {
        Ok(count) => Ok(Some(count.parse()?)),
        Err(_) => Ok(None),
    }
}
