//! Clients in PHP and clients of ours that contend for some keys, under the checker of histories.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::iter::zip;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use leasehold_conformance::history::{Belief, History, check};
use leasehold_core::{Claims, Clock as _, Mode};
use leasehold_driver::nene::NeneConfig;
use leasehold_driver::{SystemClock, TokioClock};

use super::{Acquired, Database, Php, Write};
use crate::contender::Habit;
use crate::crowd::{Crowd, Tally};
use crate::requests::{id, key};

/// How long ours wait before they look again whether a row that they took over was overwritten. A PHP client that writes
/// later than this after its look may overwrite it unseen.
const SETTLE: Duration = Duration::from_millis(500);
/// How much later than the end of its row, in seconds, a client of ours takes it over from another, with equal clocks.
const MARGIN: f64 = 1.0;
const KEYS: usize = 8;
/// The longest pause of a holder, in milliseconds: one of each side holds a key for a moment, one longer than its row lasts.
const HOLD: [u64; 2] = [120, 3_500];

/// How long both sides contend.
pub fn duration() -> Duration {
    let minutes = if crate::all() { 10 } else { 1 };
    Duration::from_secs(60 * minutes)
}

/// What both sides believed, and what nobody can exclude, as the page of the format shows.
#[derive(Debug, Default)]
pub struct Contest {
    ours: Tally,
    /// What PHP clients believed, apart from what follows.
    theirs: usize,
    /// Expired rows that clients of ours took over.
    taken_over: usize,
    /// Rows of ours that a PHP client overwrote in time for the second look.
    seen: usize,
    /// Rows of ours that a PHP client overwrote too late for it.
    late: usize,
    /// Rows of ours that a PHP client overwrote which had read the row before, that was removed since.
    added: usize,
    /// Rows of PHP clients that another one overwrote.
    each_other: usize,
    /// PHP clients that believed although they had changed no row.
    without: usize,
    /// Beside these.
    overlaps: usize,
}

impl Contest {
    /// Fails if too little happened to tell anything.
    pub fn is_telling(&self) {
        let Self { ours, theirs, taken_over, .. } = self;
        let is_telling = ours.grants >= 20 && ours.beliefs >= 10 && *theirs >= 8;
        assert!(is_telling && *taken_over > 0, "{self}");
    }
}

impl fmt::Display for Contest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ours, theirs, taken_over, seen, late, added, each_other, without, overlaps } =
            self;
        write!(
            f,
            "ours: {ours}, {taken_over} expired rows taken over, {seen} overwritten and seen; "
        )?;
        write!(f, "PHP: {theirs} beliefs; apart: overwritten by PHP: {late} of ours too late, ")?;
        write!(f, "{added} of ours that were added, {each_other} of PHP; ")?;
        write!(f, "{without} of PHP without a row; {overlaps} overlaps of these")
    }
}

/// Lets clients of both sides contend for some keys, and fails if the rules allow one overlap. Beside a trigger (`guard`)
/// nobody can overwrite a row that has not ended, and so nobody is excused for it.
pub async fn contend<D: Database>(guard: bool, duration: Duration) -> Contest {
    let database = D::new().await;
    let config = NeneConfig::default().skew(Duration::ZERO).settle(SETTLE).guard(guard);
    let keys = (0..KEYS).map(|nth| format!("job {nth}"));
    let contended: Vec<String> = keys.flat_map(|key| vec![key; HOLD.len()]).collect();
    let mut ours = Vec::new();
    for (resource, hold) in zip(&contended, HOLD.into_iter().cycle()) {
        let claims = Claims::one(key(resource), Mode::Exclusive);
        let habit = Habit { claims, term: Duration::from_secs(1), hold, rest: 100 };
        ours.push((database.open_table(config.clone()).await, habit));
    }
    let mut watching = database.php();
    watching.watches();
    let crowd = Crowd::start(ours);
    let is_over = Arc::new(AtomicBool::new(false));
    let contenders: Vec<JoinHandle<Vec<Theirs>>> =
        zip(0.., zip(contended, HOLD.into_iter().cycle()))
            .map(|(nth, (resource, hold))| {
                let contender =
                    Contender::new(nth, resource, hold, database.php(), crowd.instants());
                let is_over = Arc::clone(&is_over);
                std::thread::spawn(move || contender.contend(&is_over))
            })
            .collect();
    let clock = TokioClock::new();
    clock.sleep_until(clock.now() + duration).await;
    is_over.store(true, Ordering::SeqCst);
    let (history, _) = crowd.stop().await;
    let theirs = contenders.into_iter().flat_map(|contender| contender.join().unwrap()).collect();
    judge(history, theirs, &watching.writes(), guard)
}

/// An acquire of a PHP client that returned true.
#[derive(Debug)]
struct Theirs {
    owner: String,
    acquired: Acquired,
    /// What it believed, unless it learned of the grant after its end.
    belief: Option<Belief>,
}

/// A client that overwrote the row of another before it had ended.
#[derive(Debug)]
struct Robbery<'w> {
    robber: &'w str,
    /// The victim had added its row, and not taken one over.
    was_added: bool,
}

