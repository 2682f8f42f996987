use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::ops::Bound;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use leasehold::store::{Clock, Store, SystemClock};
use leasehold::{FencingToken, LeaseId};
use leasehold_core::Random;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::runtime::Runtime;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::candidate::{MARK, ROLE, stand};
use super::judge::{EndedBy, Judge};
use super::{TTL, open};

const CANDIDATES: usize = 5;

/// How many leaders are ended at least.
fn kills() -> usize {
    if leasehold_testkit::all() { 200 } else { 50 }
}

/// How many of 100 successions must be in time. Among the few of a short run, beside other tests and on a slow
/// disk, the machine itself delays more of them.
fn share_in_time() -> usize {
    if leasehold_testkit::all() { 95 } else { 75 }
}

/// Longer than any election takes.
const LONG: Duration = Duration::from_secs(30);

/// How many of 100 candidates that are elected after a resignation must have sent one or two requests for it. On a slow disk a
/// node of a quorum answers later than its limit, which is below the term.
fn share_of_two_tries() -> usize {
    if leasehold_testkit::all() { 95 } else { 50 }
}

/// What the machine may add to a time: two cores with other load. In a short run, writes to a slow disk too; a waiter that nobody
/// wakes pauses for ten seconds.
fn noise() -> Duration {
    Duration::from_millis(if leasehold_testkit::all() { 300 } else { 1_500 })
}

/// A stopped process may hold the store's own lock (SQLite: it was inside a transaction); it is continued after
/// this long if nobody is elected.
const BLOCKED: Duration = Duration::from_secs(3);

/// Where the candidates run.
#[derive(Clone, Copy)]
pub(crate) enum Home {
    /// In this process.
    Tasks,
    /// Each in its own process: this binary again, with this test.
    Processes(&'static str),
}

/// Ends leader after leader of an election on the store at `url`, and judges the candidates' reports.
pub(crate) fn chaos(url: &str, home: Home) {
    let ways: &[EndedBy] = match home {
        Home::Tasks => &[EndedBy::Resign, EndedBy::Drop, EndedBy::Cut],
        Home::Processes(_) => {
            &[EndedBy::Resign, EndedBy::Drop, EndedBy::Cut, EndedBy::Kill, EndedBy::Stop]
        }
    };
    let started = now();
    let mut supervisor = Supervisor::new(url, home);
    let kills = kills();
    for kill in 0..kills {
        while !supervisor.end_one(ways[kill % ways.len()]) {
            supervisor.judge.spontaneous += 1;
        }
    }
    supervisor.finish();
    let judge = &supervisor.judge;
    println!("{url}: in {:.0} s, {judge}", (now() - started).as_secs_f64());

    judge.excludes();
    judge.saw(ways, kills, CANDIDATES);
    let wakes = supervisor.wakes;
    // Without wake-ups, a candidate pauses for at most 2.5 s.
    let retry = if wakes { Duration::ZERO } else { Duration::from_millis(2_500) };
    let drift = TTL / 100 + Duration::from_millis(2);
    let share = share_in_time();
    let expired = [EndedBy::Cut, EndedBy::Kill, EndedBy::Stop];
    judge.in_time(&expired, share, TTL + supervisor.margin + drift + retry + noise(), LONG);
    judge.in_time(&[EndedBy::Resign, EndedBy::Drop], share, retry + noise(), LONG);
    if wakes {
        judge.in_two_round_trips(share_of_two_tries());
    }
}

struct Supervisor {
    url: String,
    home: Home,
    wakes: bool,
    margin: Duration,
    runtime: Runtime,
    seats: Vec<Seat>,
    send: Sender<(usize, String)>,
    told: Receiver<(usize, String)>,
    random: Random,
    judge: Judge,
    elected: BTreeMap<FencingToken, Elected>,
    cuts: BTreeMap<FencingToken, Duration>,
    over: BTreeMap<FencingToken, Over>,
}

#[derive(Clone, Copy)]
struct Leader {
    candidate: usize,
    token: FencingToken,
}

enum Seat {
    Task(UnboundedSender<String>),
    Process(Child),
}

#[derive(Clone)]
struct Elected {
    leader: Leader,
    at: Duration,
    /// When it had requested it.
    asked: Vec<Duration>,
}

/// How a leadership ended.
#[derive(Clone)]
struct Over {
    how: String,
    /// When its store was cut off, if it was.
    cut: Option<Duration>,
    /// When it began to end, and when it had ended.
    began: Duration,
    at: Duration,
}

impl Supervisor {
    fn new(url: &str, home: Home) -> Self {
        let runtime = Runtime::new().unwrap();
        let (send, told) = channel();
        let can = runtime.block_on(open(url)).capabilities();
        let mut supervisor = Self {
            url: url.to_owned(),
            home,
            wakes: can.notifications,
            margin: can.margin,
            runtime,
            seats: Vec::new(),
            send,
            told,
            random: Random::seeded(),
            judge: Judge::default(),
            elected: BTreeMap::new(),
            cuts: BTreeMap::new(),
            over: BTreeMap::new(),
        };
        for number in 0..CANDIDATES {
            let seat = supervisor.seat(number);
            supervisor.seats.push(seat);
        }
        supervisor
    }

