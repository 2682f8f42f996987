use std::time::Duration;

use crate::{AcquireReply, Error, ErrorKind, Result};

/// What one node has answered: `None` while its answer is awaited.
pub type Answer<T> = Option<Result<T>>;

/// How many of so many nodes are a majority.
pub fn majority(nodes: usize) -> usize {
    nodes / 2 + 1
}

/// How many of the nodes said what.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_structs, reason = "three counts of a total")]
pub struct Tally {
    /// All nodes.
    pub nodes: usize,
    /// Those that agreed.
    pub yes: usize,
    /// Those that declined.
    pub no: usize,
    /// Those that failed, or whose time is over.
    pub failed: usize,
}

/// What the counts of a [`Tally`] come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "the outcomes of a vote")]
pub enum Verdict {
    /// `Yes` or `No` may still come.
    Open,
    /// A majority agreed.
    Yes,
    /// So many declined that no majority can agree.
    No,
    /// Neither can come any more.
    Undecided,
}

impl Tally {
    /// Counts the answers by their votes: `Some(true)` agrees, `Some(false)` declines, and `None` counts as a
    /// failure, as an error does.
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

    /// What the counts come to.
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

/// What a quorum says, as far as the answers tell.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "the outcomes of a vote")]
pub enum Decision<T> {
    /// Answers are awaited that may decide.
    Open,
    /// The quorum says this.
    Made(T),
    /// It can say nothing: the request failed.
    Undecided,
}

/// When a failed or refused acquire could be admitted: when a majority would admit it. Absent unless a
/// majority is known.
///
/// The q-th smallest of what the nodes say, q being the majority; zero for a node that granted.
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

/// The kind of a failure that will not pass by itself, if so many nodes failed with it that no majority can
/// agree until it is mended.
pub fn lasting_failure<T>(answers: &[Answer<T>]) -> Option<ErrorKind> {
    let errors = answers.iter().flatten().filter_map(|answer| answer.as_ref().err());
    lasting_kind(answers.len(), &errors.map(Error::kind).collect::<Vec<_>>())
}

/// As [`lasting_failure`], by the kinds with which some of the nodes failed.
pub fn lasting_kind(nodes: usize, failed: &[ErrorKind]) -> Option<ErrorKind> {
    let blocks = |kind: &ErrorKind| {
        failed.iter().filter(|other| *other == kind).count() > nodes - majority(nodes)
    };
    failed.iter().copied().find(|kind| *kind != ErrorKind::Unavailable && blocks(kind))
}

/// The q-th largest, q being the majority of `nodes`: what at least a majority has.
pub(super) fn held_by_majority<T: Ord + Copy>(
    nodes: usize,
    values: impl Iterator<Item = T>,
) -> Option<T> {
    let mut values: Vec<_> = values.collect();
    values.sort_unstable_by(|a, b| b.cmp(a));
    values.get(majority(nodes) - 1).copied()
}
