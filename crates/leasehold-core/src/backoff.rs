use std::num::NonZeroU32;
use std::time::Duration;

use crate::{Error, Result};

/// Decides the pauses between tries.
///
/// `retry` is 0 for the pause after the first try. `None` ends the wait. Arithmetic saturates: no retry
/// number, however large, overflows a pause.
///
/// A closure is a back-off too:
///
/// ```
/// use leasehold_core::Backoff;
/// use std::time::Duration;
///
/// let mut three_tries = |retry: u32| (retry < 2).then_some(Duration::from_millis(50));
/// assert_eq!(three_tries.next(0), Some(Duration::from_millis(50)));
/// assert_eq!(three_tries.next(2), None);
/// ```
pub trait Backoff: Send + 'static {
    /// The pause after this retry number, or `None` to stop waiting.
    fn next(&mut self, retry: u32) -> Option<Duration>;
}

impl<F: FnMut(u32) -> Option<Duration> + Send + 'static> Backoff for F {
    fn next(&mut self, retry: u32) -> Option<Duration> {
        self(retry)
    }
}

/// The same pause each time, with jitter: `pause` + uniform(1 ns ..= `pause`); zero means no pause.
#[derive(Debug, Clone)]
pub struct Fixed {
    pause: Duration,
    random: Random,
}

impl Fixed {
    /// Pauses between `pause` and twice as long.
    pub fn new(pause: Duration) -> Self {
        Self { pause, random: Random::seeded() }
    }
}

impl Backoff for Fixed {
    fn next(&mut self, _retry: u32) -> Option<Duration> {
        Some(self.pause.saturating_add(self.random.up_to(self.pause)))
    }
}

/// A pause drawn evenly: `min` + uniform(0 .. `spread`).
#[derive(Debug, Clone)]
pub struct Uniform {
    min: Duration,
    spread: Duration,
    random: Random,
}

impl Uniform {
    /// Pauses between `min` and `min + spread`.
    pub fn new(min: Duration, spread: Duration) -> Self {
        Self { min, spread, random: Random::seeded() }
    }
}

impl Backoff for Uniform {
    fn next(&mut self, _retry: u32) -> Option<Duration> {
        Some(self.min.saturating_add(self.random.up_to(self.spread)))
    }
}

/// Grows by a factor up to a cap: by default from 100 ms by a factor of 2 to 1 min, with full jitter.
#[derive(Debug, Clone)]
pub struct Exponential {
    first: Duration,
    cap: Duration,
    factor: NonZeroU32,
    jitter: Jitter,
    random: Random,
}

/// How jitter varies an [`Exponential`] pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Jitter {
    /// Uniform between zero and the pause, so that callers spread out.
    #[default]
    Full,
    /// Exactly the pause.
    None,
}

impl Exponential {
    const FIRST: Duration = Duration::from_millis(100);
    const CAP: Duration = Duration::from_secs(60);
    const FACTOR: NonZeroU32 = NonZeroU32::new(2).unwrap();

    /// Starts at `first` and grows up to `cap`; with [`Duration::MAX`], without end.
    ///
    /// # Errors
    /// `InvalidInput` if `first` is zero or above `cap`: tries without a pause would keep the store busy. For
    /// tries without a pause, use [`Fixed`].
    pub fn new(first: Duration, cap: Duration) -> Result<Self> {
        if first.is_zero() || first > cap {
            return Err(Error::invalid_input(format!(
                "an exponential back-off grows from its first pause, here {first:?}, to its longest, here {cap:?}; the first \
                 must be above zero and no longer than the longest"
            )));
        }
        Ok(Self { first, cap, ..Self::default() })
    }

    /// Sets the growth per retry.
    #[must_use]
    pub fn with_factor(mut self, factor: NonZeroU32) -> Self {
        self.factor = factor;
        self
    }

    /// Sets the jitter.
    #[must_use]
    pub fn with_jitter(mut self, jitter: Jitter) -> Self {
        self.jitter = jitter;
        self
    }
}

impl Default for Exponential {
    fn default() -> Self {
        Self {
            first: Self::FIRST,
            cap: Self::CAP,
            factor: Self::FACTOR,
            jitter: Jitter::default(),
            random: Random::seeded(),
        }
    }
}

