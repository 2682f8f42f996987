use super::*;

#[test]
fn acquire_of_every_combination_of_answers() {
    let mut cases = 0;
    for nodes in 1..=4 {
        cases += every(nodes, &acquire_kinds(), judge_acquire);
    }
    println!("{cases} combinations");
}

fn judge_acquire(answers: &[Answer<AcquireReply>]) {
    let nodes = answers.len();
    let pending = answers.iter().filter(|answer| answer.is_none()).count();
    let (mut rests, mut tokens, mut kept, mut new, mut refusing, mut known) =
        (vec![], vec![], vec![], vec![], 0, vec![]);
    for answer in answers.iter().flatten() {
        match answer {
            Ok(AcquireReply::Granted(granted)) => {
                rests.push(granted.remaining);
                tokens.push(granted.token.unwrap());
                known.push(Duration::ZERO);
                let given = granted.token.unwrap();
                if granted.fresh {
                    new.push(given);
                } else {
                    kept.push(given);
                    new.push(token(given.get() + 1));
                }
            }
            Ok(AcquireReply::Refused(refused)) => {
                refusing += usize::from(!matches!(refused.why, RefusalReason::Busy));
                known.extend(refused.retry_after);
            }
            Err(error) => known.extend(error.retry_after()),
        }
    }
    let after = reached(&known, nodes, |value, bar| value <= bar).into_iter().min();
    assert_eq!(retry_after(answers), after, "{answers:?}");
    let is_blocked = |no| !most(nodes - no, nodes);
    for again in [None, Some(token(4))] {
        for with_tokens in [false, true] {
            let decision = acquire(answers, again, with_tokens);
            let what = format!("{answers:?} {again:?} {with_tokens}: {decision:?}");
            match &decision {
                Decision::Made(AcquireReply::Granted(given)) => {
                    assert!(most(rests.len(), nodes), "{what}");
                    let rest = reached(&rests, nodes, |value, bar| value >= bar).into_iter().max();
                    assert_eq!(Some(given.remaining), rest, "{what}");
                    assert_eq!(given.fresh, !most(kept.len(), nodes), "{what}");
                    let agreed = |wanted: FencingToken| {
                        most(kept.iter().filter(|token| **token == wanted).count(), nodes)
                    };
                    let largest = tokens.iter().max().copied();
                    let expected = match (with_tokens, given.fresh, again) {
                        (false, ..) => None,
                        (true, true, _) => new.iter().max().copied(),
                        (true, false, Some(named)) => Some(named),
                        (true, false, None) => {
                            kept.iter().copied().find(|t| agreed(*t)).or(largest)
                        }
                    };
                    assert_eq!(given.token, expected, "{what}");
                    if let Some(token) = given.token {
                        let have = tokens.iter().filter(|has| **has >= token).count();
                        assert_eq!(needs_write_back(answers, token), !most(have, nodes), "{what}");
                    }
                }
                Decision::Made(AcquireReply::Refused(told)) => {
                    assert!(is_blocked(refusing) && !most(rests.len(), nodes), "{what}");
                    assert_eq!(told.retry_after, after, "{what}");
                    assert!(matches!(told.why, RefusalReason::Held(_)), "{what}");
                }
                Decision::Open => {
                    assert!(pending > 0, "{what}");
                    // An answer that is still possible would change the decision.
                    let may_grant = most(rests.len() + pending, nodes);
                    assert!(may_grant || is_blocked(refusing + pending), "{what}");
                    if most(rests.len(), nodes) {
                        let may_confirm = !kept.is_empty() && most(kept.len() + pending, nodes);
                        assert!(may_confirm, "{what}");
                    }
                }
                Decision::Undecided => {
                    assert!(!most(rests.len() + pending, nodes), "{what}");
                    assert!(!is_blocked(refusing + pending), "{what}");
                }
            }
        }
    }
}

