use super::*;
use crate::{
    ErrorKind, LostReason, ReleaseEntry, ReleaseOutcome, ReleaseRequest, RenewEntry, RenewOutcome,
    RenewRequest,
};

fn renewal(name: &str, names: &str, to: Ttl) -> RenewEntry {
    RenewEntry::extend(id(name), Claims::all(keys(names), Mode::SHARED).unwrap(), to)
}

fn renew(table: &mut Table, renewal: RenewEntry, now: Now) -> RenewOutcome {
    let mut reply = table.renew(&RenewRequest::new(vec![renewal]), now);
    assert_eq!(reply.leases.len(), 1);
    reply.leases.remove(0)
}

fn release(table: &mut Table, lease: ReleaseEntry, now: Now) -> ReleaseOutcome {
    let mut reply = table.release(&ReleaseRequest::new(vec![lease]), now);
    assert_eq!(reply.leases.len(), 1);
    reply.leases.remove(0)
}

fn of_lease<'a>(table: &'a Table, name: &str, of: &str) -> &'a Holder {
    let mut holders = table.holders(&key(of)).iter();
    holders.find(|holder| holder.id == Some(id(name))).unwrap()
}

/// A lease of token 7 on `a` and `b` until second 9, beside another one on `a`.
fn shared() -> Table {
    let mut table = Table::default();
    let lease = || holder("w", Mode::SHARED, Some(9));
    put(&mut table, "a", [holder("other", Mode::SHARED, Some(9)), lease()]);
    put(&mut table, "b", [lease()]);
    table
}

#[test]
fn a_renewal_extends_every_key_and_never_shortens() {
    let mut table = shared();
    for (to, rest) in [
        (seconds(1), left(8)),
        (seconds(20), left(20)),
        (Ttl::NEVER, Remaining::Never),
        (seconds(1), Remaining::Never),
    ] {
        let outcome = renew(&mut table, renewal("w", "a b", to), at(1));
        assert!(matches!(outcome, RenewOutcome::Held(left) if left == rest), "{outcome:?}");
        for (name, at_key) in [("a", 1), ("b", 0)] {
            let holder = &table.holders(&key(name))[at_key];
            assert_eq!(holder.remaining(at(1)), rest);
            assert_eq!((holder.renewed_at, holder.token), (Some(at(1).wall_micros), token(7)));
        }
    }
    assert_eq!(table.holders(&key("a"))[0], holder("other", Mode::SHARED, Some(9)));
}

#[test]
fn a_renewal_raises_tokens_and_never_lowers_them() {
    let mut table = shared();
    for (raise, expected) in [(9, 9), (3, 9)] {
        let renewal = renewal("w", "a b", seconds(9)).with_token_raised_to(token(raise));
        assert!(matches!(renew(&mut table, renewal, at(1)), RenewOutcome::Held(_)));
        for name in ["a", "b"] {
            let holder = of_lease(&table, "w", name);
            assert_eq!((table.mark(), holder.token), (expected, token(expected)));
        }
    }
}

#[test]
fn a_raise_far_above_every_token_is_refused_and_changes_nothing() {
    for (mark, most) in
        [(7, MOST_OF_CLOCK + MOST_RAISE), (MOST_OF_CLOCK + 9, MOST_OF_CLOCK + 9 + MOST_RAISE)]
    {
        for (name, names) in [("w", "a b"), ("w", "a b c"), ("gone", "a")] {
            let mut table = shared().with_mark(mark);
            let before = table.clone();
            let raise = |to| renewal(name, names, seconds(20)).with_token_raised_to(token(to));
            match renew(&mut table, raise(most + 1), at(1)) {
                RenewOutcome::Failed(error) => {
                    assert_eq!(error.kind(), ErrorKind::InvalidInput);
                    assert!(error.to_string().contains(&most.to_string()), "{error}");
                }
                other => panic!("{other:?}"),
            }
            assert_eq!(table, before);
        }
        let mut table = shared().with_mark(mark);
        let highest = renewal("w", "a b", seconds(20)).with_token_raised_to(token(most));
        assert!(matches!(renew(&mut table, highest, at(1)), RenewOutcome::Held(_)));
        assert_eq!((table.mark(), of_lease(&table, "w", "b").token), (most, token(most)));
    }
}

#[test]
fn a_renewal_in_another_mode_fails_and_changes_nothing() {
    let mut table = shared();
    let before = table.clone();
    let claims = Claims::all(keys("a b"), Mode::Exclusive).unwrap();
    let renewal = RenewEntry::extend(id("w"), claims, seconds(20));
    match renew(&mut table, renewal, at(1)) {
        RenewOutcome::Failed(error) => assert_eq!(error.kind(), ErrorKind::InvalidInput),
        other => panic!("{other:?}"),
    }
    assert_eq!(table, before);
}