/// How many expired rows clients of ours took over, and the robberies, by their victims. Fails where the robber is ours.
fn robberies(writes: &[Write]) -> (usize, HashMap<&str, Robbery<'_>>) {
    let (mut taken_over, mut robberies) = (0, HashMap::new());
    let mut added = HashSet::new();
    for write in writes {
        match (&write.old, write.new.as_deref()) {
            (None, Some(new)) => drop(added.insert(new)),
            (Some((old, end)), Some(new)) if old != new => {
                if !is_php(new) {
                    assert!(write.at >= end + MARGIN, "ours took a row over too early: {write:?}");
                    taken_over += 1;
                } else if write.at < *end {
                    let was_added = added.contains(old.as_str());
                    robberies.insert(old.as_str(), Robbery { robber: new, was_added });
                }
            }
            _ => {}
        }
    }
    (taken_over, robberies)
}

fn judge(mut history: History, theirs: Vec<Theirs>, writes: &[Write], guard: bool) -> Contest {
    let (taken_over, robberies) = robberies(writes);
    assert!(!guard || robberies.is_empty(), "beside the trigger: {robberies:?}");
    let mut contest = Contest { ours: Tally::of(&history), taken_over, ..Contest::default() };
    let is_late = |robber: &str| {
        let robber = theirs.iter().find(|one| one.owner == robber);
        // Nobody knows when a write ended that an exception answered.
        robber.is_none_or(|robber| robber.acquired.after >= SETTLE)
    };
    let believed: HashSet<String> = history.beliefs.iter().map(|one| one.id.to_string()).collect();
    for (victim, robbery) in robberies.iter().filter(|(victim, _)| !is_php(victim)) {
        match robbery {
            Robbery { was_added: true, .. } => contest.added += 1,
            Robbery { robber, .. } if is_late(robber) => contest.late += 1,
            Robbery { robber, .. } => {
                let saw = !believed.contains(*victim);
                assert!(saw, "{victim} did not see that {robber} had overwritten it");
                contest.seen += 1;
            }
        }
    }
    let (mut excused, mut beliefs): (Vec<_>, Vec<_>) =
        history.beliefs.into_iter().partition(|ours| {
            let robbery = robberies.get(ours.id.to_string().as_str());
            robbery.is_some_and(|robbery| robbery.was_added || is_late(robbery.robber))
        });
    let owners: HashSet<&str> = writes.iter().filter_map(|write| write.new.as_deref()).collect();
    for Theirs { owner, belief, .. } in &theirs {
        let Some(belief) = belief.clone() else { continue };
        if !owners.contains(owner.as_str()) {
            contest.without += 1;
            excused.push(belief);
        } else if robberies.contains_key(owner.as_str()) {
            contest.each_other += 1;
            excused.push(belief);
        } else {
            contest.theirs += 1;
            beliefs.push(belief);
        }
    }
    history.beliefs = beliefs;
    let violations = check(&history);
    if let Some(violation) = violations.first() {
        println!("ours: {:?}\nPHP: {theirs:?}\nwrites: {writes:?}", history.beliefs);
        panic!("{contest}: {} violations: {violation}", violations.len());
    }
    history.beliefs.extend(excused);
    contest.overlaps = check(&history).len();
    contest
}

/// Ids of ours have no spaces.
fn is_php(owner: &str) -> bool {
    owner.starts_with("php ")
}

/// A worker in PHP.
struct Contender {
    nth: u64,
    resource: String,
    hold: u64,
    php: Php,
    instant: Arc<AtomicU64>,
    random: fastrand::Rng,
    acquired: Vec<Theirs>,
}

impl Contender {
    fn new(nth: u64, resource: String, hold: u64, php: Php, instant: Arc<AtomicU64>) -> Self {
        let random = fastrand::Rng::with_seed(nth);
        Self { nth, resource, hold, php, instant, random, acquired: Vec::new() }
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
            // Sometimes it is away for so long that ours find an expired row first.
            let most = if self.random.bool() { 30 } else { 3_000 };
            self.pause(most);
        }
        self.acquired
    }

    /// Holds the lock as long as its own clock shows, if it gets it.
    fn attempt(&mut self, owner: &str) {
        let resource = self.resource.clone();
        let ttl = self.random.u64(1..=2);
        // It is stopped between its look and its write, and sometimes for longer than ours wait.
        let stop = Duration::from_millis(self.random.u64(..800));
        let ends = seconds() + ttl;
        // An exception is a grant to nobody.
        let acquired = self.php.acquires(&resource, owner, ttl, stop);
        let Ok(Some(acquired)) = acquired else { return };
        let belief = self.hold(owner, ttl, ends);
        self.acquired.push(Theirs { owner: owner.to_owned(), acquired, belief });
    }

    /// What it believes from now on; nothing if its term has ended already.
    fn hold(&mut self, owner: &str, ttl: u64, mut ends: u64) -> Option<Belief> {
        let resource = self.resource.clone();
        let from = self.instant();
        if seconds() >= ends {
            return None;
        }
        let mut until = from;
        for _ in 0..self.random.u64(1..8) {
            self.pause(self.hold);
            let looked = self.instant();
            if seconds() >= ends {
                break;
            }
            until = looked;
            if self.random.bool() {
                let began = seconds();
                if !self.php.renews(&resource, owner, ttl) {
                    break;
                }
                ends = began + ttl;
            }
        }
        // Some die.
        if self.random.u64(..4) > 0 {
            self.php.releases(&resource, owner);
        }
        let claims = Claims::one(key(&resource), Mode::Exclusive);
        Some(Belief::new(id(owner), claims, from, until))
    }
}

/// The clock of the host, as PHP reads it.
fn seconds() -> u64 {
    SystemClock::new().wall_micros() / 1_000_000
}