    fn seat(&self, number: usize) -> Seat {
        let send = self.send.clone();
        match self.home {
            Home::Tasks => {
                let (give, orders) = unbounded_channel();
                let tell = move |told| send.send((number, told)).unwrap_or_default();
                self.runtime.spawn(stand(self.url.clone(), number, orders, tell));
                Seat::Task(give)
            }
            Home::Processes(test) => {
                let mut process = Command::new(std::env::current_exe().unwrap())
                    .args(["--exact", &format!("election_chaos::{test}"), "--nocapture"])
                    .env(ROLE, format!("{test} {number} {}", self.url))
                    .stdin(Stdio::piped())
                    .stdout(Stdio::piped())
                    .spawn()
                    .unwrap();
                let lines = BufReader::new(process.stdout.take().unwrap()).lines();
                std::thread::spawn(move || {
                    for line in lines.map_while(Result::ok) {
                        if let Some((_, told)) = line.split_once(MARK) {
                            send.send((number, told.to_owned())).unwrap_or_default();
                        }
                    }
                });
                Seat::Process(process)
            }
        }
    }

    /// Ends a leader in this way and waits for the next; false if it lost the leadership by itself before that.
    fn end_one(&mut self, way: EndedBy) -> bool {
        let leader = self.somebody_who_leads();
        let (token, candidate) = (leader.token, leader.candidate);
        let (from, next) = match way {
            EndedBy::Resign | EndedBy::Drop => {
                self.order(leader, if way == EndedBy::Resign { "resign" } else { "drop" });
                let over = self.until_over(token);
                let next = self.next_leader(token, LONG);
                if over.how == "lost" {
                    return false;
                }
                if let (EndedBy::Resign, true, Some(next)) = (way, self.wakes, &next) {
                    self.judge.tried(next.asked.iter().filter(|at| **at >= over.began).count());
                }
                (over.at, next)
            }
            EndedBy::Cut => {
                self.order(leader, "cut");
                let over = self.until_over(token);
                let next = self.next_leader(token, LONG);
                match over.cut {
                    Some(cut) => (cut, next),
                    None => return false,
                }
            }
            EndedBy::Kill => {
                let from = now();
                let Seat::Process(process) = &mut self.seats[candidate] else { panic!("a task") };
                process.kill().unwrap();
                process.wait().unwrap();
                let next = self.next_leader(token, LONG);
                self.seats[candidate] = self.seat(candidate);
                (from, next)
            }
            EndedBy::Stop => {
                let from = now();
                self.signal(candidate, Signal::SIGSTOP);
                let next = self.next_leader(token, BLOCKED);
                self.signal(candidate, Signal::SIGCONT);
                self.until_over(token);
                if next.is_none() {
                    self.judge.blocked += 1;
                    return true;
                }
                (from, next)
            }
        };
        let next = next.unwrap_or_else(|| panic!("{way:?}: nobody is elected within {LONG:?}"));
        // It was lost before its end was sent.
        if matches!(way, EndedBy::Kill | EndedBy::Stop) && next.at < from {
            return false;
        }
        self.judge.taken_over(way, next.at.saturating_sub(from));
        true
    }

