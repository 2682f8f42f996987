//! Clients in PHP and clients of ours that contend for one key, under the checker of histories.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use leasehold_conformance::history::{Belief, History, check};
use leasehold_core::{Claims, Clock as _, Mode, Store};
use leasehold_driver::{SystemClock, TokioClock};

use super::{Acquired, Php};
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
    /// What they believed although they wrote late, changed no row, or may have overwritten each other.
    doubtful: usize,
    /// What ours believed while a PHP client wrote late.
    robbed: usize,
    /// Overlaps of such beliefs.
    overlaps: usize,
}

impl Contest {
    /// Fails if too little happened to tell anything.
    pub fn is_telling(&self) {
        let Self { ours, theirs, .. } = self;
        assert!(ours.grants >= 10 && ours.beliefs >= 10 && *theirs >= 10, "{self}");
    }
}

impl fmt::Display for Contest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ours, theirs, doubtful, robbed, overlaps } = self;
        write!(f, "ours: {ours}; PHP: {theirs} beliefs; apart: {doubtful} doubtful ones of PHP, ")?;
        write!(f, "{robbed} of ours beside a late write, {overlaps} overlaps")
    }
}

/// Lets clients of both sides contend for one key, and fails if the rules allow one overlap. Beside a trigger (`guard`)
/// nobody can overwrite a row that has not ended, and so nobody is excused for it.
pub async fn contend<S: Store + Send + 'static>(
    stores: Vec<S>,
    clients: Vec<Php>,
    guard: bool,
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
    judge(history, theirs, guard)
}

/// What a PHP client believed.
#[derive(Debug)]
struct Theirs {
    belief: Belief,
    /// Before it looked at the row, and after it had left it.
    within: (u64, u64),
    acquired: Acquired,
    /// It heard of the grant before that had ended.
    is_in_time: bool,
}

impl Theirs {
    fn is_late(&self) -> bool {
        self.acquired.after >= SETTLE
    }

    /// Both may have found the same row expired, and the second has overwritten the first.
    fn meets(&self, other: &Self) -> bool {
        self.within.0 <= other.within.1 && other.within.0 <= self.within.1
    }

    /// Whether it can have overwritten somebody, or been overwritten.
    fn is_doubtful(&self, all: &[Self]) -> bool {
        let meets = |other: &Self| other.belief.id != self.belief.id && self.meets(other);
        self.is_late() || all.iter().any(meets)
    }

    /// It may have overwritten the row of this belief of ours.
    fn robs(&self, ours: &Belief) -> bool {
        self.is_late() && self.within.0 <= ours.until && ours.from <= self.within.1
    }
}

fn judge(mut history: History, theirs: Vec<Theirs>, guard: bool) -> Contest {
    let ours = Tally::of(&history);
    let robbed = |belief: &Belief| !guard && theirs.iter().any(|one| one.robs(belief));
    let (robbed, sure): (Vec<_>, Vec<_>) = history.beliefs.into_iter().partition(robbed);
    let (doubtful, sound): (Vec<_>, Vec<_>) = theirs.iter().partition(|one| {
        !one.is_in_time || !one.acquired.wrote || !guard && one.is_doubtful(&theirs)
    });
    let beliefs = |theirs: &[&Theirs]| -> Vec<Belief> {
        theirs.iter().map(|one| one.belief.clone()).collect()
    };
    history.beliefs = [sure, beliefs(&sound)].concat();
    let violations = check(&history);
    let mut contest = Contest {
        ours,
        theirs: sound.len(),
        doubtful: doubtful.len(),
        robbed: robbed.len(),
        overlaps: 0,
    };
    if let Some(violation) = violations.first() {
        println!("ours: {:?}\nPHP: {theirs:?}\napart: {robbed:?}", history.beliefs);
        panic!("{contest}: {} violations: {violation}", violations.len());
    }
    history.beliefs.extend(robbed);
    history.beliefs.extend(beliefs(&doubtful));
    contest.overlaps = check(&history).len();
    contest
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
        let (before, mut ends) = (self.instant(), seconds() + ttl);
        // An exception is a grant to nobody.
        let Ok(Some(acquired)) = self.php.acquires("job", owner, ttl) else { return };
        let from = self.instant();
        let mut until = from;
        let is_in_time = seconds() < ends;
        for _ in 0..self.random.u64(1..8) {
            if !is_in_time {
                break;
            }
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
        let belief = Belief::new(id(owner), claims, from, until);
        let within = (before, self.instant());
        self.beliefs.push(Theirs { belief, within, acquired, is_in_time });
    }
}

/// The clock of the host, as PHP reads it.
fn seconds() -> u64 {
    SystemClock::new().wall_micros() / 1_000_000
}
