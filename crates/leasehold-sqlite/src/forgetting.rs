//! When what ended long ago is removed: with some of the grants, more than they add.

use std::cell::Cell;
use std::time::Duration;

/// How often a grant looks for such records.
const EVERY: Duration = Duration::from_secs(1);

/// How many it then removes, at most and without regard to what was added.
const AT_ONCE: usize = 100;

/// How many records may be due before that.
const MOST_DUE: usize = 256;

/// What one connection has still to remove.
#[derive(Debug, Default)]
pub(crate) struct Forgetting {
    /// When it looks again.
    next: Cell<Duration>,
    /// Twice the number of records that its grants added since.
    due: Cell<usize>,
}

impl Forgetting {
    /// How many records a grant of so many keys removes at most; `None` if it does not look.
    pub(crate) fn with_grant(&self, keys: usize, now: Duration) -> Option<usize> {
        let due = self.due.get().saturating_add(2 * keys);
        if now < self.next.get() && due < MOST_DUE {
            self.due.set(due);
            return None;
        }
        self.due.set(0);
        self.next.set(now + EVERY);
        Some(due.max(AT_ONCE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_is_removed_than_added() {
        let forgetting = Forgetting::default();
        let at = |millis| Duration::from_millis(millis);
        assert_eq!(forgetting.with_grant(1, at(5_000)), Some(AT_ONCE));
        for _ in 0..127 {
            assert_eq!(forgetting.with_grant(1, at(5_999)), None);
        }
        assert_eq!(forgetting.with_grant(1, at(5_999)), Some(256));
        assert_eq!(forgetting.with_grant(1, at(6_998)), None);
        assert_eq!(forgetting.with_grant(1, at(6_999)), Some(AT_ONCE));
        assert_eq!(forgetting.with_grant(500, at(6_999)), Some(1_000));
    }
}
