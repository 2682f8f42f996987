//! Clients in PHP and clients of ours that contend for one key, under the checker of histories.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use leasehold_conformance::history::{Belief, History, check};
use leasehold_core::{Claims, Clock as _, LeaseId, Mode, Store};
use leasehold_driver::{SystemClock, TokioClock};

use super::Php;
use crate::contender::Habit;
use crate::crowd::{Crowd, Tally};
use crate::requests::{id, key};

/// A PHP client that writes later than this after its look may overwrite whoever took the row over meanwhile.
pub const SETTLE: Duration = Duration::from_millis(500);

/// How long both sides contend.
pub fn duration() -> Duration {
    let minutes = if crate::all() { 10 } else { 1 };
    Duration::from_secs(60 * minutes)
}

/// What both sides believed, and what the page of the format says that nobody can exclude.
#[derive(Debug)]
pub struct Contest {
    ours: Tally,
    /// What PHP clients believed that nothing they did makes doubtful.
    theirs: usize,
    /// What they believed although they wrote late, changed no row, or overwrote each other.
    doubtful: usize,
    /// Overlaps in which such a belief takes part.
    overlaps: usize,
}

impl Contest {
    /// Fails if too little happened to tell anything.
    pub fn is_telling(&self) {
        let Self { ours, theirs, doubtful, .. } = self;
        assert!(ours.grants >= 10 && ours.beliefs >= 10 && *theirs >= 10, "{self}");
        assert!(doubtful < theirs, "{self}");
    }
}

impl fmt::Display for Contest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ours, theirs, doubtful, overlaps } = self;
        write!(
            f,
            "ours: {ours}; PHP: {theirs} beliefs, and {doubtful} doubtful ones with {overlaps} overlaps"
        )
    }
}

/// Lets clients of both sides contend for one key, and fails if the rules allow one overlap.
pub async fn contend<S: Store + Send + 'static>(
    stores: Vec<S>,
    clients: Vec<Php>,
    duration: Duration,
) -> Contest {
    let claims = Claims::one(key("job"), Mode::Exclusive);
    let habit = Habit { claims, term: Duration::from_secs(1), hold: 60, rest: 30 };
    let crowd = Crowd::start(stores.into_iter().map(|store| (store, habit.clone())));
    let is_over = Arc::new(AtomicBool::new(false));
    let contenders: Vec<JoinHandle<Vec<Theirs>>> = (0..)
        .zip(clients)
        .map(|(nth, php)| {
            let (instant, is_over) = (crowd.instants(), Arc::clone(&is_over));
            std::thread::spawn(move || Contender::new(nth, php, instant).contend(&is_over))
        })
        .collect();
    let clock = TokioClock::new();
    clock.sleep_until(clock.now() + duration).await;
    is_over.store(true, Ordering::SeqCst);
    let (history, _) = crowd.stop().await;
    let theirs = contenders.into_iter().flat_map(|contender| contender.join().unwrap()).collect();
    judge(history, theirs)
}

/// What a PHP client believed.
#[derive(Debug)]
struct Theirs {
    belief: Belief,
    /// It wrote at once, and changed a row.
    is_sound: bool,
}

fn judge(mut history: History, mut theirs: Vec<Theirs>) -> Contest {
    let overwritten = overwritten(&theirs);
    for one in &mut theirs {
        one.is_sound &= !overwritten.contains(&one.belief.id);
    }
    let (sound, doubtful): (Vec<_>, Vec<_>) = theirs.into_iter().partition(|one| one.is_sound);
    let contest = |overlaps| Contest {
        ours: Tally::of(&history),
        theirs: sound.len(),
        doubtful: doubtful.len(),
        overlaps,
    };
    let mut contest = contest(0);
    history.beliefs.extend(sound.into_iter().map(|one| one.belief));
    let violations = check(&history);
    assert!(violations.is_empty(), "{contest}: {} violations: {}", violations.len(), violations[0]);
    history.beliefs.extend(doubtful.into_iter().map(|one| one.belief));
    contest.overlaps = check(&history).len();
    contest
}

/// Those who believed at the same time: each found the same row expired, and overwrote it.
fn overwritten(theirs: &[Theirs]) -> HashSet<LeaseId> {
    let mut beliefs: Vec<&Belief> = theirs.iter().map(|one| &one.belief).collect();
    beliefs.sort_by_key(|belief| belief.from);
    let mut found = HashSet::new();
    for (nth, belief) in beliefs.iter().enumerate() {
        for later in beliefs[nth + 1..].iter().take_while(|later| later.from <= belief.until) {
            found.extend([belief.id.clone(), later.id.clone()]);
        }
    }
    found
}

/// A worker in PHP.
struct Contender {
    nth: u64,
    php: Php,
    instant: Arc<AtomicU64>,
    random: fastrand::Rng,
    beliefs: Vec<Theirs>,
}

impl Contender {
    fn new(nth: u64, php: Php, instant: Arc<AtomicU64>) -> Self {
        let random = fastrand::Rng::with_seed(nth);
        Self { nth, php, instant, random, beliefs: Vec::new() }
    }

    fn instant(&self) -> u64 {
        self.instant.fetch_add(1, Ordering::SeqCst)
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "a thread of its own, as PHP is a process of its own"
    )]
    fn pause(&mut self, most: u64) {
        std::thread::sleep(Duration::from_millis(self.random.u64(1..=most)));
    }

    fn contend(mut self, is_over: &AtomicBool) -> Vec<Theirs> {
        let mut attempt = 0;
        while !is_over.load(Ordering::SeqCst) {
            attempt += 1;
            self.attempt(&format!("php {}, {attempt}", self.nth));
            self.pause(30);
        }
        self.beliefs
    }

    /// Holds the lock as long as its own clock says, if it gets it.
    fn attempt(&mut self, owner: &str) {
        let ttl = self.random.u64(1..=2);
        let mut ends = seconds() + ttl;
        // An exception is a grant to nobody.
        let Ok(Some(acquired)) = self.php.acquires("job", owner, ttl) else { return };
        let from = self.instant();
        let mut until = from;
        for _ in 0..self.random.u64(1..8) {
            self.pause(60);
            let looked = self.instant();
            if seconds() >= ends {
                break;
            }
            until = looked;
            if self.random.bool() {
                let began = seconds();
                if !self.php.renews("job", owner, ttl) {
                    break;
                }
                ends = began + ttl;
            }
        }
        // Some die.
        if self.random.u64(..12) > 0 {
            self.php.releases("job", owner);
        }
        let claims = Claims::one(key("job"), Mode::Exclusive);
        let is_sound = acquired.wrote && acquired.after < SETTLE;
        self.beliefs.push(Theirs { belief: Belief::new(id(owner), claims, from, until), is_sound });
    }
}

/// The clock of the host, as PHP reads it.
fn seconds() -> u64 {
    SystemClock::new().wall_micros() / 1_000_000
}
