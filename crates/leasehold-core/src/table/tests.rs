//! Each rule on a small table; the conformance suite tests the rules again on every store.

mod acquire;
mod evict_and_list;
mod renew_and_release;

use std::time::Duration;

use super::{
    FORGET_AFTER, Holder, MOST_OF_CLOCK, MOST_RAISE, State, Table, grant_unheld, may_forget,
};
use crate::{
    AcquireReply, AcquireRequest, Claims, EvictRequest, EvictTarget, FencingToken, Granted,
    GroupName, Key, LeaseId, Mode, Note, Now, Reason, RecordTerm, Refused, Remaining, Result, Ttl,
};

const S: Duration = Duration::from_secs(1);

/// So many seconds after the test began.
fn at(seconds: u32) -> Now {
    Now { boot: S * (100 + seconds), wall_micros: 1_000_000 * u64::from(100 + seconds) }
}

fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

fn keys(names: &str) -> impl Iterator<Item = Key> {
    names.split(' ').map(key)
}

fn id(name: &str) -> LeaseId {
    LeaseId::foreign(name.as_bytes()).unwrap()
}

fn token(value: u64) -> FencingToken {
    FencingToken::new(value).unwrap()
}

fn seconds(seconds: u32) -> Ttl {
    Ttl::new(S * seconds).unwrap()
}

fn left(seconds: u32) -> Remaining {
    Remaining::For(S * seconds)
}

/// A lease whose term ends so many seconds after the test began; `None` for never.
fn holder(name: &str, mode: Mode, ends: Option<u32>) -> Holder {
    Holder {
        id: Some(id(name)),
        mode,
        token: token(7),
        group: None,
        note: Note::default(),
        expires: ends.map(|ends| at(ends).boot),
        granted_at: at(0).wall_micros,
        renewed_at: None,
        state: State::Held,
    }
}

fn in_state(state: State, holder: Holder) -> Holder {
    Holder { state, ..holder }
}

/// Gives `key` these holders.
fn put(table: &mut Table, name: &str, holders: impl Into<Vec<Holder>>) {
    table.insert(key(name), holders.into());
}

/// The keys that have a record.
fn names(table: &Table) -> Vec<&str> {
    table.entries().map(|(key, _)| key.as_str()).collect()
}

/// The leases that have a record on `key`.
fn ids(table: &Table, name: &str) -> Vec<String> {
    table.holders(&key(name)).iter().map(|holder| holder.id.as_ref().unwrap().to_string()).collect()
}

fn request(name: &str, names: &str, mode: Mode, term: Ttl) -> AcquireRequest {
    AcquireRequest::new(id(name), Claims::all(keys(names), mode).unwrap(), term)
}

fn granted(reply: Result<AcquireReply>) -> Granted {
    match reply {
        Ok(AcquireReply::Granted(granted)) => granted,
        other => panic!("not granted: {other:?}"),
    }
}

fn refused(reply: Result<AcquireReply>) -> Refused {
    match reply {
        Ok(AcquireReply::Refused(refused)) => refused,
        other => panic!("not refused: {other:?}"),
    }
}

/// Ends the lease on one key by force.
fn evict(table: &mut Table, name: &str, of: &str, reason: Option<&str>, now: Now) {
    let target = EvictTarget::new(key(of), Some(id(name)));
    let reason = reason.map(|reason| Reason::new(reason).unwrap());
    let reply = table.evict(&EvictRequest::exactly(vec![target.clone()], reason), now);
    assert_eq!((reply.removed, reply.more), (vec![target], false));
}