impl Backoff for Exponential {
    fn next(&mut self, retry: u32) -> Option<Duration> {
        let growth = self.factor.get().saturating_pow(retry);
        let pause = self.first.checked_mul(growth).unwrap_or(Duration::MAX).min(self.cap);
        Some(match self.jitter {
            Jitter::Full => self.random.up_to(pause),
            Jitter::None => pause,
        })
    }
}

/// A small random generator for jitter; nothing secret depends on it.
#[derive(Debug, Clone)]
pub struct Random(fastrand::Rng);

impl Random {
    /// Starts from a seed that no other generator of this process has.
    pub fn seeded() -> Self {
        Self(fastrand::Rng::new())
    }

    /// Starts from `seed`, for repeatable sequences.
    pub fn from_seed(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    /// A duration in 1 ns ..= `limit`; zero if `limit` is zero.
    pub fn up_to(&mut self, limit: Duration) -> Duration {
        if limit.is_zero() {
            return limit;
        }
        let nanos = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(self.0.u64(1..=nanos))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn fixed_stays_between_once_and_twice() {
        let mut backoff = Fixed::new(100 * MS);
        for retry in 0..1_000 {
            let pause = backoff.next(retry).unwrap();
            assert!(pause > 100 * MS && pause <= 200 * MS, "{pause:?}");
        }
        assert_eq!(Fixed::new(Duration::ZERO).next(0), Some(Duration::ZERO));
    }

    #[test]
    fn uniform_stays_in_range() {
        let mut backoff = Uniform::new(5 * MS, 10 * MS);
        for retry in 0..1_000 {
            let pause = backoff.next(retry).unwrap();
            assert!(pause > 5 * MS && pause <= 15 * MS, "{pause:?}");
        }
    }

    #[test]
    fn exponential_doubles_to_its_cap_and_never_overflows() {
        let mut plain = Exponential::default().with_jitter(Jitter::None);
        assert_eq!(plain.next(0), Some(100 * MS));
        assert_eq!(plain.next(3), Some(800 * MS));
        for retry in [38, 10_000, u32::MAX] {
            assert_eq!(plain.next(retry), Some(Duration::from_secs(60)), "{retry}");
        }
        let mut full = Exponential::default();
        let pauses: Vec<_> = (0..1_000).map(|_| full.next(0).unwrap()).collect();
        assert!(pauses.iter().all(|p| *p <= 100 * MS));
        assert!(pauses.iter().any(|p| *p < 10 * MS) && pauses.iter().any(|p| *p > 90 * MS));
        let longest = Exponential::new(Duration::MAX, Duration::MAX).unwrap();
        assert_eq!(longest.with_jitter(Jitter::None).next(9), Some(Duration::MAX));
    }

    #[test]
    fn an_exponential_without_pauses_is_refused() {
        for (first, cap) in [(Duration::ZERO, MS), (Duration::ZERO, Duration::ZERO), (2 * MS, MS)] {
            let error = Exponential::new(first, cap).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert!(error.to_string().contains(&format!("{first:?}")), "{error}");
        }
        Exponential::new(MS, MS).unwrap();
    }

    #[test]
    fn an_exponential_grows_by_its_factor() {
        let factor = NonZeroU32::new(3).unwrap();
        let exponential = Exponential::new(MS, 20 * MS).unwrap().with_jitter(Jitter::None);
        let mut pauses = exponential.with_factor(factor);
        let pauses: Vec<_> = (0..4).map(|retry| pauses.next(retry).unwrap()).collect();
        assert_eq!(pauses, [MS, 3 * MS, 9 * MS, 20 * MS]);
    }

    #[test]
    fn a_closure_decides_each_pause() {
        let mut twice = |retry: u32| (retry < 2).then_some(MS * (retry + 1));
        let pauses = [0, 1, 2].map(|retry| Backoff::next(&mut twice, retry));
        assert_eq!(pauses, [Some(MS), Some(2 * MS), None]);
    }

    #[test]
    fn a_seed_repeats_its_sequence() {
        let draw = |mut random: Random| [(); 8].map(|()| random.up_to(Duration::from_secs(1)));
        assert_eq!(draw(Random::from_seed(7)), draw(Random::from_seed(7)));
        assert_ne!(draw(Random::from_seed(7)), draw(Random::from_seed(8)));
        assert_ne!(draw(Random::seeded()), draw(Random::seeded()));
    }
}