#[test]
fn a_broken_lease_is_lost_with_its_reason_and_removed_from_its_other_keys() {
    let reason = || Some(Reason::new("maintenance").unwrap());
    let lease = |ends| holder("w", Mode::SHARED, Some(ends));
    for (rest, expected) in [
        (vec![], LostReason::Gone),
        (vec![in_state(State::Kept, lease(9))], LostReason::Gone),
        (vec![lease(2)], LostReason::Expired),
        (vec![in_state(State::Evicted(None), lease(9))], LostReason::Evicted(None)),
        (vec![in_state(State::Evicted(reason()), lease(9))], LostReason::Evicted(reason())),
    ] {
        let mut table = shared();
        put(&mut table, "b", rest);
        match renew(&mut table, renewal("w", "a b", seconds(20)), at(2)) {
            RenewOutcome::Lost(Some(lost)) => assert_eq!(lost, expected),
            other => panic!("{other:?}"),
        }
        assert_eq!(ids(&table, "a"), ["other"]);
    }
}

#[test]
fn an_eviction_is_reported_before_an_expiry() {
    let mut table = Table::default();
    let lease = holder("w", Mode::SHARED, Some(2));
    put(&mut table, "a", [in_state(State::Evicted(None), lease.clone())]);
    put(&mut table, "b", [lease]);
    let outcome = renew(&mut table, renewal("w", "a b", seconds(9)), at(2));
    assert!(matches!(outcome, RenewOutcome::Lost(Some(LostReason::Evicted(None)))), "{outcome:?}");
}

#[test]
fn a_request_with_another_token_does_not_reach_the_lease() {
    let mut table = shared();
    let before = table.clone();
    let late = renewal("w", "a b", seconds(20)).with_token(token(6));
    let outcome = renew(&mut table, late, at(1));
    assert!(matches!(outcome, RenewOutcome::Lost(Some(LostReason::Gone))), "{outcome:?}");
    let late = ReleaseEntry::new(id("w"), keys("a b")).with_token(token(6));
    assert!(matches!(release(&mut table, late, at(1)), ReleaseOutcome::NotHeld));
    assert_eq!(table, before);
    let own = renewal("w", "a b", seconds(20)).with_token(token(7));
    assert!(matches!(renew(&mut table, own, at(1)), RenewOutcome::Held(_)));
    let own = ReleaseEntry::new(id("w"), keys("a b")).with_token(token(7));
    assert!(matches!(release(&mut table, own, at(1)), ReleaseOutcome::Released));
}

#[test]
fn a_release_ends_the_lease_on_all_keys_and_states_what_it_found() {
    for (on_b, now, expected) in [
        (Some(holder("w", Mode::SHARED, Some(9))), 8, "Released"),
        (Some(holder("w", Mode::SHARED, None)), 8, "Released"),
        (Some(holder("w", Mode::SHARED, Some(9))), 9, "Expired"),
        (Some(holder("w", Mode::SHARED, Some(3))), 8, "Expired"),
        (None, 8, "NotHeld"),
    ] {
        for keep in [Duration::ZERO, 5 * S] {
            let mut table = shared();
            put(&mut table, "b", Vec::from_iter(on_b.clone()));
            let lease = ReleaseEntry::new(id("w"), keys("a b")).with_keep(keep);
            let outcome = format!("{:?}", release(&mut table, lease, at(now)));
            if keep.is_zero() || expected != "Released" {
                assert_eq!(outcome, expected);
                assert_eq!((ids(&table, "a"), ids(&table, "b")), (vec!["other".into()], vec![]));
                continue;
            }
            assert_eq!(outcome, "Kept(5s)");
            for name in ["a", "b"] {
                let holder = of_lease(&table, "w", name);
                assert_eq!((&holder.state, holder.expires), (&State::Kept, Some(at(13).boot)));
            }
        }
    }
}

#[test]
fn keys_stay_taken_whatever_a_later_release_requests() {
    let mut table = shared();
    let lease = |keep| ReleaseEntry::new(id("w"), keys("a b")).with_keep(keep);
    release(&mut table, lease(5 * S), at(1));
    let kept = table.clone();
    for (keep, now, expected) in
        [(9 * S, 2, "Kept(4s)"), (Duration::ZERO, 2, "NotHeld"), (9 * S, 6, "NotHeld")]
    {
        assert_eq!(format!("{:?}", release(&mut table, lease(keep), at(now))), expected);
        assert_eq!(table, kept);
    }
    // On one of its keys it is not kept any more.
    put(&mut table, "b", []);
    assert!(matches!(release(&mut table, lease(9 * S), at(2)), ReleaseOutcome::NotHeld));
}

#[test]
fn a_request_ends_its_own_live_lease_and_no_more() {
    let held = || holder("w", Mode::Exclusive, Some(5));
    let ending = || ReleaseEntry::new(id("w"), [key("a")]);
    for (record, ending, now, is_ended) in [
        (held(), ending(), at(4), true),
        (held(), ending().with_token(token(7)), at(4), true),
        (held(), ending().with_token(token(8)), at(4), false),
        (held(), ending().with_keep(S), at(4), false),
        (held(), ending(), at(5), false),
        (holder("x", Mode::Exclusive, Some(5)), ending(), at(4), false),
        (in_state(State::Kept, held()), ending(), at(4), false),
        (in_state(State::Evicted(None), held()), ending(), at(4), false),
    ] {
        assert_eq!(record.is_ended_by(&ending, now), is_ended, "{record:?} {ending:?}");
    }
}
