use std::num::NonZeroU32;
use std::time::Duration;

use super::*;
use crate::{
    Capabilities, Claims, Effect, ErrorKind, Feature, FencingToken, Filter, GroupName, Key,
    LeaseId, Mode, Note, Record, RecordTerm, Remaining, Result, Ttl,
};

const S: Duration = Duration::from_secs(1);

fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

fn keys(names: &str) -> impl Iterator<Item = Key> {
    names.split(' ').map(key)
}

fn id(bytes: &[u8]) -> LeaseId {
    LeaseId::foreign(bytes).unwrap()
}

fn token(value: u64) -> FencingToken {
    FencingToken::new(value).unwrap()
}

fn ttl(seconds: u32) -> Ttl {
    Ttl::new(S * seconds).unwrap()
}

fn claims(names: &str, mode: Mode) -> Claims {
    Claims::all(keys(names), mode).unwrap()
}

fn acquire(names: &str, mode: Mode) -> AcquireRequest {
    AcquireRequest::new(id(b"w"), claims(names, mode), ttl(9))
}

fn renew(to: Ttl) -> RenewEntry {
    RenewEntry::extend(id(b"w"), claims("a", Mode::Exclusive), to)
}

fn release(names: &str) -> ReleaseEntry {
    ReleaseEntry::new(id(b"w"), keys(names))
}

fn shared(max: u32) -> Mode {
    Mode::Shared { max: NonZeroU32::new(max) }
}

/// `can` must refuse the request as `kind`, with a message that has `part`.
fn refuses(can: &Capabilities, request: &impl Request, kind: ErrorKind, part: &str) {
    let error = can.admit(request).unwrap_err();
    assert_eq!((error.kind(), error.effect()), (kind, Effect::NotApplied), "{error}");
    assert!(error.to_string().contains(part), "{error}");
}

/// A store that can all else must refuse `too_much` with a message that names it and has `part`, and admit `enough`.
#[track_caller]
fn lacks<R: Request>(change: fn(&mut Capabilities), enough: &R, too_much: &R, part: &str) {
    let mut can = Capabilities::all("toy");
    can.admit(too_much).unwrap();
    change(&mut can);
    can.admit(enough).unwrap();
    refuses(&can, too_much, ErrorKind::Unsupported, part);
    refuses(&can, too_much, ErrorKind::Unsupported, "the store toy");
}

#[test]
fn a_store_refuses_claims_that_it_cannot_serve() {
    let x = Mode::Exclusive;
    let one = acquire("a", x);
    lacks(|can| can.shared = false, &one, &acquire("a", Mode::SHARED), "no shared locks");
    let unlimited = acquire("a", Mode::SHARED);
    lacks(|can| can.shared_limit = false, &unlimited, &acquire("a", shared(3)), "no limit on");
    lacks(|can| can.many_keys = false, &one, &acquire("a b", x), "no locks of several keys");
    let three = acquire("a b c", x);
    lacks(|can| can.max_claims = Some(2), &acquire("a b", x), &three, "3 keys");
    let long = acquire("a long", x);
    lacks(|can| can.max_key_bytes = 3, &acquire("a abc", x), &long, "4 bytes");
    let renewal = RenewEntry::extend(id(b"w"), claims("long", x), ttl(9));
    lacks(|can| can.max_key_bytes = 3, &renew(ttl(9)), &renewal, "at most 3");
    lacks(|can| can.max_key_bytes = 3, &release("a b"), &release("a long"), "at most 3");
}

#[test]
fn a_store_refuses_terms_that_it_cannot_keep() {
    let bounds = |can: &mut Capabilities| (can.min_term, can.max_term) = (5 * S, 20 * S);
    let of = |seconds| AcquireRequest::new(id(b"w"), claims("a", Mode::Exclusive), ttl(seconds));
    for (enough, bad) in [(5, 4), (20, 21)] {
        lacks(bounds, &of(enough), &of(bad), &format!("is {bad}s"));
        lacks(bounds, &renew(ttl(enough)), &renew(ttl(bad)), "5s to 20s");
    }
    lacks(|can| can.never = false, &renew(ttl(9)), &renew(Ttl::NEVER), "no leases without end");
    let raised = || renew(ttl(9)).with_token_raised_to(token(7));
    let plain = renew(ttl(9)).with_token(token(7));
    lacks(|can| can.raise = false, &plain, &raised(), "that can be raised");
    let no_tokens = |can: &mut Capabilities| (can.raise, can.tokens) = (false, false);
    lacks(no_tokens, &plain, &raised(), "no fencing tokens");
    let kept = |seconds| release("a").with_keep(S * seconds);
    lacks(|can| can.keep = false, &release("a"), &kept(1), "no keeping a key taken");
    lacks(bounds, &kept(1), &kept(21), "is 21s");
    lacks(bounds, &kept(20), &kept(21), "is 21s");
}

