//! Clients that contend beside each other, and how much they saw.
#![expect(clippy::disallowed_methods, reason = "clients run at the same time")]

use std::fmt;
use std::ops::AddAssign;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use leasehold_conformance::history::{Answer, History};
use leasehold_core::Store;
use leasehold_driver::TokioClock;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::contender::{Contender, Habit};
use crate::in_time;

/// Clients that contend until they are stopped.
#[must_use]
pub struct Crowd<S> {
    running: Vec<JoinHandle<Contender<S>>>,
    is_over: Arc<AtomicBool>,
    grants: watch::Sender<u64>,
    instant: Arc<AtomicU64>,
}

impl<S: Store + Send + 'static> Crowd<S> {
    pub fn start(clients: impl IntoIterator<Item = (S, Habit)>) -> Self {
        let (is_over, grants) = (Arc::new(AtomicBool::new(false)), watch::Sender::new(0));
        let (instant, clock) = (Arc::new(AtomicU64::new(1)), TokioClock::new());
        let running = (0..).zip(clients).map(|(seed, (store, habit))| {
            let random = fastrand::Rng::with_seed(seed);
            let mut client = Contender::new(store, habit, clock, random, &instant);
            let (is_over, grants) = (Arc::clone(&is_over), grants.clone());
            tokio::spawn(async move {
                while !is_over.load(Ordering::SeqCst) {
                    if client.attempt().await {
                        grants.send_modify(|grants| *grants += 1);
                    }
                }
                client
            })
        });
        let running = running.collect();
        Self { running, is_over, grants, instant }
    }

    /// The instants of its history, for clients of another kind.
    pub fn instants(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.instant)
    }

    /// Waits for this many more grants.
    pub async fn continues(&self, more: u64) {
        let mut grants = self.grants.subscribe();
        let enough = *grants.borrow() + more;
        in_time(grants.wait_for(|grants| *grants >= enough)).await.unwrap();
    }

    /// What all of them saw, and their stores.
    pub async fn stop(self) -> (History, Vec<S>) {
        self.is_over.store(true, Ordering::SeqCst);
        let (mut history, mut stores) = (History::new(Vec::new(), Vec::new()), Vec::new());
        for client in self.running {
            stores.push(in_time(client).await.unwrap().tell(&mut history));
        }
        (history, stores)
    }
}

/// How often clients saw what: without contention and without faults a history proves nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tally {
    pub grants: usize,
    /// Renewals and repeated acquires that found the lease held.
    pub kept: usize,
    pub refused: usize,
    pub unanswered: usize,
    pub beliefs: usize,
}

impl Tally {
    pub fn of(history: &History) -> Self {
        let count =
            |is: fn(&Answer) -> bool| history.calls.iter().filter(|c| is(&c.answer)).count();
        Self {
            grants: count(|answer| matches!(answer, Answer::Granted { fresh: true, .. })),
            kept: count(|answer| {
                matches!(answer, Answer::Held | Answer::Granted { fresh: false, .. })
            }),
            refused: count(|answer| matches!(answer, Answer::Busy)),
            unanswered: count(|answer| matches!(answer, Answer::AcquireUnknown | Answer::Unknown)),
            beliefs: history.beliefs.len(),
        }
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.grants += other.grants;
        self.kept += other.kept;
        self.refused += other.refused;
        self.unanswered += other.unanswered;
        self.beliefs += other.beliefs;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { grants, kept, refused, unanswered, beliefs } = self;
        write!(
            f,
            "{grants} grants, {kept} kept, {refused} refused, {unanswered} unanswered, {beliefs} beliefs"
        )
    }
}
