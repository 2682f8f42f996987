//! Clients that contend for one key while every request meets a fault of its own, judged by the checker of
//! histories: one holder by its own clock, tokens that grow, no lease that comes back.
//!
//! On paused time, from seeds: what fails, fails again with its seed alone.

#![expect(clippy::disallowed_methods, clippy::unwrap_used, reason = "clients run at the same time")]

mod faulty;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use faulty::{Cluster, Way, claims, key, ms, release, ttl};
use leasehold_conformance::history::{Answer, Belief, Call, History, Violation, check};
use leasehold_core::term::Drift;
use leasehold_core::{
    Acquire, Acquired, Clock, Evict, FencingToken, Filter, Granted, LeaseId, LeaseReleased,
    LeaseRenewed, Remaining, Renew, Renewal, Store,
};
use leasehold_driver::TokioClock;
use leasehold_quorum::QuorumStore;

const TERM: Duration = Duration::from_secs(2);
const NOTHING: Remaining = Remaining::For(Duration::ZERO);
const CLIENTS: u64 = 4;
const ATTEMPTS: u64 = 25;

/// SplitMix64.
#[derive(Debug, Clone)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// Most requests get through; the others fail, or act late, or answer late, up to far beyond the term.
fn draw(random: &mut Random, faults: u64) -> Way {
    if random.below(100) >= faults {
        return Way::SlowReply(ms(random.below(4)));
    }
    match random.below(6) {
        0 | 1 => Way::Down,
        2 => Way::SlowRequest(ms(random.below(150))),
        3 => Way::SlowRequest(ms(random.below(6_000))),
        4 => Way::SlowReply(ms(random.below(150))),
        _ => Way::SlowReply(ms(random.below(6_000))),
    }
}

/// What a client was granted. It is known to the checker under a name of its own.
struct Grant {
    known: LeaseId,
    token: Option<FencingToken>,
    remaining: Remaining,
}

struct Client {
    store: QuorumStore,
    clock: TokioClock,
    random: Random,
    instant: Arc<AtomicU64>,
    calls: Vec<Call>,
    beliefs: Vec<Belief>,
}

impl Client {
    fn instant(&self) -> u64 {
        self.instant.fetch_add(1, Ordering::SeqCst)
    }

    async fn pause(&mut self, most: u64) {
        tokio::time::sleep(ms(1 + self.random.below(most))).await;
    }

    fn call(&mut self, id: &LeaseId, invoked: u64, answer: Answer) {
        let returned = self.instant();
        self.calls.push(Call::new(id.clone(), claims(), invoked, returned, answer));
    }

    /// Whoever goes away meanwhile has no answer, and releases.
    async fn acquire(&mut self, request: &Acquire, known: &LeaseId) -> Option<Grant> {
        let invoked = self.instant();
        let patience = if self.random.below(8) == 0 { ms(self.random.below(100)) } else { TERM };
        let answer = tokio::time::timeout(patience, self.store.acquire(request)).await;
        let mut known = known.clone();
        let (answer, grant) = match answer {
            Ok(Ok(Acquired::Granted(Granted { token, remaining, fresh, .. }))) => {
                // A lease that no majority was seen to hold any more is another, of the same id.
                if fresh && request.is_again().is_some() {
                    known = LeaseId::mint().unwrap();
                }
                let grant = Grant { known: known.clone(), token, remaining };
                (Answer::Granted { token, fresh }, Some(grant))
            }
            // That of a split vote needs no holder.
            Ok(Ok(Acquired::Refused(_))) => (Answer::Busy, None),
            Ok(Err(_)) | Err(_) => (Answer::AcquireUnknown, None),
        };
        self.call(&known, invoked, answer);
        grant
    }

    async fn release(&mut self, id: &LeaseId, known: &LeaseId) {
        let invoked = self.instant();
        let answer = match self.store.release(&release(id)).await {
            Ok(released) => match released.leases[0] {
                LeaseReleased::Released | LeaseReleased::Kept(_) => Answer::Released,
                LeaseReleased::Expired | LeaseReleased::NotHeld => Answer::Ended,
                LeaseReleased::Failed(_) => Answer::Unknown,
            },
            Err(_) => Answer::Unknown,
        };
        self.call(known, invoked, answer);
    }

    /// What the renewal found to be left: nothing new if it failed, `None` if the lease is lost.
    async fn renew(&mut self, id: &LeaseId, grant: &Grant) -> Option<Remaining> {
        let invoked = self.instant();
        let mut renewal = Renewal::extend(id.clone(), claims(), ttl(TERM));
        if let Some(token) = grant.token {
            renewal = renewal.with_token(token);
        }
        let answer = self.store.renew(&Renew::new(vec![renewal])).await;
        let (answer, remaining) = match answer.map(|mut renewed| renewed.leases.remove(0)) {
            Ok(LeaseRenewed::Held(remaining)) => (Answer::Held, Some(remaining)),
            Ok(LeaseRenewed::Lost(_)) => (Answer::Lost, None),
            Ok(LeaseRenewed::Failed(_)) | Err(_) => (Answer::Unknown, Some(NOTHING)),
        };
        self.call(&grant.known, invoked, answer);
        remaining
    }