#[test]
fn a_store_of_text_ids_refuses_other_ids() {
    let by = |id: &LeaseId| AcquireRequest::new(id.clone(), claims("a", Mode::Exclusive), ttl(9));
    let text_ids = |can: &mut Capabilities| can.text_ids = true;
    let text = id("\u{fc}-1".as_bytes());
    for other in [id(b"\xff"), id(b"a\0b")] {
        lacks(text_ids, &by(&text), &by(&other), "keeps only lease ids that are text");
        let renewal =
            |id: &LeaseId| RenewEntry::extend(id.clone(), claims("a", Mode::Exclusive), ttl(9));
        lacks(text_ids, &renewal(&text), &renewal(&other), "UTF-8");
        let release = |id: &LeaseId| ReleaseEntry::new(id.clone(), keys("a"));
        lacks(text_ids, &release(&text), &release(&other), "UTF-8");
    }
}

#[test]
fn a_store_refuses_long_keys_in_lists_and_evictions() {
    let short = |can: &mut Capabilities| can.max_key_bytes = 3;
    let list = |names| ListRequest::new(Filter::default().with_keys(keys(names)));
    lacks(short, &list("abc"), &list("abc long"), "4 bytes");
    Capabilities::none("toy").admit(&ListRequest::new(Filter::default())).unwrap();
    let evict = |names| {
        EvictRequest::exactly(keys(names).map(|key| EvictTarget::new(key, None)).collect(), None)
    };
    lacks(short, &evict("abc"), &evict("abc long"), "4 bytes");
}

#[test]
fn the_reason_that_a_store_gives_belongs_to_its_feature() {
    let mut can = Capabilities::none("toy");
    can.reasons = &[(Feature::Never, "it forgets"), (Feature::Terms, "it counts in days")];
    refuses(&can, &renew(Ttl::NEVER), ErrorKind::Unsupported, "leases without end: it forgets");
    can.min_term = 20 * S;
    refuses(&can, &renew(ttl(9)), ErrorKind::Unsupported, "20s to 315360000s: it counts in days");
    let error = can.lacks(Feature::Keep);
    assert!(error.to_string().ends_with("which min_hold needs"), "{error}");
}

#[test]
fn a_store_that_can_all_lacks_nothing() {
    let can = Capabilities::all("toy");
    assert!(can.tokens && can.notifications && can.reports_expired && can.compares_tokens);
    assert!(!can.fair && !can.in_order && !can.checks_on_use);
}

#[test]
fn a_request_that_no_store_can_serve_is_invalid() {
    let can = Capabilities::all("toy");
    let invalid = ErrorKind::InvalidInput;
    let x = Mode::Exclusive;
    let endless = AcquireRequest::new(id(b"w"), claims("a", x), Ttl::NEVER);
    refuses(&can, &endless, invalid, "finite term");
    let keyless = ReleaseEntry::new(id(b"w"), []);
    refuses(&can, &keyless, invalid, "no key");
    can.admit(&release("a").with_keep(Ttl::MAX)).unwrap();
    let too_long = release("a").with_keep(Ttl::MAX + Duration::from_nanos(1));
    refuses(&can, &too_long, invalid, "10 years");
    refuses(&can, &EvictRequest::exactly(vec![], None), invalid, "no record to evict");
    for (count, admitted) in [(0, false), (1, true), (1_000, true), (1_001, false)] {
        let renewals = RenewRequest::new(vec![renew(ttl(9)); count]);
        let releases = ReleaseRequest::new(vec![release("a"); count]);
        let list = ListRequest::new(Filter::default()).with_limit(count);
        let purge = EvictRequest::expired(Filter::default()).with_limit(count);
        let all: [(Result<()>, &str); 4] = [
            (can.admit(&renewals), "a renewal names"),
            (can.admit(&releases), "a release names"),
            (can.admit(&list), "the limit is"),
            (can.admit(&purge), "the limit is"),
        ];
        for (result, part) in all {
            assert_eq!(result.is_ok(), admitted, "{part} {count}");
            if let Err(error) = result {
                assert_eq!(error.kind(), invalid);
                assert!(error.to_string().contains(&format!("{part} {count}")), "{error}");
                assert!(error.to_string().contains("1 to 1000"), "{error}");
            }
        }
    }
}

