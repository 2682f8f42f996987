//! Every combination for few nodes, compared with definitions that share nothing with the code.

mod acquire;
mod later_answers;

use std::time::Duration;

use super::*;
use crate::{
    AcquireReply, Effect, Error, ErrorKind, FencingToken, Granted, Key, LeaseId, Level, LostReason,
    Mode, Record, RecordTerm, RefusalReason, Refused, ReleaseOutcome, Remaining, RenewOutcome,
};

const S: Duration = Duration::from_secs(1);

fn token(value: u64) -> FencingToken {
    FencingToken::new(value).unwrap()
}

fn granted(rest: u32, value: u64, fresh: bool) -> Answer<AcquireReply> {
    let granted = Granted::new(Some(token(value)), Remaining::For(rest * S), fresh);
    Some(Ok(AcquireReply::Granted(granted)))
}

fn refused(after: Option<u32>) -> Answer<AcquireReply> {
    refused_because(RefusalReason::Held(None), after)
}

fn refused_because(why: RefusalReason, after: Option<u32>) -> Answer<AcquireReply> {
    let after = after.map(|after| after * S);
    Some(Ok(AcquireReply::Refused(Refused::new(Key::new("job").unwrap(), why, after))))
}

fn failed<T>(effect: Effect) -> Answer<T> {
    Some(Err(Error::unavailable(effect, "no reply")))
}

fn quarantined(after: u32) -> Answer<AcquireReply> {
    Some(Err(Error::unavailable(Effect::NotApplied, "in quarantine").with_retry_after(after * S)))
}

/// Every way to give each of `nodes` nodes one of `kinds`; the number of ways.
fn every<T: Clone>(nodes: usize, kinds: &[T], mut visit: impl FnMut(&[T])) -> usize {
    let ways = kinds.len().pow(u32::try_from(nodes).unwrap());
    for way in 0..ways {
        let mut rest = way;
        let pick = |_| {
            let kind = kinds[rest % kinds.len()].clone();
            rest /= kinds.len();
            kind
        };
        visit(&(0..nodes).map(pick).collect::<Vec<_>>());
    }
    ways
}

/// More than half, computed without the code's arithmetic.
fn most(count: usize, nodes: usize) -> bool {
    count * 2 > nodes
}

#[test]
fn a_majority_is_the_least_number_above_half() {
    for nodes in 1..100 {
        assert!(most(majority(nodes), nodes) && !most(majority(nodes) - 1, nodes));
    }
}

#[test]
fn verdict_of_every_count_for_up_to_seven_nodes() {
    let mut cases = 0;
    for nodes in 1..=7_usize {
        for yes in 0..=nodes {
            for no in 0..=nodes - yes {
                for failed in 0..=nodes - yes - no {
                    let pending = nodes - yes - no - failed;
                    // What is decided if no other node answers, and if the others answer in any way.
                    let is_yes = |yes| most(yes, nodes);
                    let is_no = |no| !most(nodes - no, nodes);
                    let can = |decided: &dyn Fn(usize) -> bool, now: usize| {
                        (0..=pending).any(|more| decided(now + more))
                    };
                    let expected = match (is_yes(yes), is_no(no)) {
                        (true, _) => Verdict::Yes,
                        (_, true) => Verdict::No,
                        _ if can(&is_yes, yes) || can(&is_no, no) => Verdict::Open,
                        _ => Verdict::Undecided,
                    };
                    let tally = Tally { nodes, yes, no, failed };
                    assert_eq!(tally.verdict(), expected, "{tally:?}");
                    assert!(!(is_yes(yes) && is_no(no)), "{tally:?} is both");
                    if pending == 0 {
                        assert_ne!(tally.verdict(), Verdict::Open, "{tally:?}");
                    }
                    cases += 1;
                }
            }
        }
    }
    assert_eq!(cases, 329);
}

/// The least value that a majority does not exceed, or the largest that a majority reaches, found by trying each.
fn reached<T: Copy + Ord>(values: &[T], nodes: usize, reach: fn(&T, &T) -> bool) -> Vec<T> {
    let by_most = |bar: &&T| most(values.iter().filter(|value| reach(value, bar)).count(), nodes);
    values.iter().filter(by_most).copied().collect()
}

