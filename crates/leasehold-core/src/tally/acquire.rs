use std::time::Duration;

use super::votes::{Answer, Decision, Tally, Verdict, held_by_majority, majority, retry_after};
use crate::{AcquireReply, Effect, FencingToken, Granted, LeaseId, RefusalReason, Refused, Result};

/// The quorum's reply to an acquire.
///
/// - Granted by a majority. The remaining term is the q-th largest that the nodes report, q being the majority,
///   with nothing subtracted. It is `fresh` unless a majority held the lease already.
/// - Refused only if so many nodes refused that no majority can grant. The reply is that of the node whose term
///   must end before a majority is free. It promises a wake-up if a majority names the same lease: then that lease
///   was granted, and its release wakes. A node that is `Busy` has not decided and counts as failed.
///
/// With `tokens`, the token of a fresh grant is the largest that the granting nodes created from their own clocks,
/// and [`needs_write_back`] states whether it must still be written to a majority. If some nodes held the lease
/// before, their token may be that of an earlier grant, and the new one is above it. A lease that a majority held
/// already keeps the token that `again` names, else the one that a majority confirms. The decision waits for nodes
/// that may still confirm.
pub fn acquire(
    answers: &[Answer<AcquireReply>],
    again: Option<FencingToken>,
    tokens: bool,
) -> Decision<AcquireReply> {
    match Tally::of(answers, vote).verdict() {
        Verdict::Open => Decision::Open,
        Verdict::Undecided => Decision::Undecided,
        Verdict::No => refusal(answers)
            .map_or(Decision::Undecided, |refused| Decision::Made(AcquireReply::Refused(refused))),
        Verdict::Yes => match grant(answers, again, tokens) {
            Some(granted) => Decision::Made(AcquireReply::Granted(granted)),
            None => Decision::Open,
        },
    }
}

/// True if less than a majority of the nodes has given the lease a token of at least `token`.
pub fn needs_write_back(answers: &[Answer<AcquireReply>], token: FencingToken) -> bool {
    let have = grants(answers).filter(|granted| granted.token.is_some_and(|has| has >= token));
    have.count() < majority(answers.len())
}

/// Whether a node that gave this answer must release its part of an acquire that failed as a whole.
///
/// A first acquire is rolled back wherever it may have acted. A node that did nothing for certain is left alone: a
/// release would wake the waiters of the key, which would be refused and roll back in turn. What was sent `again`
/// may belong to a lease that is still held: only what is certainly fresh is rolled back.
pub fn rolls_back(answer: &Result<AcquireReply>, again: bool) -> bool {
    match answer {
        Ok(AcquireReply::Granted(granted)) => granted.fresh || !again,
        Ok(AcquireReply::Refused(_)) => false,
        Err(error) => error.effect() == Effect::Unknown && !again,
    }
}

/// True if a majority of the nodes granted or may have granted.
pub fn may_have_granted(answers: &[Answer<AcquireReply>]) -> bool {
    let may = |answer: &&Answer<AcquireReply>| match answer {
        Some(answer) => rolls_back(answer, false),
        None => true,
    };
    answers.iter().filter(may).count() >= majority(answers.len())
}

fn vote(acquired: &AcquireReply) -> Option<bool> {
    match acquired {
        AcquireReply::Granted(_) => Some(true),
        AcquireReply::Refused(refused) if matches!(refused.why, RefusalReason::Busy) => None,
        AcquireReply::Refused(_) => Some(false),
    }
}

fn grants(answers: &[Answer<AcquireReply>]) -> impl Iterator<Item = &Granted> {
    answers.iter().flatten().filter_map(|answer| match answer {
        Ok(AcquireReply::Granted(granted)) => Some(granted),
        _ => None,
    })
}

/// `None` while the answer of a node can still decide which lease or which token it is.
fn grant(
    answers: &[Answer<AcquireReply>],
    again: Option<FencingToken>,
    tokens: bool,
) -> Option<Granted> {
    let needed = majority(answers.len());
    let pending = answers.iter().filter(|answer| answer.is_none()).count();
    let confirmed = || grants(answers).filter(|granted| !granted.fresh);
    let confirming = confirmed().count();
    let fresh = confirming < needed;
    if fresh && confirming + pending >= needed {
        return None;
    }
    let agreed = |token: &FencingToken| {
        confirmed().filter(|granted| granted.token == Some(*token)).count() >= needed
    };
    let known = || grants(answers).filter_map(|granted| granted.token);
    let token = match (tokens, fresh) {
        (false, _) => None,
        // There is no larger token, so there is no grant.
        (true, true) => {
            grants(answers).map(new_token).collect::<Option<Vec<_>>>()?.into_iter().max()
        }
        (true, false) => match again.or_else(|| known().find(agreed)) {
            Some(token) => Some(token),
            None if pending > 0 => return None,
            None => known().max(),
        },
    };
    let remaining =
        held_by_majority(answers.len(), grants(answers).map(|granted| granted.remaining))?;
    Some(Granted::new(token, remaining, fresh))
}

/// The least token that a fresh grant may have after this node's answer.
fn new_token(granted: &Granted) -> Option<FencingToken> {
    let token = granted.token?;
    if granted.fresh { Some(token) } else { FencingToken::new(token.get() + 1).ok() }
}

/// The longest pause after a split vote.
const SPLIT_POLL: Duration = Duration::from_secs(1);

/// The refusal of the node whose term must end last before a majority can grant.
fn refusal(answers: &[Answer<AcquireReply>]) -> Option<Refused> {
    let mut refusals: Vec<_> = answers
        .iter()
        .flatten()
        .filter_map(|answer| match answer {
            Ok(AcquireReply::Refused(refused)) if !matches!(refused.why, RefusalReason::Busy) => {
                Some(refused)
            }
            _ => None,
        })
        .collect();
    refusals
        .sort_by_key(|refused| (refused.retry_after.is_none(), refused.retry_after, &refused.key));
    let free = grants(answers).count();
    let at = (majority(answers.len()) - 1).checked_sub(free)?.min(refusals.len().checked_sub(1)?);
    let awaited = refusals[at];
    let mut refused = Refused::new(awaited.key.clone(), awaited.why.clone(), retry_after(answers));
    let named = || {
        refusals.iter().filter(|refused| refused.poll_within.is_none()).filter_map(|r| holder(r))
    };
    let agree = |one| named().filter(|other| *other == one).count() >= majority(answers.len());
    if !named().any(agree) {
        let within = refusals.iter().filter_map(|refused| refused.poll_within).min();
        refused.poll_within = Some(within.unwrap_or(SPLIT_POLL));
    }
    Some(refused)
}

/// The lease that a refusal names.
fn holder(refused: &Refused) -> Option<&LeaseId> {
    match &refused.why {
        RefusalReason::Held(Some(holder)) => holder.id.as_ref(),
        _ => None,
    }
}
