use std::collections::VecDeque;

/// The newest entries, in order, for readers with positions of their own.
#[derive(Debug)]
pub(super) struct Log<T> {
    /// How many entries there were before the first one kept.
    forgotten: u64,
    kept: VecDeque<T>,
}

/// How many entries a slow reader may lag behind.
const LAG: usize = 64;

impl<T> Default for Log<T> {
    fn default() -> Self {
        Self { forgotten: 0, kept: VecDeque::new() }
    }
}

impl<T: Clone> Log<T> {
    pub(super) fn push(&mut self, news: T) {
        if self.kept.len() == LAG {
            self.kept.pop_front();
            self.forgotten += 1;
        }
        self.kept.push_back(news);
    }

    /// The position of the next entry.
    pub(super) fn end(&self) -> u64 {
        self.forgotten + u64::try_from(self.kept.len()).expect("at most 64")
    }

    /// The oldest kept entry from `position` on; moves `position` behind it.
    pub(super) fn next(&self, position: &mut u64) -> Option<T> {
        *position = self.forgotten.max(*position);
        let at = usize::try_from(*position - self.forgotten).ok()?;
        let next = self.kept.get(at).cloned();
        *position += u64::from(next.is_some());
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reader_gets_each_entry_once_and_a_slow_one_misses_the_oldest() {
        let mut log = Log::default();
        let (mut early, mut late) = (log.end(), log.end());
        log.push(0);
        assert_eq!((log.next(&mut early), log.next(&mut early)), (Some(0), None));
        for number in 1..=LAG {
            log.push(number);
        }
        let read: Vec<_> = std::iter::from_fn(|| log.next(&mut late)).collect();
        assert_eq!(read, (1..=LAG).collect::<Vec<_>>());
        let rest: Vec<_> = std::iter::from_fn(|| log.next(&mut early)).collect();
        assert_eq!(rest, read);
        assert_eq!(log.next(&mut log.end()), None);
    }
}
