//! Clients of both sides contend for some keys, renewing, purging and collecting, under the checker of histories.
#![expect(clippy::disallowed_methods, reason = "clients run at the same time")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use leasehold_conformance::history::{Belief, check};
use leasehold_core::{Claims, Clock as _, EvictRequest, Filter, Mode, Store as _};
use leasehold_driver::{SystemClock, TokioClock};
use leasehold_mongodb::{MongodbConfig, MongodbStore};
use leasehold_testkit::contender::Habit;
use leasehold_testkit::crowd::{Crowd, Tally};
use leasehold_testkit::mongodb::mongo_lock::{LockDetails, MongoLock, MongoLockError};
use leasehold_testkit::mongodb::{DATABASE, Server};
use leasehold_testkit::requests::{id, key};

const KEYS: usize = 12;
/// What the store allows for, and by how much clocks of the other side differ, in milliseconds.
const SKEW: &str = "500ms";
const AHEAD: [i64; 2] = [400, -400];
/// The longest pauses of holders, in milliseconds: for a moment, and for almost a term of ours, which then is renewed late.
const HOLD: [u64; 2] = [100, 950];

/// A client of mongo-lock.
struct Theirs {
    nth: u64,
    go: MongoLock,
    ahead: i64,
    resource: String,
    mode: Mode,
    hold: u64,
    instant: Arc<AtomicU64>,
    random: fastrand::Rng,
    beliefs: Vec<Belief>,
    renewed: usize,
}

impl Theirs {
    fn instant(&self) -> u64 {
        self.instant.fetch_add(1, Ordering::SeqCst)
    }

    /// Its clock, in milliseconds.
    fn now(&self) -> i64 {
        i64::try_from(SystemClock::new().wall_micros() / 1_000).unwrap() + self.ahead
    }

    async fn pause(&mut self, most: u64) {
        tokio::time::sleep(Duration::from_millis(self.random.u64(1..=most))).await;
    }

    async fn contend(mut self, is_over: Arc<AtomicBool>) -> Self {
        let mut attempt = 0;
        while !is_over.load(Ordering::SeqCst) {
            attempt += 1;
            self.attempt(&format!("go {}, {attempt}", self.nth)).await;
            self.pause(60).await;
        }
        self
    }

    async fn attempt(&mut self, lock_id: &str) {
        let ttl = self.random.u32(1..=2);
        let details = LockDetails::ttl(ttl);
        let ends = self.now() + i64::from(ttl) * 1_000;
        let locked = match self.mode {
            Mode::Exclusive => self.go.x_lock(&self.resource, lock_id, &details).await,
            _ => self.go.s_lock(&self.resource, lock_id, &details, -1).await,
        };
        match locked {
            Ok(()) => self.hold(lock_id, ends).await,
            Err(MongoLockError::AlreadyLocked) => {}
            Err(error) => panic!("{error:?}"),
        }
    }

    /// Holds the lock as long as its own clock shows.
    async fn hold(&mut self, lock_id: &str, mut ends: i64) {
        let from = self.instant();
        if self.now() >= ends {
            return;
        }
        let mut until = from;
        for _ in 0..self.random.u64(1..6) {
            self.pause(self.hold).await;
            let looked = self.instant();
            let began = self.now();
            if began >= ends {
                break;
            }
            until = looked;
            if self.random.bool() {
                if self.go.renew(lock_id, 2).await.error.is_some() {
                    break;
                }
                self.renewed += 1;
                ends = began + 2_000;
            }
        }
        let claims = Claims::one(key(&self.resource), self.mode);
        self.beliefs.push(Belief::new(id(lock_id), claims, from, until));
        // Some die.
        if self.random.u64(..4) > 0 {
            let _ = self.go.unlock(lock_id).await.all().unwrap();
        }
    }
}