fn acquire_kinds() -> [Answer<AcquireReply>; 11] {
    [
        None,
        failed(Effect::Unknown),
        quarantined(2),
        granted(10, 5, true),
        granted(9, 7, true),
        granted(8, 5, false),
        granted(7, 6, false),
        refused(None),
        refused(Some(1)),
        refused(Some(3)),
        refused_because(RefusalReason::Busy, None),
    ]
}

fn renewal_kinds() -> [Answer<RenewOutcome>; 6] {
    [
        None,
        failed(Effect::Unknown),
        Some(Ok(RenewOutcome::Held(Remaining::For(9 * S)))),
        Some(Ok(RenewOutcome::Held(Remaining::For(7 * S)))),
        Some(Ok(RenewOutcome::Lost(Some(LostReason::Gone)))),
        Some(Ok(RenewOutcome::Lost(Some(LostReason::Evicted(None))))),
    ]
}

#[test]
fn renewal_of_every_combination_of_answers() {
    let mut cases = 0;
    for nodes in 1..=5 {
        cases += every(nodes, &renewal_kinds(), |answers| {
            let pending = answers.iter().filter(|answer| answer.is_none()).count();
            let (mut rests, mut lost, mut evicted) = (vec![], 0, false);
            for answer in answers.iter().flatten().flatten() {
                match answer {
                    RenewOutcome::Held(rest) => rests.push(*rest),
                    RenewOutcome::Lost(reason) => {
                        lost += 1;
                        evicted |= matches!(reason, Some(LostReason::Evicted(_)));
                    }
                    RenewOutcome::Failed(_) => {}
                }
            }
            let is_blocked = |no| !most(nodes - no, nodes);
            match renew(answers) {
                Decision::Made(RenewOutcome::Held(rest)) => {
                    let expected = reached(&rests, nodes, |value, bar| value >= bar);
                    assert_eq!(Some(rest), expected.into_iter().max(), "{answers:?}");
                }
                Decision::Made(RenewOutcome::Lost(reason)) => {
                    assert!(is_blocked(lost), "{answers:?}");
                    let told = matches!(reason, Some(LostReason::Evicted(_)));
                    assert_eq!(told, evicted, "{answers:?}");
                }
                Decision::Made(RenewOutcome::Failed(_)) => panic!("{answers:?}"),
                Decision::Open => {
                    assert!(!most(rests.len(), nodes) && !is_blocked(lost), "{answers:?}");
                    assert!(
                        most(rests.len() + pending, nodes) || is_blocked(lost + pending),
                        "{answers:?}"
                    );
                }
                Decision::Undecided => assert!(
                    !most(rests.len() + pending, nodes) && !is_blocked(lost + pending),
                    "{answers:?}"
                ),
            }
            assert_eq!(answers.iter().filter(|answer| is_absent(answer)).count(), lost);
        });
    }
    println!("{cases} combinations");
}

#[test]
fn a_lost_lease_is_reported_with_the_reason_that_tells_most() {
    let reason = crate::Reason::new("maintenance").unwrap();
    let reasons = [
        None,
        Some(LostReason::Gone),
        Some(LostReason::Expired),
        Some(LostReason::Evicted(None)),
        Some(LostReason::Evicted(Some(reason))),
    ];
    for (less, more) in reasons.iter().zip(&reasons[1..]) {
        for pair in [[less, more], [more, less]] {
            let [first, second] = pair.map(|reason| Some(Ok(RenewOutcome::Lost(reason.clone()))));
            match renew(&[first, second, None]) {
                Decision::Made(RenewOutcome::Lost(reason)) => assert_eq!(reason, *more),
                other => panic!("{other:?}"),
            }
        }
    }
}

fn release_kinds() -> [Answer<ReleaseOutcome>; 7] {
    [
        None,
        failed(Effect::Unknown),
        Some(Ok(ReleaseOutcome::Released)),
        Some(Ok(ReleaseOutcome::Kept(2 * S))),
        Some(Ok(ReleaseOutcome::Kept(3 * S))),
        Some(Ok(ReleaseOutcome::Expired)),
        Some(Ok(ReleaseOutcome::NotHeld)),
    ]
}