#[test]
fn a_record_shows_the_lease_as_it_is_now() {
    let mut held = holder("w", Mode::SHARED, Some(9));
    held.group = Some(GroupName::new("g").unwrap());
    held.note = Note::default().with_comment("why").unwrap();
    held.renewed_at = Some(at(2).wall_micros);
    let record = held.record(&key("a"), at(5)).unwrap();
    assert_eq!((&record.key, &record.id, record.mode), (&key("a"), &Some(id("w")), Mode::SHARED));
    assert_eq!((&record.group, &record.note), (&held.group, &held.note));
    assert_eq!((record.token, record.kept), (Some(token(7)), false));
    assert_eq!(record.term, RecordTerm::Live(left(4)));
    assert_eq!((record.age, record.renewed), (Some(5 * S), Some(3 * S)));

    for (ends, term) in [
        (None, RecordTerm::Live(Remaining::Never)),
        (Some(6), RecordTerm::Live(left(1))),
        (Some(5), RecordTerm::Expired(Some(Duration::ZERO))),
        (Some(3), RecordTerm::Expired(Some(2 * S))),
    ] {
        let kept = in_state(State::Kept, holder("w", Mode::Exclusive, ends));
        let record = kept.record(&key("a"), at(5)).unwrap();
        assert_eq!((record.term, record.kept), (term, true));
    }
    let evicted = in_state(State::Evicted(None), holder("w", Mode::Exclusive, Some(9)));
    assert_eq!(evicted.record(&key("a"), at(5)), None);
}

#[test]
fn a_record_excludes_others_until_its_term_and_the_margin_are_over() {
    let table = Table::default().with_margin(2 * S);
    for (state, ends, live, excludes) in [
        (State::Held, None, true, true),
        (State::Held, Some(6), true, true),
        (State::Kept, Some(6), true, true),
        (State::Held, Some(5), false, true),
        (State::Held, Some(4), false, true),
        (State::Held, Some(3), false, false),
        (State::Evicted(None), Some(6), false, false),
    ] {
        let holder = in_state(state, holder("w", Mode::Exclusive, ends));
        assert_eq!(holder.is_live(at(5)), live, "{holder:?}");
        assert_eq!(table.excludes(&holder, at(5)), excludes, "{holder:?}");
    }
}

#[test]
fn a_counter_is_forgotten_only_when_it_is_older_than_requested() {
    for (counter, wall_micros, forget_after, forgotten) in [
        (5, 1_000_005, Some(S), false),
        (5, 1_000_006, Some(S), true),
        (9, 8, Some(Duration::ZERO), false),
        (5, u64::MAX, None, false),
        (u64::MAX, u64::MAX, Some(S), false),
    ] {
        assert_eq!(may_forget(counter, wall_micros, forget_after), forgotten, "{counter}");
    }
    let days = |days: u64| Some(Duration::from_secs(days * 86_400));
    assert_eq!(Some(FORGET_AFTER), days(30));
}

#[test]
fn the_state_of_every_key_can_be_read() {
    let mut table = Table::default();
    put(&mut table, "b", [holder("w", Mode::Exclusive, Some(9))]);
    put(&mut table, "a", [holder("v", Mode::Exclusive, Some(9))]);
    put(&mut table, "b", [holder("x", Mode::Exclusive, Some(9))]);
    put(&mut table, "c", []);
    assert_eq!(names(&table), ["a", "b"]);
    assert_eq!(ids(&table, "b"), ["x"]);
    assert!(table.holders(&key("c")).is_empty());
    put(&mut table, "b", []);
    assert_eq!(names(&table), ["a"]);
}

#[test]
fn what_ended_an_hour_ago_is_forgotten() {
    let of = |name, state, ends| in_state(state, holder(name, Mode::SHARED, ends));
    let mut table = Table::default();
    put(&mut table, "a", [of("over", State::Held, Some(5)), of("told", State::Held, Some(6))]);
    put(&mut table, "b", [of("kept", State::Kept, Some(5))]);
    put(&mut table, "c", [of("evicted", State::Evicted(None), Some(5))]);
    put(&mut table, "d", [of("marked", State::Evicted(None), Some(6))]);
    put(&mut table, "e", [of("forever", State::Held, None), of("held", State::Held, Some(9_999))]);
    table.forget(at(3_605));
    assert_eq!(names(&table), ["a", "d", "e"]);
    assert_eq!((ids(&table, "a"), ids(&table, "e").len()), (vec!["told".into()], 2));
}