#[test]
fn one_bad_part_makes_the_request_bad() {
    let can = Capabilities::none("toy");
    let renewals = RenewRequest::new(vec![renew(ttl(9)), renew(Ttl::NEVER)]);
    refuses(&can, &renewals, ErrorKind::Unsupported, "without end");
    let releases = ReleaseRequest::new(vec![release("a"), release("a").with_keep(S)]);
    refuses(&can, &releases, ErrorKind::Unsupported, "min_hold");
    can.admit(&RenewRequest::new(vec![renew(ttl(9))])).unwrap();
    can.admit(&ReleaseRequest::new(vec![release("a")])).unwrap();
    can.admit(&()).unwrap();
}

#[test]
fn a_request_has_what_it_was_given() {
    let group = GroupName::new("g").unwrap();
    let note = Note::default().with_comment("why").unwrap();
    let plain = acquire("a", shared(3));
    assert_eq!((plain.group(), plain.note(), plain.is_again()), (None, &Note::default(), None));
    let full = plain.with_group(group.clone()).with_note(note.clone()).again(Some(token(7)));
    assert_eq!((full.id(), full.claims()), (&id(b"w"), &claims("a", shared(3))));
    assert_eq!((full.term(), full.group(), full.note()), (ttl(9), Some(&group), &note));
    assert_eq!(full.is_again(), Some(Some(token(7))));

    let plain = renew(ttl(9));
    assert_eq!((plain.group(), plain.token(), plain.raise()), (None, None, None));
    let full = plain
        .with_group(group.clone())
        .with_note(note.clone())
        .with_token(token(7))
        .with_token_raised_to(token(8));
    assert_eq!((full.id(), full.claims()), (&id(b"w"), &claims("a", Mode::Exclusive)));
    assert_eq!((full.term(), full.group(), full.note()), (ttl(9), Some(&group), &note));
    assert_eq!((full.token(), full.raise()), (Some(token(7)), Some(token(8))));
    let of_node = full.without_token();
    assert_eq!((of_node.token(), of_node.group()), (None, Some(&group)));

    let plain = release("b a b");
    assert_eq!((plain.id(), plain.keys()), (&id(b"w"), &[key("a"), key("b")][..]));
    assert_eq!((plain.keep(), plain.token(), plain.wakes()), (None, None, true));
    assert_eq!(plain.clone().with_keep(Duration::ZERO), plain);
    let full = plain.with_keep(S).with_token(token(7)).without_wakeup();
    assert_eq!((full.keep(), full.token(), full.wakes()), (Some(S), Some(token(7)), false));
    let of_node = full.without_token();
    assert_eq!((of_node.token(), of_node.keep()), (None, Some(S)));
}

#[test]
fn a_listed_record_is_named_exactly_and_continued_after() {
    let term = RecordTerm::Live(Remaining::Never);
    let mut record = Record::new(key("a:1"), Mode::Exclusive, term);
    let cursor = Cursor::after(&record);
    assert_eq!(cursor.position().unwrap(), (key("a:1"), vec![]));
    (record.id, record.token) = (Some(id(b"w\0x")), Some(token(7)));
    let target = EvictTarget::of(&record);
    assert_eq!(target.key, record.key);
    assert_eq!((target.id, target.token), (record.id.clone(), record.token));
    let cursor = Cursor::after(&record);
    assert_eq!(cursor.position().unwrap(), (key("a:1"), b"w\0x".to_vec()));
    assert_eq!(Cursor::new(cursor.as_bytes().to_vec()), cursor);
    assert_eq!(format!("{cursor:?}"), "Cursor");
    for foreign in [&b"a"[..], b"", b"\0w", b"\xff\0w"] {
        let error = Cursor::new(foreign.to_vec()).position().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    }

    let request = ListRequest::new(Filter::default().with_prefix("a"));
    assert_eq!((request.cursor(), request.limit()), (None, 100));
    let next = request.with_cursor(cursor.clone()).with_limit(7);
    assert_eq!((next.cursor(), next.limit()), (Some(&cursor), 7));
    assert_eq!(next.filter().key_prefix(), "a");
    assert_eq!(EvictRequest::expired(Filter::default()).limit(), 100);
    let named = EvictRequest::exactly(vec![EvictTarget::of(&record); 2], None);
    assert_eq!(named.limit(), 2);
}