/// Purgers of both sides; how many locks each removed.
async fn purge(store: MongodbStore, go: MongoLock, is_over: Arc<AtomicBool>) -> (usize, usize) {
    let (mut ours, mut theirs) = (0, 0);
    let mut rounds = 0;
    while !is_over.load(Ordering::SeqCst) {
        tokio::time::sleep(Duration::from_millis(100)).await;
        rounds += 1;
        if rounds % 2 == 0 {
            theirs += go.purge().await.all().unwrap().len();
        } else {
            let expired = EvictRequest::expired(Filter::default()).with_limit(100);
            ours += store.evict(&expired).await.unwrap().removed.len();
        }
    }
    (ours, theirs)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_sides_contend_and_nobody_holds_beside_another() {
    let server = Server::start(&[]).await.unwrap();
    let (mut ours, mut theirs) = (0, 0);
    for ahead in AHEAD {
        let purged = contend(&server, ahead).await;
        ours += purged.0;
        theirs += purged.1;
    }
    assert!(ours + theirs > 0, "nothing was purged");
}

/// How many locks the purgers of both sides removed.
async fn contend(server: &Server, ahead: i64) -> (usize, usize) {
    let collection = format!("ahead{}", ahead.unsigned_abs() * 2 + u64::from(ahead < 0));
    let url = format!("{}?collection={collection}&skew={SKEW}&timeout=30s", server.url());
    let store = MongodbConfig::parse(&url).unwrap().connect().await.unwrap();
    store.prepare().await.unwrap();
    let collection = server.client().unwrap().database(DATABASE).collection(&collection);
    let go = MongoLock::new(collection, Arc::new(SystemClock::new())).ahead(ahead);
    let contended: Vec<_> = (0..KEYS)
        .flat_map(|nth| HOLD.map(|hold| (nth, hold)))
        .flat_map(|(nth, hold)| {
            // Shared holders seldom let an exclusive one in, so half of the keys have none.
            let other = if nth % 2 == 0 { Mode::Exclusive } else { Mode::SHARED };
            [Mode::Exclusive, other].map(|mode| (format!("job {nth}"), hold, mode))
        })
        .collect();
    let ours = contended.iter().map(|(resource, hold, mode)| {
        let claims = Claims::one(key(resource), *mode);
        let habit = Habit { claims, term: Duration::from_secs(1), hold: *hold, rest: 60 };
        (store.clone(), habit)
    });
    let crowd = Crowd::start(ours);
    let is_over = Arc::new(AtomicBool::new(false));
    let theirs = (0..).zip(contended.clone()).map(|(nth, (resource, hold, mode))| {
        let one = Theirs {
            nth,
            // A process of its own.
            go: go.ahead(ahead),
            ahead,
            resource,
            mode,
            hold,
            instant: crowd.instants(),
            random: fastrand::Rng::with_seed(nth),
            beliefs: Vec::new(),
            renewed: 0,
        };
        tokio::spawn(one.contend(Arc::clone(&is_over)))
    });
    let theirs: Vec<_> = theirs.collect();
    let purging = tokio::spawn(purge(store, go, Arc::clone(&is_over)));
    let clock = TokioClock::new();
    let minutes = if leasehold_testkit::all() { 10 } else { 1 };
    clock.sleep_until(clock.now() + Duration::from_secs(30 * minutes)).await;
    is_over.store(true, Ordering::SeqCst);
    let (mut history, _) = crowd.stop().await;
    let tally = Tally::of(&history);
    let (mut beliefs, mut renewed) = (0, 0);
    for one in theirs {
        let one = one.await.unwrap();
        beliefs += one.beliefs.len();
        renewed += one.renewed;
        history.beliefs.extend(one.beliefs);
    }
    let (purged, theirs) = purging.await.unwrap();
    println!("clocks {ahead} ms ahead; ours: {tally}, {purged} purged");
    println!("theirs: {beliefs} beliefs, {renewed} renewals, {theirs} purged");
    let violations = check(&history);
    assert!(violations.is_empty(), "{} violations: {}", violations.len(), violations[0]);
    let is_telling = tally.grants >= 100 && tally.kept >= 20 && beliefs >= 50 && renewed >= 1;
    assert!(is_telling, "too little happened");
    (purged, theirs)
}
