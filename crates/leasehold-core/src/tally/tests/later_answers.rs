//! A decision holds, whatever the nodes answer that it did not wait for.

use super::*;

/// Visits every combination of `kinds` that lacks an answer, with what each answer of the first such node makes of it.
fn every_next<T: Clone>(
    nodes: usize,
    kinds: &[Answer<T>],
    visit: impl Fn(&[Answer<T>], &[Answer<T>]),
) {
    every(nodes, kinds, |before| {
        let Some(at) = before.iter().position(Option::is_none) else { return };
        for kind in kinds.iter().filter(|kind| kind.is_some()) {
            let mut after = before.to_vec();
            after[at].clone_from(kind);
            visit(before, &after);
        }
    });
}

#[test]
fn of_an_acquire() {
    for nodes in 1..=4 {
        every_next(nodes, &acquire_kinds(), |before, after| {
            for again in [None, Some(token(4))] {
                for tokens in [false, true] {
                    let [was, is] = [before, after].map(|answers| acquire(answers, again, tokens));
                    match (&was, &is) {
                        (Decision::Open, _) | (Decision::Undecided, Decision::Undecided) => {}
                        (
                            Decision::Made(AcquireReply::Granted(was)),
                            Decision::Made(AcquireReply::Granted(is)),
                        ) => {
                            assert_eq!(was.fresh, is.fresh, "{before:?}, then {after:?}");
                            assert!(was.remaining <= is.remaining, "{before:?}, then {after:?}");
                            if !was.fresh {
                                assert_eq!(was.token, is.token, "{before:?}, then {after:?}");
                            }
                        }
                        (
                            Decision::Made(AcquireReply::Refused(_)),
                            Decision::Made(AcquireReply::Refused(_)),
                        ) => {}
                        _ => panic!("{before:?}: {was:?}, then {after:?}: {is:?}"),
                    }
                }
            }
        });
    }
}

#[test]
fn of_a_renewal() {
    for nodes in 1..=5 {
        every_next(nodes, &renewal_kinds(), |before, after| match (renew(before), renew(after)) {
            (Decision::Open, _)
            | (Decision::Undecided, Decision::Undecided)
            | (Decision::Made(RenewOutcome::Lost(_)), Decision::Made(RenewOutcome::Lost(_))) => {}
            (Decision::Made(RenewOutcome::Held(was)), Decision::Made(RenewOutcome::Held(is)))
                if was <= is => {}
            (was, is) => panic!("{before:?}: {was:?}, then {after:?}: {is:?}"),
        });
    }
}

#[test]
fn of_a_release() {
    for nodes in 1..=5 {
        every_next(nodes, &release_kinds(), |before, after| {
            match (release(before), release(after)) {
                (Decision::Open, _) | (Decision::Undecided, Decision::Undecided) => {}
                (
                    Decision::Made(ReleaseOutcome::Kept(was)),
                    Decision::Made(ReleaseOutcome::Kept(is)),
                ) => assert!(was <= is, "{before:?}, then {after:?}"),
                (Decision::Made(was), Decision::Made(is)) => {
                    assert_eq!(format!("{was:?}"), format!("{is:?}"), "{before:?}, then {after:?}");
                }
                (was, is) => panic!("{before:?}: {was:?}, then {after:?}: {is:?}"),
            }
        });
    }
}
