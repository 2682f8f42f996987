use std::num::NonZeroU32;

use super::*;
use crate::{ErrorKind, RefusalReason, ReleaseEntry, ReleaseRequest, RenewEntry, RenewRequest};

fn shared(max: u32) -> Mode {
    Mode::Shared { max: NonZeroU32::new(max) }
}

#[test]
fn a_grant_is_one_lease_on_all_keys() {
    let mut table = Table::default();
    let note = Note::default().with_comment("why").unwrap();
    let group = GroupName::new("g").unwrap();
    let ask = request("w", "a b", shared(3), seconds(9))
        .with_note(note.clone())
        .with_group(group.clone());
    let given = granted(table.acquire(&ask, at(1)));
    let token = token(at(1).wall_micros);
    assert_eq!((given.token, given.remaining, given.fresh), (Some(token), left(9), true));
    let expected = Holder {
        token,
        note,
        group: Some(group),
        granted_at: at(1).wall_micros,
        ..holder("w", Mode::SHARED, Some(10))
    };
    for name in ["a", "b"] {
        assert_eq!(table.holders(&key(name)), std::slice::from_ref(&expected));
    }
    assert_eq!(table.mark(), token.get());
}

#[test]
fn a_token_is_above_every_earlier_one() {
    let wall = at(0).wall_micros;
    for (mark, wall_micros, expected) in [
        (0, wall, Some(wall)),
        (wall - 1, wall, Some(wall)),
        (wall, wall, Some(wall + 1)),
        (wall + 40, wall, Some(wall + 41)),
        (0, 0, Some(1)),
        (0, u64::MAX, Some(MOST_OF_CLOCK)),
        (MOST_OF_CLOCK, u64::MAX, Some(MOST_OF_CLOCK + 1)),
        (FencingToken::MAX - 1, wall, Some(FencingToken::MAX)),
        (FencingToken::MAX, wall, None),
    ] {
        let mut table = Table::default().with_mark(mark);
        let before = table.clone();
        let now = Now { wall_micros, ..at(0) };
        let reply = table.acquire(&request("w", "a b", Mode::Exclusive, seconds(9)), now);
        match expected {
            Some(expected) => {
                assert_eq!(granted(reply).token, Some(token(expected)));
                assert_eq!(table.mark(), expected);
            }
            None => {
                let error = reply.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Corrupt);
                assert!(error.to_string().contains(&FencingToken::MAX.to_string()), "{error}");
                assert_eq!(table, before);
            }
        }
    }
}

#[test]
fn nothing_remains_of_a_key_that_nobody_holds() {
    let mut table = Table::default();
    let granted = granted(table.acquire(&request("w", "a b", Mode::SHARED, seconds(9)), at(0)));
    let ending = ReleaseEntry::new(id("w"), keys("a b"));
    table.release(&ReleaseRequest::new(vec![ending]), at(1));
    assert_eq!(table, Table::default().with_mark(granted.token.unwrap().get()));
}

#[test]
fn a_term_ends_at_the_next_whole_microsecond() {
    let mut table = Table::default();
    let now = Now { boot: Duration::from_nanos(1_500), ..at(0) };
    let given = granted(table.acquire(&request("w", "a", Mode::Exclusive, seconds(1)), now));
    assert_eq!(given.remaining, Remaining::For(S + Duration::from_nanos(500)));
    let ends = table.holders(&key("a"))[0].expires;
    assert_eq!(ends, Some(S + Duration::from_micros(2)));
}