    /// A leader that has led for a while.
    fn somebody_who_leads(&mut self) -> Leader {
        loop {
            let newest = self.elected.keys().next_back().copied();
            let leads = newest.filter(|token| !self.over.contains_key(token));
            let Some(token) = leads.or_else(|| Some(self.next_leader(newest?, LONG)?.leader.token))
            else {
                self.listen(LONG).expect("somebody is elected");
                continue;
            };
            let until = now() + self.random.up_to(TTL / 2);
            while let Some(left) = until.checked_sub(now()).filter(|left| !left.is_zero()) {
                self.listen(left);
            }
            if !self.over.contains_key(&token) {
                return self.elected[&token].leader;
            }
            self.judge.spontaneous += 1;
        }
    }

    /// The leader that was elected after the one with `token`.
    fn next_leader(&mut self, token: FencingToken, limit: Duration) -> Option<Elected> {
        let after = (Bound::Excluded(token), Bound::Unbounded);
        self.until(limit, |told| told.elected.range(after).next().map(|(_, next)| next.clone()))
    }

    /// How the leader with `token` ended.
    fn until_over(&mut self, token: FencingToken) -> Over {
        let over = self.until(LONG, |told| told.over.get(&token).cloned());
        over.expect("it reports that it no longer leads")
    }

    fn until<T>(&mut self, limit: Duration, pick: impl Fn(&Self) -> Option<T>) -> Option<T> {
        let until = now() + limit;
        loop {
            if let Some(found) = pick(self) {
                return Some(found);
            }
            self.listen(until.checked_sub(now()).filter(|left| !left.is_zero())?);
        }
    }

    /// Receives one report, within `limit`.
    fn listen(&mut self, limit: Duration) -> Option<()> {
        let (candidate, told) = self.told.recv_timeout(limit).ok()?;
        self.note(candidate, &told);
        Some(())
    }

    fn note(&mut self, candidate: usize, told: &str) {
        let mut words = told.split(' ');
        let mut word = || words.next().unwrap_or_else(|| panic!("{told}"));
        let at = |nanos: &str| Duration::from_nanos(nanos.parse().unwrap());
        let what = word();
        let token = FencingToken::new(word().parse().unwrap()).unwrap();
        match what {
            "elected" => {
                let (id, from) = (LeaseId::foreign(word().as_bytes()).unwrap(), at(word()));
                self.judge.elected(candidate, token, id, from);
                let leader = Leader { candidate, token };
                let elected = Elected { leader, at: from, asked: words.map(at).collect() };
                self.elected.insert(token, elected);
            }
            "held" => self.judge.held(token, at(word())),
            "cut" => drop(self.cuts.insert(token, at(word()))),
            "over" => {
                let (how, cut) = (word().to_owned(), self.cuts.get(&token).copied());
                self.over.insert(token, Over { how, cut, began: at(word()), at: at(word()) });
            }
            _ => panic!("{told}"),
        }
    }

    fn order(&mut self, leader: Leader, what: &str) {
        let order = format!("{what} {}", leader.token);
        match &mut self.seats[leader.candidate] {
            Seat::Task(orders) => orders.send(order).unwrap(),
            Seat::Process(process) => writeln!(process.stdin.as_mut().unwrap(), "{order}").unwrap(),
        }
    }

    fn signal(&self, candidate: usize, signal: Signal) {
        let Seat::Process(process) = &self.seats[candidate] else { panic!("a task") };
        kill(Pid::from_raw(process.id().try_into().unwrap()), signal).unwrap();
    }

    /// Ends all candidates and receives their remaining reports.
    fn finish(&mut self) {
        for seat in self.seats.drain(..) {
            if let Seat::Process(mut process) = seat {
                process.kill().unwrap();
                process.wait().unwrap();
            }
        }
        while self.listen(Duration::from_secs(1)).is_some() {}
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        for seat in &mut self.seats {
            if let Seat::Process(process) = seat {
                process.kill().unwrap_or_default();
                process.wait().map(drop).unwrap_or_default();
            }
        }
    }
}

fn now() -> Duration {
    SystemClock::new().now()
}
