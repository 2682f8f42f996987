use super::*;
use crate::{ErrorKind, Note, RecordTerm};

const S: Duration = Duration::from_secs(1);

fn record(key: &str, left: Option<Remaining>) -> Record {
    let term = left.map_or(RecordTerm::Expired(None), RecordTerm::Live);
    Record::new(Key::new(key).unwrap(), Mode::Exclusive, term)
}

#[test]
fn glob_matches_whole_texts() {
    for (pattern, text, expected) in [
        ("*", "anything", true),
        ("a*c", "abbc", true),
        ("a*c", "abcd", false),
        ("a?c", "a\u{fc}c", true),
        ("a?c", "ac", false),
        ("*b*b*", "abab", true),
        ("*b*b*", "ab", false),
        ("a", "ab", false),
        ("%_", "%_", true),
        ("**a", "bba", true),
        ("[a]", "a", false),
    ] {
        assert_eq!(glob(pattern, text), expected, "{pattern} {text}");
    }
}

#[test]
fn ranges_are_half_open_and_leave_no_gap() {
    let one = record("k", Some(Remaining::For(S)));
    let never = record("k", Some(Remaining::Never));
    let range = |a: u32, b: u32| {
        Filter::default().with_remaining(Remaining::For(S * a)..Remaining::For(S * b))
    };
    assert!(range(1, 2).matches(&one) && !range(0, 1).matches(&one));
    assert!(!range(0, 100).matches(&never));
    assert!(Filter::default().with_remaining_from(Remaining::For(S)).matches(&never));
    let mut aged = one.clone();
    aged.age = Some(S);
    assert!(Filter::default().with_age(S..2 * S).matches(&aged));
    assert!(!Filter::default().with_age(Duration::ZERO..S).matches(&aged));
    assert!(!Filter::default().with_age_from(S).matches(&one), "age unknown");
}

#[test]
fn expired_records_match_only_on_request() {
    let (live, over) = (record("k", Some(Remaining::For(S))), record("k", None));
    let answers = |expired| {
        let filter = Filter::default().with_expired(expired);
        (filter.matches(&live), filter.matches(&over))
    };
    assert_eq!(answers(Expired::Out), (true, false));
    assert_eq!(answers(Expired::In), (true, true));
    assert_eq!(answers(Expired::Only), (false, true));
}

fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

fn globbed(pattern: &str) -> Filter {
    Filter::default().with_glob(pattern).unwrap()
}

#[test]
fn a_record_matches_if_it_meets_every_condition() {
    let (id, group) = (|id: &[u8]| LeaseId::foreign(id).unwrap(), |g| GroupName::new(g).unwrap());
    let mut full = record("a:1", Some(Remaining::For(S)));
    (full.id, full.group) = (Some(id(b"w")), Some(group("g")));
    full.note = Note::default().with_host("h").unwrap();
    full.age = Some(S);
    let whole = Filter::default()
        .with_keys([key("a:1"), key("x")])
        .with_prefix("a:")
        .with_glob("a:?")
        .unwrap()
        .with_lease(id(b"w"))
        .with_group(group("g"))
        .with_mode(Mode::Exclusive)
        .with_host("h")
        .with_age(S..2 * S)
        .with_remaining_from(Remaining::For(S));
    assert!(whole.matches(&full));
    let any = Filter::default;
    for (alone, changed) in [
        (any().with_key(key("b")), whole.clone().with_prefix("a:2")),
        (any().with_prefix("b"), whole.clone().with_prefix("b")),
        (globbed("b*"), whole.clone().with_glob("b*").unwrap()),
        (any().with_lease(id(b"x")), whole.clone().with_lease(id(b"x"))),
        (any().with_group(group("x")), whole.clone().with_group(group("x"))),
        (any().with_mode(Mode::SHARED), whole.clone().with_mode(Mode::SHARED)),
        (any().with_host("x"), whole.clone().with_host("x")),
        (any().with_age_from(2 * S), whole.clone().with_age_from(2 * S)),
        (any().with_expired(Expired::Only), whole.clone().with_expired(Expired::Only)),
    ] {
        assert!(!alone.matches(&full), "{alone:?}");
        assert!(!changed.matches(&full), "{changed:?}");
    }
    let two = Remaining::For(2 * S);
    assert!(!whole.with_remaining_from(two).matches(&full));
    let bare = record("a:1", Some(Remaining::For(S)));
    for needs in [
        any().with_lease(id(b"w")),
        any().with_group(group("g")),
        any().with_host("h"),
        any().with_age_from(Duration::ZERO),
    ] {
        assert!(needs.matches(&full) && !needs.matches(&bare), "{needs:?}");
    }
    // An expired record has nothing left, not even nothing.
    let ended = any().with_expired(Expired::In).with_remaining_from(Remaining::For(Duration::ZERO));
    assert!(!ended.matches(&record("a:1", None)));
}

#[test]
fn named_keys_add_up() {
    let filter = Filter::default().with_key(key("a")).with_keys([key("b")]).with_key(key("c"));
    assert_eq!(filter.keys(), Some(&[key("a"), key("b"), key("c")][..]));
    assert!(["a", "b", "c"].iter().all(|name| filter.matches_name(name)));
    assert!(!filter.matches_name("d"));
    assert_eq!(Filter::default().with_keys([]).keys(), Some(&[][..]));
    assert_eq!(Filter::default().keys(), None);
    assert_eq!(filter.with_expired(Expired::Only).expired(), Expired::Only);
}

#[test]
fn the_start_of_every_matching_key_is_the_longer_of_prefix_and_glob() {
    for (prefix, pattern, expected) in [
        ("", "ab*c", "ab"),
        ("", "a?c", "a"),
        ("", "abc", "abc"),
        ("", "*", ""),
        ("abc", "ab*", "abc"),
        ("a", "ab*", "ab"),
    ] {
        assert_eq!(globbed(pattern).with_prefix(prefix).key_prefix(), expected, "{pattern}");
    }
    assert_eq!(Filter::default().with_prefix("a").key_prefix(), "a");
}

#[test]
fn a_pattern_is_no_longer_than_a_key_can_be() {
    let longest = "*".repeat(Key::MAX_BYTES);
    globbed(&longest);
    for (bad, bytes) in [("", "0 bytes"), (&*(longest.clone() + "*"), "1025 bytes")] {
        let error = Filter::default().with_glob(bad).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains(bytes), "{error}");
    }
}

#[test]
fn a_counter_matches_by_its_key_alone() {
    let any = Filter::default;
    for filter in [
        any(),
        any().with_key(key("ab")).with_expired(Expired::In),
        any().with_prefix("a"),
        globbed("?b"),
    ] {
        assert!(filter.matches_counter(&key("ab")), "{filter:?}");
    }
    for filter in [
        any().with_key(key("b")),
        any().with_prefix("b"),
        globbed("b*"),
        any().with_host("h"),
        any().with_mode(Mode::Exclusive),
        any().with_age_from(Duration::ZERO),
    ] {
        assert!(!filter.matches_counter(&key("ab")), "{filter:?}");
    }
}
