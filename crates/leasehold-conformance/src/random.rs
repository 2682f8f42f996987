use std::ops::Range;

/// A small generator (SplitMix64), so that a seed means the same run for ever.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number of the range, which is not empty.
    pub(crate) fn within(&mut self, range: Range<u64>) -> u64 {
        range.start + self.next() % (range.end - range.start)
    }

    /// A position in something of this length, which is not zero.
    pub(crate) fn below(&mut self, length: usize) -> usize {
        let length = u64::try_from(length).expect("a length is no more than 64 bits");
        usize::try_from(self.next() % length).expect("less than a length")
    }

    /// True once in so many times.
    pub(crate) fn one_in(&mut self, times: u64) -> bool {
        self.next() % times == 0
    }

    /// One of these, of which there is at least one.
    pub(crate) fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())].clone()
    }
}