#[test]
fn an_acquire_needs_a_finite_term() {
    let mut table = Table::default();
    let reply = table.acquire(&request("w", "a", Mode::Exclusive, Ttl::NEVER), at(0));
    assert_eq!(reply.unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(table, Table::default());
}

#[test]
fn what_is_live_decides_who_enters_and_until_when_the_others_wait() {
    let (x, s) = (Mode::Exclusive, Mode::SHARED);
    let held = |name, mode, ends| holder(name, mode, Some(ends));
    let (r, t) = (held("r", s, 5), held("t", s, 9));
    let forever = holder("f", s, None);
    let kept = in_state(State::Kept, held("k", x, 4));
    let evicted = in_state(State::Evicted(None), held("e", x, 4));
    let readers = vec![t.clone(), r.clone()];
    let none: Option<(&str, Option<u32>)> = None;
    for (holders, mode, blocker) in [
        (vec![], x, none),
        (vec![held("w", x, 5)], x, Some(("w", Some(4)))),
        (vec![held("w", x, 5)], s, Some(("w", Some(4)))),
        (vec![held("w", x, 1)], x, none),
        (vec![evicted], x, none),
        (vec![kept], s, Some(("k", Some(3)))),
        (readers.clone(), x, Some(("t", Some(8)))),
        (readers.clone(), s, none),
        (readers.clone(), shared(3), none),
        (readers.clone(), shared(2), Some(("r", Some(4)))),
        (readers.clone(), shared(1), Some(("t", Some(8)))),
        (vec![forever.clone(), r.clone()], shared(2), Some(("r", Some(4)))),
        (vec![r.clone(), forever], x, Some(("f", None))),
        (vec![r, held("over", s, 1)], shared(2), none),
    ] {
        let mut table = Table::default();
        put(&mut table, "a", holders);
        let before = table.clone();
        let reply = table.acquire(&request("new", "a", mode, seconds(9)), at(1));
        let Some((name, wait)) = blocker else {
            assert!(granted(reply).fresh);
            continue;
        };
        let refused = refused(reply);
        let RefusalReason::Held(Some(by)) = refused.why else { panic!("{refused:?}") };
        assert_eq!((by.id, refused.retry_after), (Some(id(name)), wait.map(|wait| wait * S)));
        assert_eq!(table, before);
    }
}

#[test]
fn a_grant_removes_what_is_over_and_nothing_else() {
    let mut table = Table::default();
    let told = in_state(State::Evicted(None), holder("told", Mode::SHARED, Some(2)));
    let read = in_state(State::Evicted(None), holder("read", Mode::SHARED, Some(1)));
    let over = holder("over", Mode::SHARED, Some(1));
    put(&mut table, "a", [told, read, over, holder("live", Mode::SHARED, Some(2))]);
    granted(table.acquire(&request("new", "a", Mode::SHARED, seconds(9)), at(1)));
    assert_eq!(ids(&table, "a"), ["told", "live", "new"]);
}

#[test]
fn a_limit_of_the_store_counts_like_one_of_the_request() {
    let two = NonZeroU32::new(2);
    for (mode, wait) in [(Mode::SHARED, 5), (shared(3), 5), (shared(1), 9)] {
        let mut table = Table::default().with_max_holders(two);
        let readers = [("r", 5), ("t", 9)].map(|(name, ends)| holder(name, mode, Some(ends)));
        put(&mut table, "a", readers);
        let refused = refused(table.acquire(&request("new", "a", mode, seconds(9)), at(0)));
        assert_eq!(refused.retry_after, Some(wait * S), "{mode:?}");
    }
}

#[test]
fn during_the_margin_only_the_lease_itself_enters() {
    let mut table = Table::default().with_margin(3 * S);
    put(&mut table, "a", [holder("w", Mode::Exclusive, Some(5))]);
    for (now, wait) in [(1, 7), (5, 3), (7, 1)] {
        let reply = table.acquire(&request("new", "a", Mode::Exclusive, seconds(9)), at(now));
        assert_eq!(refused(reply).retry_after, Some(wait * S));
    }
    for (name, now) in [("w", 5), ("new", 8)] {
        let mut table = table.clone();
        let reply = table.acquire(&request(name, "a", Mode::Exclusive, seconds(9)), at(now));
        assert!(granted(reply).fresh);
        assert_eq!(ids(&table, "a"), [name]);
    }
}

#[test]
fn a_refusal_names_the_first_key_and_the_longest_wait() {
    let mut table = Table::default();
    for (name, ends) in [("b", 3), ("c", 9), ("d", 6)] {
        put(&mut table, name, [holder(name, Mode::Exclusive, Some(ends))]);
    }
    let refused =
        refused(table.acquire(&request("w", "d c b a", Mode::Exclusive, seconds(9)), at(0)));
    assert_eq!((refused.key, refused.retry_after), (key("b"), Some(9 * S)));
}

#[test]
fn a_repeated_acquire_confirms_the_lease_and_never_shortens_it() {
    let mut table = Table::default();
    let mut ask = |term: u32, now| {
        granted(table.acquire(&request("w", "a b", Mode::Exclusive, seconds(term)), at(now)))
    };
    let first = ask(10, 0);
    for (term, now, rest) in [(20, 2, 20), (1, 4, 18)] {
        let again = ask(term, now);
        assert_eq!((again.token, again.remaining, again.fresh), (first.token, left(rest), false));
    }
    assert_eq!(table.holders(&key("b"))[0].renewed_at, Some(at(4).wall_micros));
    let claims = Claims::all(keys("a b"), Mode::Exclusive).unwrap();
    let renewal = RenewEntry::extend(id("w"), claims, Ttl::NEVER);
    table.renew(&RenewRequest::new(vec![renewal]), at(5));
    let again = granted(table.acquire(&request("w", "a b", Mode::Exclusive, seconds(1)), at(6)));
    assert_eq!((again.remaining, again.fresh), (Remaining::Never, false));
}

#[test]
fn a_lease_is_not_acquired_again_in_another_mode_while_it_is_held() {
    let mut table = Table::default();
    put(&mut table, "b", [holder("w", Mode::Exclusive, Some(5))]);
    let before = table.clone();
    let error = table.acquire(&request("w", "a b", Mode::SHARED, seconds(9)), at(4)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    for part in ["lease w", "\"b\"", "as exclusive", "as shared"] {
        assert!(error.to_string().contains(part), "{error}");
    }
    assert_eq!(table, before);
    assert!(granted(table.acquire(&request("w", "a b", Mode::SHARED, seconds(9)), at(5))).fresh);
}

#[test]
fn a_lease_that_is_left_on_some_keys_is_removed_and_granted_anew() {
    let part = || holder("w", Mode::SHARED, Some(9));
    let other = || holder("other", Mode::SHARED, Some(9));
    let of_another_grant = Holder { token: token(8), ..part() };
    for rest in [vec![], vec![of_another_grant], vec![holder("w", Mode::SHARED, Some(1))]] {
        let mut table = Table::default();
        put(&mut table, "a", [part(), other()]);
        put(&mut table, "b", rest);
        let mut free = table.clone();
        let reply = free.acquire(&request("w", "a b", Mode::SHARED, seconds(9)), at(1));
        assert!(granted(reply).fresh);
        assert_eq!(
            (ids(&free, "a"), ids(&free, "b")),
            (vec!["other".into(), "w".into()], vec!["w".into()])
        );
        put(&mut table, "c", [holder("x", Mode::Exclusive, Some(9))]);
        refused(table.acquire(&request("w", "a b c", Mode::SHARED, seconds(9)), at(1)));
        assert_eq!(ids(&table, "a"), ["other"]);
    }
}

#[test]
fn a_kept_reader_is_not_acquired_again_with_its_id() {
    let mut table = Table::default();
    for name in ["kept", "other"] {
        granted(table.acquire(&request(name, "a", Mode::SHARED, seconds(30)), at(0)));
    }
    let keep = ReleaseEntry::new(id("kept"), keys("a")).with_keep(9 * S);
    table.release(&ReleaseRequest::new(vec![keep]), at(0));
    let before = table.clone();
    // With a limit, both the id's own record and the limit block it; the later end counts.
    for (mode, wait) in [(Mode::SHARED, 8), (shared(1), 29)] {
        let reply = table.acquire(&request("kept", "a", mode, seconds(1)), at(1));
        assert_eq!(refused(reply).retry_after, Some(wait * S));
        assert_eq!(table, before);
    }
    let reply = table.acquire(&request("kept", "a", Mode::SHARED, seconds(1)), at(9));
    assert!(granted(reply).fresh);
}

#[test]
fn a_key_without_a_record_is_granted_as_by_a_table() {
    let now = at(1);
    for (mark, mode) in [(0, Mode::Exclusive), (now.wall_micros + 7, Mode::SHARED)] {
        let request = request("w", "a", mode, seconds(9)).with_group(GroupName::new("g").unwrap());
        let mut table = Table::default().with_mark(mark);
        let expected = granted(table.acquire(&request, now));
        let (record, found) = grant_unheld(&request, 9 * S, mark, now).unwrap();
        assert_eq!((found.token, found.remaining, found.fresh), (expected.token, left(9), true));
        let entries: Vec<_> = table.into_entries().collect();
        assert_eq!(entries, [(key("a"), vec![record])]);
    }
    let request = request("w", "a", Mode::Exclusive, seconds(9));
    let error = grant_unheld(&request, 9 * S, FencingToken::MAX, now).unwrap_err();
    assert_eq!(error.kind(), crate::ErrorKind::Corrupt);
}
