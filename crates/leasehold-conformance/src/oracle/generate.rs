use std::time::Duration;

use leasehold_core::table::{Holder, State};
use leasehold_core::{
    AcquireRequest, Capabilities, Claim, Claims, EvictRequest, EvictTarget, Expired, FencingToken,
    Filter, GroupName, Key, LeaseId, Mode, Note, Reason, ReleaseEntry, ReleaseRequest, Remaining,
    RenewEntry, RenewRequest, Ttl,
};

use crate::attempt::{at_most, key, ttl};
use crate::oracle::world::{FORGET_AFTER, Op, World};
use crate::random::Random;
use crate::{Backing, Reports, Time, WallStep};

/// Few, so that requests meet, and not all equal to a careless store.
const KEYS: &[&str] = &["a", "job", "Job", "job ", "j_b", "j\u{f6}b%"];
const GROUPS: &[&str] = &["worker", "Worker", "o'neil"];
const HOSTS: &[&str] = &["db-1", "%"];
const FOREIGN: &[&[u8]] = &[b"worker-7", b"\xff\x00", b"WORKER-7"];

/// How many attempts are remembered, to renew and release them.
const RECENT: usize = 12;

/// Generates operations that are likely to meet existing leases.
pub(super) struct Generator {
    random: Random,
    recent: Vec<(LeaseId, Claims)>,
    /// A lease whose term has just ended.
    ended: Option<LeaseId>,
    /// Terms and steps in real time are long compared with the tick, or never end.
    tick: Option<Duration>,
    reports: Reports,
    can: Capabilities,
}

impl Generator {
    pub(super) fn new<B: Backing>(random: Random, world: &World<B>) -> Self {
        let tick = match world.time {
            Time::Manual(_) => None,
            Time::Real { .. } => Some(world.tick),
        };
        Self {
            random,
            recent: Vec::new(),
            ended: None,
            tick,
            reports: world.reports,
            can: world.can,
        }
    }

    pub(super) fn next<B: Backing>(&mut self, world: &World<B>) -> Op {
        match self.random.within(0..1_000) {
            0..330 => self.acquire(),
            330..520 => self.renew(world),
            520..660 => self.release(),
            660..760 => self.list(),
            760..800 => Op::Purge(self.purged(), self.page()),
            800..850 => self.evict(world),
            850..870 => Op::Observe,
            870..900 => self.advance(world),
            900..985 if self.tick.is_none() => self.advance(world),
            900..985 => self.release(),
            985..998 if world.steps_wall => Op::Wall(self.wall_step()),
            998..1_000 if world.restarts => Op::Restart,
            _ => Op::Observe,
        }
    }

    fn acquire(&mut self) -> Op {
        let (id, claims) = match self.random.within(0..10) {
            0..6 => (self.fresh_id(), self.claims()),
            6 => (self.foreign_id(), self.claims()),
            _ => self.known(),
        };
        self.recent.push((id.clone(), claims.clone()));
        if self.recent.len() > RECENT {
            self.recent.remove(0);
        }
        let mut request = AcquireRequest::new(id, claims, self.term()).with_note(self.note());
        if self.random.one_in(2) {
            request = request.with_group(self.group());
        }
        if self.random.one_in(8) {
            request = request.again(None);
        }
        Op::Acquire(request)
    }

    /// A recent lease, now and then under another name.
    fn known(&mut self) -> (LeaseId, Claims) {
        if self.recent.is_empty() {
            return (self.fresh_id(), self.claims());
        }
        if let Some(ended) = self.ended.take() {
            let known = self.recent.iter().rfind(|(id, _)| *id == ended);
            if let Some(known) = known.cloned().filter(|_| self.random.one_in(2)) {
                return known;
            }
        }
        let (id, claims) = self.random.pick(&self.recent);
        let claims = match self.random.within(0..12) {
            0 => self.claims(),
            1 => self.part_of(&claims),
            2 | 3 => self.in_other_modes(&claims),
            _ => claims,
        };
        (id, claims)
    }

