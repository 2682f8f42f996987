use super::*;
use crate::{Cursor, ErrorKind, EvictReply, Expired, Filter, ListReply, ListRequest};

fn purge(table: &mut Table, filter: Filter, limit: usize, now: Now) -> EvictReply {
    table.evict(&EvictRequest::expired(filter).with_limit(limit), now)
}

fn shown(reply: &EvictReply) -> (String, usize, bool) {
    let removed = reply.removed.iter().map(|target| target.id.as_ref().unwrap().to_string());
    (removed.collect::<Vec<_>>().join(" "), reply.counters_forgotten, reply.more)
}

/// Lease `w` on `key`, which ends at second 5.
fn held(state: State) -> Table {
    let mut table = Table::default();
    put(&mut table, "a", [in_state(state, holder("w", Mode::Exclusive, Some(5)))]);
    table
}

#[test]
fn a_named_lease_ends_at_once_and_its_holder_is_notified() {
    let mut table = held(State::Held);
    evict(&mut table, "w", "a", Some("maintenance"), at(1));
    let evicted = table.holders(&key("a"))[0].clone();
    assert_eq!(evicted.state, State::Evicted(Some(Reason::new("maintenance").unwrap())));
    assert_eq!(evicted.expires, Some(at(5).boot));
    assert!(granted(table.acquire(&request("x", "a", Mode::Exclusive, seconds(9)), at(1))).fresh);
    assert_eq!(ids(&table, "a"), ["w", "x"]);
}

#[test]
fn an_evicted_lease_is_remembered_for_an_hour_at_most() {
    for (ends, until) in [(None, 3_601), (Some(3_602), 3_601), (Some(3_600), 3_600)] {
        let mut table = Table::default();
        put(&mut table, "a", [holder("w", Mode::Exclusive, ends)]);
        evict(&mut table, "w", "a", None, at(1));
        assert_eq!(table.holders(&key("a"))[0].expires, Some(at(until).boot));
        purge(&mut table, Filter::default(), 100, at(until - 1));
        assert_eq!(ids(&table, "a"), ["w"]);
        purge(&mut table, Filter::default(), 100, at(until));
        assert!(ids(&table, "a").is_empty());
    }
}

#[test]
fn a_record_without_a_holder_is_removed_when_it_is_named() {
    for (state, now) in [(State::Kept, 1), (State::Held, 5)] {
        let mut table = held(state);
        evict(&mut table, "w", "a", None, at(now));
        assert!(ids(&table, "a").is_empty());
    }
    let mut table = Table::default();
    put(&mut table, "a", [Holder { id: None, ..holder("w", Mode::Exclusive, Some(5)) }]);
    let unnamed = EvictTarget::new(key("a"), None);
    let reply = table.evict(&EvictRequest::exactly(vec![unnamed.clone()], None), at(1));
    assert_eq!((reply.removed, table.holders(&key("a")).len()), (vec![unnamed], 0));
}

#[test]
fn only_the_exact_lease_is_evicted() {
    let of = |name: &str, of: &str, has: Option<u64>| {
        let mut target = EvictTarget::new(key(of), Some(id(name)));
        target.token = has.map(token);
        target
    };
    for (target, state) in [
        (of("x", "a", None), State::Held),
        (of("w", "b", None), State::Held),
        (of("w", "a", Some(6)), State::Held),
        (of("w", "a", None), State::Evicted(None)),
        (EvictTarget::new(key("a"), None), State::Held),
    ] {
        let mut table = held(state);
        let before = table.clone();
        let reply = table.evict(&EvictRequest::exactly(vec![target], None), at(1));
        assert_eq!((shown(&reply), &table), ((String::new(), 0, false), &before));
    }
    let target = of("w", "a", Some(7));
    let request = EvictRequest::exactly(vec![of("x", "a", None), target.clone()], None);
    let first = held(State::Held).evict(&request.clone().with_limit(1), at(1));
    assert_eq!(shown(&first), (String::new(), 0, true));
    let both = held(State::Held).evict(&request, at(1));
    assert_eq!((both.removed, both.more), (vec![target], false));
}

#[test]
fn a_purge_removes_expired_records_that_match_and_nothing_else() {
    let mut table = Table::default().with_margin(2 * S);
    let of = |name: &str, ends| holder(name, Mode::SHARED, Some(ends));
    put(&mut table, "a1", [of("over", 3), of("margin", 4), of("live", 6)]);
    put(
        &mut table,
        "a2",
        [in_state(State::Kept, of("kept", 3)), holder("never", Mode::SHARED, None)],
    );
    put(&mut table, "b", [of("unmatched", 3)]);
    let reply = purge(&mut table, Filter::default().with_prefix("a"), 100, at(5));
    assert_eq!(shown(&reply), ("over kept".into(), 0, false));
    assert_eq!(reply.removed[0].token, Some(token(7)));
    assert_eq!(ids(&table, "a1"), ["margin", "live"]);
    assert_eq!(
        (ids(&table, "a2"), ids(&table, "b")),
        (vec!["never".into()], vec!["unmatched".into()])
    );
}

#[test]
fn a_limited_purge_continues_where_it_stopped() {
    let mut table = Table::default();
    for name in ["a", "b", "c", "d"] {
        put(&mut table, name, [holder(name, Mode::Exclusive, Some(1))]);
    }
    let mut rounds = (0..3).map(|_| shown(&purge(&mut table, Filter::default(), 2, at(5))));
    for (removed, more) in [("a b", true), ("c d", true), ("", false)] {
        assert_eq!(rounds.next(), Some((removed.to_owned(), 0, more)));
    }
}

#[test]
fn pages_show_every_record_once_in_the_order_of_keys_and_ids() {
    let mut table = Table::default();
    let of = |name: &str, ends| holder(name, Mode::SHARED, Some(ends));
    put(&mut table, "b", [of("z", 9), of("over", 1), of("x", 9), of("y", 9)]);
    put(&mut table, "a", [of("q", 9), in_state(State::Evicted(None), of("evicted", 9))]);
    put(&mut table, "c", [of("p", 9)]);
    let leases = |reply: &ListReply| {
        let records = reply.records.iter();
        records
            .map(|record| format!("{} {}", record.key, record.id.as_ref().unwrap()))
            .collect::<Vec<_>>()
    };
    let all = ["a q", "b x", "b y", "b z", "c p"];
    for limit in 1..=6 {
        let mut request = ListRequest::new(Filter::default()).with_limit(limit);
        let mut seen = vec![];
        for _ in 0..all.len() {
            let page = table.list(&request, at(1)).unwrap();
            assert!(page.records.len() <= limit);
            seen.extend(leases(&page));
            let Some(next) = page.next else { break };
            request = request.with_cursor(next);
        }
        assert_eq!(seen, all, "{limit}");
    }
    let expired = Filter::default().with_expired(Expired::Only);
    assert_eq!(leases(&table.list(&ListRequest::new(expired), at(1)).unwrap()), ["b over"]);
    let foreign = ListRequest::new(Filter::default()).with_cursor(Cursor::new(vec![1]));
    assert_eq!(table.list(&foreign, at(1)).unwrap_err().kind(), ErrorKind::InvalidInput);
}
