use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use leasehold::{Claims, FencingToken, Key, LeaseId, Mode};
use leasehold_conformance::history::{Belief, History, check};

/// What each candidate believed, and how long successions took.
#[derive(Default)]
pub(crate) struct Judge {
    beliefs: BTreeMap<FencingToken, Belief>,
    leaders: BTreeMap<usize, usize>,
    take_overs: BTreeMap<EndedBy, Vec<Duration>>,
    /// Tries of the winner after a resignation began.
    tries: Vec<usize>,
    pub(crate) spontaneous: usize,
    pub(crate) blocked: usize,
}

/// How a leader is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum EndedBy {
    Resign,
    Drop,
    Cut,
    Kill,
    Stop,
}

impl Judge {
    /// The lease `id` was won by `candidate`, which believed in it at `from`.
    pub(crate) fn elected(
        &mut self,
        candidate: usize,
        token: FencingToken,
        id: LeaseId,
        from: Duration,
    ) {
        let claims = Claims::one(Key::new("chief").unwrap(), Mode::Exclusive);
        let belief = Belief::new(id, claims, nanos(from), nanos(from));
        assert!(self.beliefs.insert(token, belief).is_none(), "the token {token} was given twice");
        *self.leaders.entry(candidate).or_default() += 1;
    }

    /// The leader with `token` believed in it at `at`.
    pub(crate) fn held(&mut self, token: FencingToken, at: Duration) {
        let belief = self.beliefs.get_mut(&token).unwrap();
        belief.until = belief.until.max(nanos(at));
    }

    pub(crate) fn taken_over(&mut self, way: EndedBy, after: Duration) {
        self.take_overs.entry(way).or_default().push(after);
    }

    pub(crate) fn tried(&mut self, tries: usize) {
        self.tries.push(tries);
    }

    /// At most one leader at any instant, and larger tokens for later ones.
    pub(crate) fn excludes(&self) {
        let beliefs: Vec<Belief> = self.beliefs.values().cloned().collect();
        let violations = check(&History::new(Vec::new(), beliefs));
        assert!(violations.is_empty(), "{} violations: {}", violations.len(), violations[0]);
        // In the order of tokens, which are the keys.
        let starts = self.beliefs.values().map(|belief| belief.from);
        assert!(starts.is_sorted_by(|one, next| one < next), "a later leader has a smaller token");
    }

    /// Every way was used often enough, and every candidate led.
    pub(crate) fn saw(&self, ways: &[EndedBy], kills: usize, candidates: usize) {
        let count: usize = self.take_overs.values().map(Vec::len).sum::<usize>() + self.blocked;
        assert!(count >= kills, "{count} leaders were ended, {kills} are needed");
        for way in ways {
            assert!(self.take_overs.contains_key(way), "no leader was ended by {way:?}");
        }
        assert_eq!(self.leaders.len(), candidates, "who led: {:?}", self.leaders);
        assert!(
            self.beliefs.values().filter(|belief| belief.until > belief.from).count() > kills / 2
        );
    }

    /// After leaders that ended in one of `ways`, `percent` of 100 successors were elected within `bound`, and all
    /// within `longest`.
    pub(crate) fn in_time(
        &self,
        ways: &[EndedBy],
        percent: usize,
        bound: Duration,
        longest: Duration,
    ) {
        let times = ways.iter().filter_map(|way| self.take_overs.get(way)).flatten();
        let times: Vec<Duration> = times.copied().collect();
        let (high, most) = (percentile(&times, percent), percentile(&times, 100));
        assert!(high <= bound, "{ways:?}: {percent} % within {high:?}, not {bound:?}");
        assert!(most <= longest, "{ways:?}: one only after {most:?}");
    }

    /// `percent` of 100 candidates elected after a resignation sent one or two requests for it.
    pub(crate) fn in_two_round_trips(&self, percent: usize) {
        let good = self.tries.iter().filter(|tries| **tries <= 2).count();
        assert!(!self.tries.is_empty());
        assert!(good * 100 >= self.tries.len() * percent, "tries: {:?}", self.tries);
    }
}

impl fmt::Display for Judge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ended: usize = self.take_overs.values().map(Vec::len).sum();
        write!(f, "{} leaders, {ended} ended, ", self.beliefs.len())?;
        write!(f, "{} lost by themselves, ", self.spontaneous)?;
        write!(f, "{} stopped with the store's own lock; led: {:?}", self.blocked, self.leaders)?;
        for (way, times) in &self.take_overs {
            let ms = |percent| percentile(times, percent).as_secs_f64() * 1_000.0;
            write!(f, "\n  {way:?}: {} times, taken over after ms: ", times.len())?;
            write!(f, "p50 {:.1}, p95 {:.1}, most {:.1}", ms(50), ms(95), ms(100))?;
        }
        if !self.tries.is_empty() {
            let most = self.tries.iter().max().unwrap();
            let once = self.tries.iter().filter(|tries| **tries == 1).count();
            write!(f, "\n  tries of the winner after a resignation: ")?;
            write!(f, "one {once} times of {}, most {most}", self.tries.len())?;
        }
        Ok(())
    }
}

fn percentile(times: &[Duration], percent: usize) -> Duration {
    let mut times = times.to_vec();
    times.sort();
    times[(times.len() * percent).div_ceil(100).max(1) - 1]
}

fn nanos(at: Duration) -> u64 {
    u64::try_from(at.as_nanos()).unwrap()
}

/// The judge must be able to find violations.
#[test]
#[should_panic(expected = "1 violations")]
fn two_leaders_at_one_instant_are_seen() {
    let mut judge = Judge::default();
    let at = Duration::from_secs;
    judge.elected(0, FencingToken::new(1).unwrap(), LeaseId::mint().unwrap(), at(1));
    judge.elected(1, FencingToken::new(2).unwrap(), LeaseId::mint().unwrap(), at(2));
    judge.held(FencingToken::new(1).unwrap(), at(3));
    judge.excludes();
}

#[test]
#[should_panic(expected = "a smaller token")]
fn a_token_that_goes_back_is_seen() {
    let mut judge = Judge::default();
    let at = Duration::from_secs;
    judge.elected(0, FencingToken::new(2).unwrap(), LeaseId::mint().unwrap(), at(1));
    judge.elected(1, FencingToken::new(1).unwrap(), LeaseId::mint().unwrap(), at(2));
    judge.excludes();
}