#[test]
fn release_of_every_combination_of_answers() {
    let mut cases = 0;
    for nodes in 1..=5 {
        cases += every(nodes, &release_kinds(), |answers| {
            let pending = answers.iter().filter(|answer| answer.is_none()).count();
            let mut counts = [0; 4];
            let mut kept = vec![];
            for answer in answers.iter().flatten().flatten() {
                let at = match answer {
                    ReleaseOutcome::Released => 0,
                    ReleaseOutcome::Kept(rest) => {
                        kept.push(*rest);
                        1
                    }
                    ReleaseOutcome::Expired => 2,
                    ReleaseOutcome::NotHeld => 3,
                    ReleaseOutcome::Failed(_) => continue,
                };
                counts[at] += 1;
            }
            let is_gone = |not_held: usize| !most(nodes - not_held, nodes);
            let made = counts.iter().position(|count| most(*count, nodes));
            let expected = made.or_else(|| is_gone(counts[3]).then_some(3));
            let reachable = is_gone(counts[3] + pending)
                || counts.iter().any(|count| most(count + pending, nodes));
            match (release(answers), expected) {
                (Decision::Made(ReleaseOutcome::Kept(rest)), Some(1)) => {
                    let rests = reached(&kept, nodes, |value, bar| value >= bar);
                    assert_eq!(Some(rest), rests.into_iter().max(), "{answers:?}");
                }
                (Decision::Made(ReleaseOutcome::Released), Some(0))
                | (Decision::Made(ReleaseOutcome::Expired), Some(2))
                | (Decision::Made(ReleaseOutcome::NotHeld), Some(3)) => {}
                (Decision::Open, None) => assert!(reachable, "{answers:?}"),
                (Decision::Undecided, None) => assert!(!reachable, "{answers:?}"),
                (other, _) => panic!("{answers:?}: {other:?}, expected {expected:?}"),
            }
        });
    }
    println!("{cases} combinations");
}

#[test]
fn a_lasting_failure_is_reported_if_it_blocks_a_majority() {
    let denied = || Some(Err(Error::denied("no")));
    let corrupt = || Some(Err(Error::corrupt("no")));
    for (answers, expected) in [
        (vec![denied(), denied(), None], Some(ErrorKind::Denied)),
        (vec![denied(), corrupt(), None], None),
        (vec![denied(), denied(), None, None, None], None),
        (vec![denied(), denied(), None, None, denied()], Some(ErrorKind::Denied)),
        (vec![denied(), failed(Effect::NotApplied), failed(Effect::NotApplied)], None),
        (vec![denied(), None, failed(Effect::NotApplied), denied()], Some(ErrorKind::Denied)),
        (
            vec![
                failed(Effect::NotApplied),
                failed(Effect::NotApplied),
                failed(Effect::NotApplied),
            ],
            None,
        ),
    ] {
        let answers: Vec<Answer<()>> = answers;
        assert_eq!(lasting_failure(&answers), expected, "{answers:?}");
    }
}

#[test]
fn a_quorum_can_do_what_all_its_nodes_can() {
    let mut wide = crate::Capabilities::none("wide");
    (wide.shared, wide.shared_limit, wide.many_keys, wide.never) = (true, true, true, true);
    (wide.keep, wide.tokens, wide.notifications, wide.reports_expired) = (true, true, true, true);
    wide.raise = true;
    let mut narrow = wide;
    (narrow.keep, narrow.max_claims, narrow.min_term) = (false, Some(3), S);
    (narrow.margin, narrow.text_ids, narrow.max_key_bytes) = (3 * S, true, 100);
    let can = capabilities("quorum", &[wide, narrow, wide], 60 * S, true);
    assert!(can.many_keys && can.tokens && can.raise && can.notifications && can.reports_expired);
    assert!(!can.shared && !can.shared_limit && !can.never && !can.keep && !can.fair);
    assert_eq!((can.max_claims, can.min_term, can.max_term), (Some(3), S, 60 * S));
    assert_eq!((can.margin, can.text_ids, can.max_key_bytes), (3 * S, true, 100));
    narrow.raise = false;
    let can = capabilities("quorum", &[wide, narrow, wide], 60 * S, true);
    assert!(!can.tokens && !can.raise, "a majority could not take the grant's token");
    let unfenced = capabilities("quorum", &[wide], 60 * S, false);
    assert!(!unfenced.tokens && unfenced.shared && !unfenced.shared_limit && !unfenced.text_ids);
    let levels = [Level::FencedWrite, Level::Fenced];
    assert_eq!((level(levels, true), level(levels, false)), (Level::Fenced, Level::Lease));
    assert_eq!(level([Level::Fenced, Level::BestEffort], true), Level::BestEffort);
}