    fn fresh_id(&mut self) -> LeaseId {
        let (high, low) = (self.random.next(), self.random.next());
        let digits = format!("{high:016x}{low:016x}");
        let uuid = [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
        LeaseId::foreign(uuid.join("-").as_bytes()).expect("36 bytes are an id")
    }

    fn foreign_id(&mut self) -> LeaseId {
        LeaseId::foreign(self.random.pick(FOREIGN)).expect("the oracle's ids are valid")
    }

    /// True for what the store can do, and now and then for what it must refuse.
    fn may(&mut self, able: bool) -> bool {
        able || self.random.one_in(30)
    }

    fn key(&mut self) -> Key {
        key(self.random.pick(KEYS))
    }

    fn mode(&mut self) -> Mode {
        match self.random.within(0..6) {
            3 | 4 if self.may(self.can.shared) => Mode::SHARED,
            5 if self.may(self.can.shared_limit) => {
                at_most(1 + u32::from(self.random.one_in(2)) + u32::from(self.random.one_in(2)))
            }
            _ => Mode::Exclusive,
        }
    }

    fn claims(&mut self) -> Claims {
        let many = self.random.one_in(3) && self.may(self.can.many_keys);
        let count = if many { 1 + self.random.below(3) } else { 1 };
        let mut claims: Vec<Claim> = Vec::new();
        for _ in 0..count {
            let claim = Claim { key: self.key(), mode: self.mode() };
            if claims.iter().all(|other| other.key != claim.key) {
                claims.push(claim);
            }
        }
        Claims::new(claims).expect("one claim at least, and one for each key")
    }

    fn part_of(&mut self, claims: &Claims) -> Claims {
        let at = self.random.below(claims.len());
        let claim = claims.iter().nth(at).expect("the position is below the length");
        Claims::one(claim.key.clone(), claim.mode)
    }

    fn in_other_modes(&mut self, claims: &Claims) -> Claims {
        let keys: Vec<_> = claims.keys().cloned().collect();
        Claims::all(keys, self.mode()).expect("claims are not empty")
    }

    fn term(&mut self) -> Ttl {
        if let Some(tick) = self.tick {
            let short = tick * u32::try_from(self.random.within(2..5)).expect("below five");
            return ttl(if self.random.one_in(3) { short } else { Duration::from_secs(3_600) });
        }
        let term = match self.random.within(0..8) {
            0 => Duration::from_millis(10),
            1 => Duration::from_millis(self.random.within(10..500)),
            2 => {
                let nanos = self.random.within(1_000_000_000..3_000_000_000);
                self.in_units(Duration::from_nanos(nanos))
            }
            3 => Duration::from_secs(self.random.within(60..4_000)),
            _ => Duration::from_secs(self.random.within(1..10)),
        };
        let within = (self.can.min_term..=self.can.max_term).contains(&term);
        ttl(if self.may(within) { term } else { term.clamp(self.can.min_term, self.can.max_term) })
    }

    /// The table rounds up to microseconds, and no further.
    fn in_units(&self, term: Duration) -> Duration {
        let unit = self.reports.unit;
        if unit > Duration::from_micros(1) { whole(term, unit) } else { term }
    }

    fn group(&mut self) -> GroupName {
        GroupName::new(self.random.pick(GROUPS)).expect("the oracle's groups are valid")
    }

    fn note(&mut self) -> Note {
        let note = Note::default();
        if self.random.one_in(3) {
            return note;
        }
        let host = self.random.pick(HOSTS);
        note.with_host(host).expect("the oracle's hosts are valid").with_pid(7)
    }

    fn renew<B: Backing>(&mut self, world: &World<B>) -> Op {
        let count = if self.random.one_in(4) { self.random.below(5) } else { 1 };
        let leases = (0..count).map(|_| {
            let (id, claims) = self.known();
            let never = self.random.one_in(12) && self.may(self.can.never);
            let to = if never { Ttl::NEVER } else { self.term() };
            let renewal = RenewEntry::extend(id, claims, to);
            if self.random.one_in(8) && self.may(self.can.raise) {
                renewal.with_token_raised_to(self.raise(world))
            } else {
                renewal
            }
        });
        Op::Renew(RenewRequest::new(leases.collect()))
    }

    /// At most some minutes ahead, so that tokens do not run out.
    fn raise<B: Backing>(&mut self, world: &World<B>) -> FencingToken {
        let highest = world.tokens.highest();
        let ahead = self.random.within(0..100);
        let token = if self.random.one_in(3) { 1 } else { highest.max(1) + ahead };
        FencingToken::new(token).expect("tokens do not come to their end in one run")
    }

    fn release(&mut self) -> Op {
        let count = if self.random.one_in(4) { self.random.below(4) } else { 1 };
        let leases = (0..count).map(|_| {
            let (id, claims) = self.known();
            let ending = ReleaseEntry::new(id, claims.keys().cloned());
            match self.random.within(0..4) {
                0 if self.may(self.can.keep) => {
                    let keep = self.term().duration().expect("a term has an end");
                    ending.with_keep(keep)
                }
                _ => ending,
            }
        });
        Op::Release(ReleaseRequest::new(leases.collect()))
    }

    fn page(&mut self) -> usize {
        match self.random.within(0..40) {
            0 => 0,
            1..20 => 1 + self.random.below(4),
            _ => 100,
        }
    }

    fn list(&mut self) -> Op {
        let mut filter = Filter::default();
        for _ in 0..self.random.within(0..3) {
            filter = self.narrowed(filter);
        }
        filter = filter.with_expired(match self.random.within(0..3) {
            0 => Expired::Out,
            1 => Expired::In,
            _ => Expired::Only,
        });
        Op::List(filter, self.page())
    }

    fn purged(&mut self) -> Filter {
        match self.random.within(0..4) {
            0 => self.narrowed(Filter::default()),
            1 => Filter::default().with_keys([self.key(), self.key()]),
            _ => Filter::default(),
        }
    }

    fn narrowed(&mut self, filter: Filter) -> Filter {
        let seconds = |random: &mut Random| Duration::from_secs(random.within(0..20));
        match self.random.within(0..10) {
            0 => filter.with_key(self.key()),
            1 => filter.with_keys([self.key(), self.key()]),
            2 => filter.with_prefix(self.random.pick(&["job", "j", "", "%", "job_"])),
            3 => {
                let pattern = self.random.pick(&["*", "j?b*", "*_x", "?", "job%", "*b*"]);
                filter.with_glob(pattern).expect("the oracle's patterns are valid")
            }
            4 => filter.with_lease(self.known().0),
            5 if self.reports.group => filter.with_group(self.group()),
            6 => filter.with_mode(self.mode()),
            7 if self.reports.note => filter.with_host(self.random.pick(HOSTS)),
            8 if self.reports.age && self.tick.is_none() => {
                let from = seconds(&mut self.random);
                if self.random.one_in(2) {
                    return filter.with_age_from(from);
                }
                filter.with_age(from..from + seconds(&mut self.random))
            }
            9 if self.tick.is_none() => {
                let from = seconds(&mut self.random);
                if self.random.one_in(2) {
                    return filter.with_remaining_from(Remaining::For(from));
                }
                let to = from + seconds(&mut self.random);
                filter.with_remaining(Remaining::For(from)..Remaining::For(to))
            }
            _ => filter.with_key(self.key()),
        }
    }

    fn evict<B: Backing>(&mut self, world: &World<B>) -> Op {
        let there: Vec<(Key, Holder)> = world
            .table
            .entries()
            .flat_map(|(key, holders)| holders.iter().map(|h| (key.clone(), h.clone())))
            .collect();
        let mut targets = Vec::new();
        for _ in 0..=self.random.below(3) {
            let mut target = EvictTarget::new(self.key(), Some(self.known().0));
            if !there.is_empty() && !self.random.one_in(4) {
                let (key, holder) = self.random.pick(&there);
                if !world.can.reports_expired && !holder.is_live(world.now()) {
                    continue;
                }
                target = EvictTarget::new(key, holder.id);
                if world.can.tokens && self.random.one_in(2) {
                    target.token = Some(holder.token);
                }
                if matches!(holder.state, State::Evicted(_)) || self.random.one_in(6) {
                    target.token = FencingToken::new(7).ok().filter(|_| world.can.tokens);
                }
            }
            targets.push(target);
        }
        let reason = Reason::new("it's broken").ok().filter(|_| self.random.one_in(2));
        let evict = EvictRequest::exactly(targets, reason);
        Op::Break(if self.random.one_in(10) { evict.with_limit(1) } else { evict })
    }

    /// Half the time to the end of a term, or next to it, where most mistakes are.
    fn advance<B: Backing>(&mut self, world: &World<B>) -> Op {
        let now = world.now();
        let holders = world.table.entries().flat_map(|(_, holders)| holders);
        let mut ends: Vec<_> = holders
            .filter_map(|holder| Some((holder.expires?.checked_sub(now.boot)?, holder.id.clone())))
            .collect();
        ends.sort_unstable();
        let nearest = ends.first().cloned();
        if let Some(tick) = self.tick {
            let Some((end, id)) = nearest.filter(|(end, _)| *end < tick * 20) else {
                return Op::Observe;
            };
            self.ended = id;
            return Op::Advance(end + tick);
        }
        match nearest {
            Some(nearest) if self.random.one_in(2) => {
                let (end, id) =
                    if self.random.one_in(2) { nearest } else { self.random.pick(&ends) };
                self.ended = id;
                let unit = self.reports.unit;
                Op::Advance(match self.random.within(0..4) {
                    0 => end.saturating_sub(unit),
                    1 => end + unit,
                    _ => end,
                })
            }
            _ => Op::Advance(match self.random.within(0..10) {
                0 => FORGET_AFTER + Duration::from_secs(self.random.within(0..100)),
                1 | 2 => Duration::from_secs(self.random.within(1..60)),
                _ => whole(
                    Duration::from_micros(self.random.within(0..2_000_000)),
                    self.reports.unit,
                ),
            }),
        }
    }

    fn wall_step(&mut self) -> WallStep {
        let by = match self.random.within(0..3) {
            0 => Duration::from_secs(self.random.within(1..4_000)),
            1 => Duration::from_secs(1),
            _ => Duration::from_micros(self.random.within(1..1_000_000)),
        };
        if self.random.one_in(2) { WallStep::Forward(by) } else { WallStep::Back(by) }
    }
}

/// A whole number of units, as every instant on the store's clock is.
fn whole(time: Duration, unit: Duration) -> Duration {
    let rest = time.as_nanos() % unit.as_nanos();
    time - Duration::from_nanos(u64::try_from(rest).expect("less than a unit"))
}
