use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

use leasehold_core::{FencingToken, Key, LeaseId, Mode};

use super::calls::{Answer, Belief, Call, History};

/// A result that no correct store can give.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Violation {
    /// Two clients believed at the same instant in leases that exclude each other.
    Overlap(Key, LeaseId, LeaseId),
    /// More leases were believed in at one instant than the limit of any of them admits.
    TooMany(Key, usize),
    /// A later grant does not have a larger token than an earlier one.
    TokenOrder(Key, LeaseId, LeaseId),
    /// One lease has two tokens.
    TokenChanged(LeaseId),
    /// One attempt was granted twice as fresh.
    GrantedTwice(LeaseId),
    /// A lease was confirmed, renewed or released that nobody had requested.
    Unfounded(LeaseId),
    /// A lease that had ended was confirmed, renewed or released.
    Revived(LeaseId),
    /// An acquire was refused although nobody can have held what it requested.
    RefusedByNobody(LeaseId),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Overlap(key, one, other) => {
                write!(f, "{key:?} was held by {one} and {other} at the same time")
            }
            Self::TooMany(key, count) => {
                write!(f, "{key:?} had {count} holders, more than the limit of any of them")
            }
            Self::TokenOrder(key, earlier, later) => {
                write!(f, "on {key:?} the token of {later} is not above that of {earlier}")
            }
            Self::TokenChanged(id) => write!(f, "the lease {id} has two tokens"),
            Self::GrantedTwice(id) => write!(f, "the attempt {id} was granted afresh twice"),
            Self::Unfounded(id) => write!(f, "the lease {id} was found and never asked for"),
            Self::Revived(id) => write!(f, "the lease {id} was found after it had ended"),
            Self::RefusedByNobody(id) => {
                write!(f, "the attempt {id} was refused and nobody can have held its keys")
            }
        }
    }
}

/// Finds results that no correct store can give.
pub fn check(history: &History) -> Vec<Violation> {
    let mut found = Vec::new();
    beliefs(history, &mut found);
    tokens(history, &mut found);
    lives(history, &mut found);
    refusals(history, &mut found);
    found
}

/// Checks, key by key, the instants at which beliefs begin.
///
/// Of the leases that are believed in at one instant, one was admitted last, and the store knew the others then.
/// So either all are shared, and the limit of that one is at least their number, or there is only one.
fn beliefs(history: &History, found: &mut Vec<Violation>) {
    let mut by_key: BTreeMap<&Key, Vec<(&Belief, Mode)>> = BTreeMap::new();
    for belief in &history.beliefs {
        for claim in &belief.claims {
            by_key.entry(&claim.key).or_default().push((belief, claim.mode));
        }
    }
    for (key, mut beliefs) in by_key {
        beliefs.sort_by_key(|(belief, _)| belief.from);
        let mut believed: Vec<(&Belief, Mode)> = Vec::new();
        for (belief, mode) in beliefs {
            believed.retain(|(other, _)| other.until >= belief.from && other.id != belief.id);
            let against =
                believed.iter().find(|(_, other)| !other.is_shared() || !mode.is_shared());
            if let Some((other, _)) = against {
                found.push(Violation::Overlap(key.clone(), other.id.clone(), belief.id.clone()));
            }
            believed.push((belief, mode));
            let limits =
                believed.iter().map(|(_, mode)| match mode.limited_to(history.max_holders) {
                    Mode::Shared { max: Some(max) } => {
                        usize::try_from(max.get()).unwrap_or(usize::MAX)
                    }
                    Mode::Shared { max: None } | Mode::Exclusive => usize::MAX,
                });
            if limits.max().is_some_and(|limit| believed.len() > limit) {
                found.push(Violation::TooMany(key.clone(), believed.len()));
            }
        }
    }
}

/// A grant requested after another was answered has a larger token; no two grants have the same one.
fn tokens(history: &History, found: &mut Vec<Violation>) {
    let mut of_lease: HashMap<&LeaseId, FencingToken> = HashMap::new();
    let mut by_key: BTreeMap<&Key, Vec<(&Call, FencingToken)>> = BTreeMap::new();
    for call in &history.calls {
        let Answer::Granted { token: Some(token), fresh } = call.answer else { continue };
        if *of_lease.entry(&call.id).or_insert(token) != token {
            found.push(Violation::TokenChanged(call.id.clone()));
        }
        if fresh {
            for key in call.claims.keys() {
                by_key.entry(key).or_default().push((call, token));
            }
        }
    }
    for (key, mut grants) in by_key {
        let mut answered = grants.clone();
        answered.sort_by_key(|(call, _)| call.returned);
        grants.sort_by_key(|(call, _)| call.invoked);
        let mut answered = answered.into_iter().peekable();
        let mut highest: Option<(&Call, FencingToken)> = None;
        let mut seen: BTreeMap<FencingToken, &LeaseId> = BTreeMap::new();
        for (call, token) in grants {
            while let Some(earlier) =
                answered.next_if(|(earlier, _)| earlier.returned < call.invoked)
            {
                if highest.is_none_or(|(_, token)| token < earlier.1) {
                    highest = Some(earlier);
                }
            }
            let above = highest.filter(|(earlier, high)| *high >= token && earlier.id != call.id);
            if let Some((earlier, _)) = above {
                let (earlier, later) = (earlier.id.clone(), call.id.clone());
                found.push(Violation::TokenOrder(key.clone(), earlier, later));
            } else if let Some(other) = seen.insert(token, &call.id).filter(|id| **id != call.id) {
                found.push(Violation::TokenOrder(key.clone(), other.clone(), call.id.clone()));
            }
        }
    }
}