#[test]
fn a_failed_acquire_is_rolled_back_wherever_it_may_have_acted() {
    for (answer, first, again) in [
        (granted(9, 5, true), true, true),
        (granted(9, 5, false), true, false),
        (refused(Some(1)), false, false),
        (failed(Effect::Unknown), true, false),
        (failed(Effect::NotApplied), false, false),
        (quarantined(2), false, false),
    ] {
        let answer = answer.unwrap();
        assert_eq!((rolls_back(&answer, false), rolls_back(&answer, true)), (first, again));
    }
}

#[test]
fn the_refusal_names_the_holder_that_a_majority_waits_for() {
    let by = |name: &str, after| {
        let refused =
            Refused::new(Key::new(name).unwrap(), RefusalReason::Held(None), Some(after * S));
        Some(Ok(AcquireReply::Refused(refused)))
    };
    let named = |answers: &[Answer<AcquireReply>]| match acquire(answers, None, false) {
        Decision::Made(AcquireReply::Refused(refused)) => refused.key.to_string(),
        other => panic!("{other:?}"),
    };
    // The holder of a minority is not awaited, however short or long its term is.
    assert_eq!(named(&[by("minority", 1), by("most", 7), by("most", 7)]), "most");
    assert_eq!(named(&[by("most", 7), by("minority", 30), by("most", 7)]), "most");
    assert_eq!(named(&[granted(9, 1, true), by("later", 7), by("sooner", 5)]), "sooner");
}

#[test]
fn a_wake_up_follows_only_if_a_majority_names_the_same_lease() {
    let by = |name: Option<&[u8]>| {
        let key = Key::new("job").unwrap();
        let mut record = Record::new(key, Mode::Exclusive, RecordTerm::Live(Remaining::For(9 * S)));
        record.id = name.map(|name| LeaseId::foreign(name).unwrap());
        refused_because(RefusalReason::Held(Some(Box::new(record))), Some(9))
    };
    let kinds = [
        granted(9, 1, true),
        failed(Effect::Unknown),
        refused(Some(9)),
        by(None),
        by(Some(b"a")),
        by(Some(b"b")),
    ];
    for nodes in 1..=5 {
        every(nodes, &kinds, |answers| {
            let Decision::Made(AcquireReply::Refused(refused)) = acquire(answers, None, false)
            else {
                return;
            };
            let count = |name: &[u8]| {
                let is_by = |answer: &&Answer<AcquireReply>| match answer {
                    Some(Ok(AcquireReply::Refused(refused))) => match &refused.why {
                        RefusalReason::Held(Some(by)) => {
                            by.id.as_ref().is_some_and(|id| *id == LeaseId::foreign(name).unwrap())
                        }
                        _ => false,
                    },
                    _ => false,
                };
                answers.iter().filter(is_by).count()
            };
            let agreed = most(count(b"a"), nodes) || most(count(b"b"), nodes);
            assert_eq!(refused.poll_within.is_none(), agreed, "{answers:?}");
        });
    }
}

#[test]
fn a_foreign_holder_is_polled_as_often_as_the_nodes_report() {
    let by_foreign = || {
        let Some(Ok(AcquireReply::Refused(mut refused))) = refused(Some(9)) else { unreachable!() };
        refused.poll_within = Some(S / 5);
        Some(Ok(AcquireReply::Refused(refused)))
    };
    let answers = [by_foreign(), by_foreign(), refused(Some(9))];
    let Decision::Made(AcquireReply::Refused(refused)) = acquire(&answers, None, false) else {
        panic!("two of three refused")
    };
    assert_eq!(refused.poll_within, Some(S / 5));
}

#[test]
fn a_majority_may_have_granted_unless_enough_nodes_have_certainly_not() {
    let kinds = [
        None,
        granted(9, 1, true),
        granted(9, 1, false),
        refused(Some(9)),
        failed(Effect::Unknown),
        failed(Effect::NotApplied),
    ];
    for nodes in 1..=5 {
        every(nodes, &kinds, |answers| {
            let certainly_not = answers.iter().filter(|answer| match answer {
                Some(Ok(AcquireReply::Refused(_))) => true,
                Some(Err(error)) => error.effect() == Effect::NotApplied,
                _ => false,
            });
            let may = most(nodes - certainly_not.count(), nodes);
            assert_eq!(may_have_granted(answers), may, "{answers:?}");
        });
    }
}