    /// As the front end holds a lease: it believes until its own deadline and no longer.
    async fn hold(&mut self, id: &LeaseId, mut grant: Grant, mut deadline: Duration) -> LeaseId {
        let drift = Drift::default();
        let mut from = self.instant();
        let mut until = from;
        for _ in 0..self.random.below(6) {
            self.pause(900).await;
            let sent = self.clock.now();
            let looked = self.instant();
            if sent >= deadline {
                break;
            }
            until = looked;
            let remaining = if self.random.below(3) == 0 {
                let again = Acquire::new(id.clone(), claims(), ttl(TERM)).again(grant.token);
                match self.acquire(&again, &grant.known).await {
                    Some(new) if new.known != grant.known => {
                        self.beliefs.push(Belief::new(grant.known, claims(), from, until));
                        let remaining = new.remaining;
                        grant = new;
                        deadline = drift.deadline(sent, remaining).unwrap_or_default();
                        if self.clock.now() >= deadline {
                            return grant.known;
                        }
                        from = self.instant();
                        until = from;
                        continue;
                    }
                    same => Some(same.map_or(NOTHING, |grant| grant.remaining)),
                }
            } else {
                self.renew(id, &grant).await
            };
            let Some(remaining) = remaining else { break };
            // A reply that comes after the deadline is not believed.
            if self.clock.now() >= deadline {
                break;
            }
            deadline = deadline.max(drift.deadline(sent, remaining).unwrap_or_default());
        }
        self.beliefs.push(Belief::new(grant.known.clone(), claims(), from, until));
        grant.known
    }

    async fn run(mut self) -> Self {
        for _ in 0..ATTEMPTS {
            let id = LeaseId::mint().unwrap();
            let sent = self.clock.now();
            let request = Acquire::new(id.clone(), claims(), ttl(TERM));
            match self.acquire(&request, &id).await {
                Some(grant) => {
                    let deadline = Drift::default().deadline(sent, grant.remaining);
                    let deadline = deadline.unwrap_or_default();
                    let mut known = grant.known.clone();
                    if self.clock.now() < deadline {
                        known = self.hold(&id, grant, deadline).await;
                    }
                    if self.random.below(4) > 0 {
                        self.release(&id, &known).await;
                    }
                }
                None => self.release(&id, &id).await,
            }
            self.pause(600).await;
        }
        self
    }
}

/// What is done to the nodes.
#[derive(Debug, Clone, Copy)]
struct Trial {
    nodes: usize,
    fenced: bool,
    /// One after the other is started again without its memory, and then grants nothing for so long.
    restarts: Option<Duration>,
}

/// What the clients saw, of whose requests so many of a hundred met a fault.
async fn history(trial: Trial, seed: u64, faults: u64) -> History {
    let Trial { nodes, fenced, restarts } = trial;
    let cluster = Cluster::new(nodes, fenced);
    let mut random = Random(seed);
    for node in &cluster.nodes {
        let mut random = Random(random.next());
        node.draw(Some(Box::new(move || draw(&mut random, faults))));
    }
    let instant = Arc::new(AtomicU64::new(1));
    let mut running = Vec::new();
    for _ in 0..CLIENTS {
        let client = Client {
            store: cluster.another(|config| config.fenced(fenced)),
            clock: cluster.clock,
            random: Random(random.next()),
            instant: Arc::clone(&instant),
            calls: Vec::new(),
            beliefs: Vec::new(),
        };
        running.push(tokio::spawn(client.run()));
    }
    let restarting = tokio::spawn({
        let nodes = cluster.nodes.clone();
        async move {
            let Some(quarantine) = restarts else { return };
            for node in nodes.iter().cycle() {
                tokio::time::sleep(ms(500 + random.below(3_000))).await;
                node.restart(quarantine);
            }
        }
    });
    let mut history = History::new(Vec::new(), Vec::new());
    let mut stores = Vec::new();
    for client in running {
        let client = client.await.unwrap();
        history.calls.extend(client.calls);
        history.beliefs.extend(client.beliefs);
        stores.push(client.store);
    }
    restarting.abort();
    for store in stores {
        store.settled().await;
        assert_eq!(store.remembered(), 0, "what is answered is forgotten");
    }
    // Nothing but what was never released is left, and that only until its term.
    cluster.nodes.iter().for_each(|node| node.draw(None));
    tokio::time::sleep(TERM).await;
    cluster.store.evict(&Evict::expired(Filter::default().with_key(key()))).await.unwrap();
    faulty::grant(&cluster.store, &faulty::id("last")).await;
    history
}

fn faults(seed: u64) -> u64 {
    [10, 25, 45][usize::try_from(seed % 3).unwrap()]
}

async fn judge(trial: Trial, seeds: u64) {
    let (mut grants, mut beliefs, mut kept, mut unanswered) = (0, 0, 0, 0);
    for seed in 0..seeds {
        let history = history(trial, seed, faults(seed)).await;
        let found = check(&history);
        assert!(found.is_empty(), "{trial:?}, seed {seed}: {found:?}");
        let count =
            |is: fn(&Answer) -> bool| history.calls.iter().filter(|c| is(&c.answer)).count();
        grants += count(|answer| matches!(answer, Answer::Granted { fresh: true, .. }));
        kept +=
            count(|answer| matches!(answer, Answer::Held | Answer::Granted { fresh: false, .. }));
        unanswered += count(|answer| matches!(answer, Answer::AcquireUnknown | Answer::Unknown));
        beliefs += history.beliefs.len();
    }
    println!(
        "{trial:?}: {seeds} histories, {grants} grants, {beliefs} beliefs, {kept} kept, \
         {unanswered} unanswered"
    );
    // A run without contention or without faults shows nothing.
    let least = 5 * usize::try_from(seeds).unwrap();
    assert!(grants > least && kept > least && unanswered > least);
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

/// What the others would miss if they could not see it.
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
