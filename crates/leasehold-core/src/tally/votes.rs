use std::time::Duration;

use crate::{AcquireReply, Error, ErrorKind, Result};

/// What one node answered; `None` while the answer is awaited.
pub type Answer<T> = Option<Result<T>>;

/// How many nodes are a majority of `nodes`.
pub fn majority(nodes: usize) -> usize {
    nodes / 2 + 1
}

/// How many nodes voted for what.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_structs, reason = "three counts of a total")]
pub struct Tally {
    /// All nodes.
    pub nodes: usize,
    /// Those that agreed.
    pub yes: usize,
    /// Those that declined.
    pub no: usize,
    /// Those that failed or ran out of time.
    pub failed: usize,
}

/// The result of a [`Tally`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "the outcomes of a vote")]
pub enum Verdict {
    /// `Yes` and `No` are still possible.
    Open,
    /// A majority agreed.
    Yes,
    /// So many declined that no majority can agree.
    No,
    /// Neither is possible any more.
    Undecided,
}

impl Tally {
    /// Counts the answers by their votes: `Some(true)` agrees, `Some(false)` declines, `None` and an error count
    /// as failed.
    pub fn of<T>(answers: &[Answer<T>], vote: impl Fn(&T) -> Option<bool>) -> Self {
        let mut tally = Self { nodes: answers.len(), ..Self::default() };
        for answer in answers.iter().flatten() {
            match answer.as_ref().ok().and_then(&vote) {
                Some(true) => tally.yes += 1,
                Some(false) => tally.no += 1,
                None => tally.failed += 1,
            }
        }
        tally
    }

    /// The result of the counts.
    pub fn verdict(&self) -> Verdict {
        let needed = majority(self.nodes);
        let pending = self.nodes - self.yes - self.no - self.failed;
        let is_no = |no: usize| no > self.nodes - needed;
        if self.yes >= needed {
            Verdict::Yes
        } else if is_no(self.no) {
            Verdict::No
        } else if self.yes + pending >= needed || is_no(self.no + pending) {
            Verdict::Open
        } else {
            Verdict::Undecided
        }
    }
}

/// The quorum's decision, as far as the answers go.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "the outcomes of a vote")]
pub enum Decision<T> {
    /// Answers that may decide are awaited.
    Open,
    /// The quorum decided this.
    Made(T),
    /// No decision is possible: the request failed.
    Undecided,
}

/// When a majority would admit a failed or refused acquire; absent unless a majority is known.
///
/// The q-th smallest time that the nodes report, q being the majority; zero for a node that granted.
pub fn retry_after(answers: &[Answer<AcquireReply>]) -> Option<Duration> {
    let known = answers.iter().flatten().filter_map(|answer| match answer {
        Ok(AcquireReply::Granted(_)) => Some(Duration::ZERO),
        Ok(AcquireReply::Refused(refused)) => refused.retry_after,
        Err(error) => error.retry_after(),
    });
    let mut known: Vec<_> = known.collect();
    known.sort_unstable();
    known.get(majority(answers.len()) - 1).copied()
}

/// The kind of a failure that does not pass by itself, if so many nodes failed with it that no majority can agree
/// until it is repaired.
pub fn lasting_failure<T>(answers: &[Answer<T>]) -> Option<ErrorKind> {
    let errors = answers.iter().flatten().filter_map(|answer| answer.as_ref().err());
    lasting_kind(answers.len(), &errors.map(Error::kind).collect::<Vec<_>>())
}

/// As [`lasting_failure`], from the kinds of failure of some of the nodes.
pub fn lasting_kind(nodes: usize, failed: &[ErrorKind]) -> Option<ErrorKind> {
    let blocks = |kind: &ErrorKind| {
        failed.iter().filter(|other| *other == kind).count() > nodes - majority(nodes)
    };
    failed.iter().copied().find(|kind| *kind != ErrorKind::Unavailable && blocks(kind))
}

/// The q-th largest value, q being the majority of `nodes`: at least a majority has it.
pub(super) fn held_by_majority<T: Ord + Copy>(
    nodes: usize,
    values: impl Iterator<Item = T>,
) -> Option<T> {
    let mut values: Vec<_> = values.collect();
    values.sort_unstable_by(|a, b| b.cmp(a));
    values.get(majority(nodes) - 1).copied()
}