/// A lease begins with one attempt and ends once.
fn lives(history: &History, found: &mut Vec<Violation>) {
    let mut leases: BTreeMap<&LeaseId, Vec<&Call>> = BTreeMap::new();
    for call in &history.calls {
        leases.entry(&call.id).or_default().push(call);
    }
    for (id, calls) in leases {
        let fresh = |call: &&&Call| matches!(call.answer, Answer::Granted { fresh: true, .. });
        if calls.iter().filter(fresh).count() > 1 {
            found.push(Violation::GrantedTwice(id.clone()));
        }
        let asked = |call: &Call| {
            matches!(call.answer, Answer::Granted { fresh: true, .. } | Answer::AcquireUnknown)
        };
        let found_it = |call: &Call| {
            matches!(
                call.answer,
                Answer::Granted { fresh: false, .. } | Answer::Held | Answer::Released
            )
        };
        let begun = calls.iter().filter(|call| asked(call)).map(|call| call.invoked).min();
        let first_found =
            calls.iter().filter(|call| found_it(call)).map(|call| call.returned).min();
        if first_found.is_some_and(|at| begun.is_none_or(|begun| at < begun)) {
            found.push(Violation::Unfounded(id.clone()));
        }
        // An acquire without an answer may act after a release that found nothing.
        if calls.iter().any(|call| call.answer == Answer::AcquireUnknown) {
            continue;
        }
        let ended =
            calls.iter().filter(|call| call.answer.is_end()).map(|call| call.returned).min();
        let alive = |call: &&&Call| {
            (found_it(call) || fresh(call)) && ended.is_some_and(|ended| ended < call.invoked)
        };
        if calls.iter().any(|call| alive(&call)) {
            found.push(Violation::Revived(id.clone()));
        }
    }
}

impl Answer {
    /// After this answer the lease is no longer live.
    fn is_end(self) -> bool {
        matches!(self, Self::Lost | Self::Released | Self::Ended)
    }
}

/// When a lease may have lived: from the first request that may have begun it to the first answer that it has
/// ended.
struct Life<'a> {
    id: &'a LeaseId,
    mode: Mode,
    from: u64,
    until: u64,
}

/// A refusal needs a holder, or as many as fill the limit.
fn refusals(history: &History, found: &mut Vec<Violation>) {
    let lives = possible_lives(history);
    for call in history.calls.iter().filter(|call| call.answer == Answer::Refused) {
        let justified = call.claims.iter().any(|claim| {
            let others: Vec<_> = lives
                .get(&claim.key)
                .into_iter()
                .flatten()
                .filter(|life| {
                    *life.id != call.id && life.from <= call.returned && call.invoked <= life.until
                })
                .collect();
            let writers = others.iter().filter(|life| !life.mode.is_shared()).count();
            match claim.mode.limited_to(history.max_holders) {
                Mode::Exclusive => !others.is_empty(),
                Mode::Shared { max: None } => writers > 0,
                Mode::Shared { max: Some(max) } => {
                    let max = usize::try_from(max.get()).unwrap_or(usize::MAX);
                    writers > 0 || others.len() >= max
                }
            }
        });
        if !justified {
            found.push(Violation::RefusedByNobody(call.id.clone()));
        }
    }
}

fn possible_lives(history: &History) -> BTreeMap<&Key, Vec<Life<'_>>> {
    let mut ends: HashMap<&LeaseId, u64> = HashMap::new();
    let mut unknown: BTreeSet<&LeaseId> = BTreeSet::new();
    for call in &history.calls {
        if call.answer.is_end() {
            let end = ends.entry(&call.id).or_insert(u64::MAX);
            *end = call.returned.min(*end);
        }
        if call.answer == Answer::AcquireUnknown {
            unknown.insert(&call.id);
        }
    }
    let mut lives: BTreeMap<&Key, Vec<Life<'_>>> = BTreeMap::new();
    for call in &history.calls {
        let end = match call.answer {
            // A request without an answer may begin a lease after its end was reported.
            Answer::AcquireUnknown => None,
            Answer::Granted { fresh: true, .. } => {
                ends.get(&call.id).copied().filter(|_| !unknown.contains(&call.id))
            }
            Answer::Refused | Answer::Busy if history.withdraws => Some(call.returned),
            _ => continue,
        };
        for claim in &call.claims {
            lives.entry(&claim.key).or_default().push(Life {
                id: &call.id,
                mode: claim.mode,
                from: call.invoked,
                until: end.unwrap_or(u64::MAX),
            });
        }
    }
    lives
}

#[cfg(test)]
mod tests;
