use std::ops::Range;

/// A generator that always makes the same sequence from a seed.
#[derive(Debug, Clone)]
pub(crate) struct Random(fastrand::Rng);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0.u64(..)
    }

    /// A number in the range, which must not be empty.
    pub(crate) fn within(&mut self, range: Range<u64>) -> u64 {
        self.0.u64(range)
    }

    /// A position in something of this length, which must not be zero.
    pub(crate) fn below(&mut self, length: usize) -> usize {
        self.0.usize(..length)
    }

    /// True once in `times` times on average.
    pub(crate) fn one_in(&mut self, times: u64) -> bool {
        self.0.u64(..times) == 0
    }

    /// One of these, of which there is at least one.
    pub(crate) fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())].clone()
    }
}
