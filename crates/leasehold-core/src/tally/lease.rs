use std::time::Duration;

use super::votes::{Answer, Decision, Tally, Verdict, held_by_majority, majority};
use crate::{LostReason, ReleaseOutcome, RenewOutcome};

/// The quorum's outcome for the renewal of one lease.
///
/// `Held` if a majority *still held* it, with the q-th largest remaining term, q being the majority; `Lost` as
/// soon as no majority can have it. A node to which the lease is then added again ([`is_absent`]) does not count:
/// else an expired or broken lease would revive.
pub fn renew(answers: &[Answer<RenewOutcome>]) -> Decision<RenewOutcome> {
    let vote = |renewed: &RenewOutcome| match renewed {
        RenewOutcome::Held(_) => Some(true),
        RenewOutcome::Lost(_) => Some(false),
        RenewOutcome::Failed(_) => None,
    };
    let replies = || answers.iter().flatten().filter_map(|answer| answer.as_ref().ok());
    match Tally::of(answers, vote).verdict() {
        Verdict::Open => Decision::Open,
        Verdict::Undecided => Decision::Undecided,
        Verdict::No => {
            let reasons = replies().filter_map(|renewed| match renewed {
                RenewOutcome::Lost(reason) => Some(reason.as_ref()),
                _ => None,
            });
            let reason = reasons.max_by_key(|reason| telling(*reason)).flatten();
            Decision::Made(RenewOutcome::Lost(reason.cloned()))
        }
        Verdict::Yes => {
            let remaining = replies().filter_map(|renewed| match renewed {
                RenewOutcome::Held(remaining) => Some(*remaining),
                _ => None,
            });
            match held_by_majority(answers.len(), remaining) {
                Some(remaining) => Decision::Made(RenewOutcome::Held(remaining)),
                None => Decision::Undecided,
            }
        }
    }
}

/// Whether the lease must be added again on a node that gave this answer, once a majority is known to hold it.
pub fn is_absent(answer: &Answer<RenewOutcome>) -> bool {
    matches!(answer, Some(Ok(RenewOutcome::Lost(_))))
}

/// The quorum's outcome for the release of one lease: the outcome that a majority gave, else `NotHeld` if so many
/// nodes report it that no majority can have had the lease.
///
/// `Kept` is one outcome, with the q-th largest time that the nodes keep, q being the majority: for so long the
/// keys stay taken for everybody.
pub fn release(answers: &[Answer<ReleaseOutcome>]) -> Decision<ReleaseOutcome> {
    let needed = majority(answers.len());
    let replies = || answers.iter().flatten().filter_map(|answer| answer.as_ref().ok());
    let count =
        |wanted: &ReleaseOutcome| replies().filter(|released| same(released, wanted)).count();
    let outcomes = [
        ReleaseOutcome::Released,
        ReleaseOutcome::Kept(Duration::ZERO),
        ReleaseOutcome::Expired,
        ReleaseOutcome::NotHeld,
    ];
    for outcome in &outcomes {
        if count(outcome) >= needed {
            return Decision::Made(match outcome {
                ReleaseOutcome::Kept(_) => ReleaseOutcome::Kept(kept(answers.len(), replies())),
                other => other.clone(),
            });
        }
    }
    let is_gone = |not_held: usize| not_held > answers.len() - needed;
    let not_held = count(&ReleaseOutcome::NotHeld);
    if is_gone(not_held) {
        return Decision::Made(ReleaseOutcome::NotHeld);
    }
    let pending = answers.iter().filter(|answer| answer.is_none()).count();
    if is_gone(not_held + pending) || outcomes.iter().any(|o| count(o) + pending >= needed) {
        return Decision::Open;
    }
    Decision::Undecided
}

fn same(one: &ReleaseOutcome, other: &ReleaseOutcome) -> bool {
    std::mem::discriminant(one) == std::mem::discriminant(other)
}

fn kept<'a>(nodes: usize, replies: impl Iterator<Item = &'a ReleaseOutcome>) -> Duration {
    let kept = replies.filter_map(|released| match released {
        ReleaseOutcome::Kept(rest) => Some(*rest),
        _ => None,
    });
    held_by_majority(nodes, kept).unwrap_or_default()
}

/// How much information a reason gives the holder.
fn telling(reason: Option<&LostReason>) -> u8 {
    match reason {
        None => 0,
        Some(LostReason::Gone) => 1,
        Some(LostReason::Evicted(Some(_))) => 4,
        Some(LostReason::Evicted(None)) => 3,
        Some(_) => 2,
    }
}
