//! Operations on the whole database: pages and the removal of expired records.

use std::time::Duration;

use crate::common::{SECOND, Workplace, acquire, count, grant, id, key, release};
use leasehold_core::table::TELL_EXPIRED_FOR;
use leasehold_core::{Claims, Mode, RenewOutcome};
use leasehold_core::{
    Clock, Cursor, EvictReply, EvictRequest, EvictTarget, Expired, Filter, GroupName, LeaseId,
    ListRequest, LostReason, Reason, ReleaseEntry, ReleaseRequest, RenewEntry, RenewRequest, Store,
    Ttl,
};
use leasehold_sqlite::SqliteStore;

/// Adds keys `k000000`, … each with a holder `h` in a group. A thousand terms end in each µs.
fn fill(place: &Workplace, records: usize, group: &str) {
    let (boot, wall) = (place.clock.now().as_micros(), 1_767_225_600_000_000_u64);
    place.change(&format!(
        "BEGIN;
         WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < {records})
         INSERT INTO leasehold_holders (key, id, mode, state, token, epoch, expires, granted_at, group_name)
         SELECT format('k%06d', i), CAST('h' AS BLOB), 'exclusive', 'held', {wall}, 1,
                {boot} + 1 + row_number() OVER () / 1000, {wall}, '{group}'
         FROM n;
         UPDATE leasehold_mark SET mark = {wall};
         COMMIT;"
    ));
}

async fn evict(store: &SqliteStore, filter: Filter, limit: usize) -> EvictReply {
    store.evict(&EvictRequest::expired(filter).with_limit(limit)).await.unwrap()
}

async fn pages(store: &SqliteStore, list: ListRequest) -> (Vec<String>, usize) {
    let (mut keys, mut pages, mut cursor) = (Vec::new(), 0, None::<Cursor>);
    loop {
        let list = list.clone();
        let list = match cursor.take() {
            Some(cursor) => list.with_cursor(cursor),
            None => list,
        };
        let page = store.list(&list).await.unwrap();
        keys.extend(page.records.iter().map(|record| record.key.to_string()));
        pages += 1;
        cursor = page.next;
        if cursor.is_none() {
            return (keys, pages);
        }
    }
}

#[tokio::test]
async fn pages_contain_every_record_once_in_key_order() {
    let place = Workplace::new();
    let store = place.open().await;
    fill(&place, 25_000, "o");
    let (keys, count) = pages(&store, ListRequest::new(Filter::default()).with_limit(999)).await;
    assert_eq!((keys.len(), count), (25_000, 26));
    assert!(keys.is_sorted());
    let prefix = Filter::default().with_prefix("k0000");
    assert_eq!(pages(&store, ListRequest::new(prefix).with_limit(100)).await.0.len(), 100);
    let glob = Filter::default().with_glob("k0249?7").unwrap();
    assert_eq!(pages(&store, ListRequest::new(glob)).await.0.len(), 10);
    let beyond = Filter::default().with_prefix("l");
    assert_eq!(pages(&store, ListRequest::new(beyond)).await, (vec![], 1));
}

#[tokio::test]
async fn a_page_that_finds_little_ends_early_and_the_next_continues() {
    let place = Workplace::new();
    let store = place.open().await;
    fill(&place, 25_000, "o");
    // The last record that the first page reads, the first of the second page, and the last of all.
    for rare in ["k009999", "k010000", "k024999"] {
        let holder =
            format!("UPDATE leasehold_holders SET group_name = 'rare' WHERE key = '{rare}'");
        place.change(&holder);
    }
    let rare = Filter::default().with_group(GroupName::new("rare").unwrap());
    let (keys, pages) = pages(&store, ListRequest::new(rare)).await;
    assert_eq!((keys.join(" "), pages), ("k009999 k010000 k024999".to_owned(), 3));
}

#[tokio::test]
async fn a_page_of_exactly_the_limit_is_the_last() {
    let place = Workplace::new();
    let store = place.open().await;
    fill(&place, 10_000, "o");
    let page = store.list(&ListRequest::new(Filter::default()).with_limit(1_000)).await.unwrap();
    assert!(page.next.is_some());
    let some = Filter::default().with_prefix("k00000");
    let page = store.list(&ListRequest::new(some).with_limit(10)).await.unwrap();
    assert_eq!((page.records.len(), page.next), (10, None));
}

#[tokio::test]
async fn expired_records_are_removed_in_steps_and_live_ones_stay() {
    let place = Workplace::new();
    let store = place.open().await;
    fill(&place, 1_200, "o");
    grant(&store, "live", "a").await;
    assert_eq!(evict(&store, Filter::default(), 1_000).await.removed, vec![]);
    place.clock.advance(SECOND);
    for (limit, removed, more) in [(7, 7, true), (1_000, 1_000, true), (1_000, 193, false)] {
        let evicted = evict(&store, Filter::default(), limit).await;
        let counts = (evicted.removed.len(), evicted.counters_forgotten, evicted.more);
        assert_eq!(counts, (removed, 0, more));
    }
    let raw = place.raw();
    assert_eq!(count(&raw, "leasehold_holders"), 1);
}

#[tokio::test]
async fn only_matching_records_are_removed_however_many_others_exist() {
    let place = Workplace::new();
    let store = place.open().await;
    fill(&place, 5_000, "theirs");
    place.change("UPDATE leasehold_holders SET group_name = 'mine' WHERE key = 'k004990'");
    place.clock.advance(SECOND);
    let mine = Filter::default().with_group(GroupName::new("mine").unwrap());
    let evicted = evict(&store, mine, 10).await;
    let target = EvictTarget::new(key("k004990"), Some(LeaseId::foreign(b"h").unwrap()));
    assert_eq!((&evicted.removed[0].key, &evicted.removed[0].id), (&target.key, &target.id));
    assert_eq!((evicted.removed.len(), evicted.more), (1, false));
    let named = Filter::default().with_key(key("k000001"));
    assert_eq!(evict(&store, named, 10).await.removed.len(), 1);
    assert_eq!(count(&place.raw(), "leasehold_holders"), 4_998);
}

#[tokio::test]
async fn records_of_an_earlier_boot_are_expired() {
    let place = Workplace::new();
    let store = place.open().await;
    fill(&place, 300, "o");
    grant(&store, "late", "z").await;
    store.close_database().await;
    place.change("UPDATE leasehold_boots SET boot_id = 'another'");
    let store = place.open().await;
    grant(&store, "new", "a").await;
    let evicted = evict(&store, Filter::default(), 1_000).await;
    // The grant removed a hundred.
    assert_eq!((evicted.removed.len(), evicted.more), (201, false));
    assert_eq!(
        pages(&store, ListRequest::new(Filter::default().with_expired(Expired::In))).await.0,
        ["a"]
    );
}

#[tokio::test]
async fn what_ended_an_hour_ago_goes_with_later_grants() {
    let place = Workplace::new();
    let store = place.open().await;
    fill(&place, 600, "o");
    place.clock.advance(TELL_EXPIRED_FOR);
    grant(&store, "a", "young").await;
    assert_eq!(count(&place.raw(), "leasehold_holders"), 601, "not before an hour");
    place.clock.advance(SECOND);
    // A second later a grant removes a hundred; at once, 128 grants remove twice as many as they add.
    for (grants, left) in [(1, 501), (127, 501), (1, 245), (127, 245), (1, 1)] {
        for _ in 0..grants {
            release(&store, "a", "young").await;
            grant(&store, "a", "young").await;
        }
        assert_eq!(count(&place.raw(), "leasehold_holders"), left);
    }
    assert_eq!(pages(&store, ListRequest::new(Filter::default())).await.0, ["young"]);
}

#[tokio::test]
async fn an_evicted_holder_is_informed_and_its_record_is_removed_later() {
    let place = Workplace::new();
    let store = place.open().await;
    grant(&store, "a", "k").await;
    let reason = Reason::new("maintenance").unwrap();
    let target = EvictTarget::new(key("k"), Some(id("a")));
    let evicted =
        store.evict(&EvictRequest::exactly(vec![target], Some(reason.clone()))).await.unwrap();
    assert_eq!(evicted.removed.len(), 1);
    grant(&store, "b", "k").await;
    let claims = Claims::one(key("k"), Mode::Exclusive);
    let ttl = Ttl::new(30 * SECOND).unwrap();
    let renewal = RenewRequest::new(vec![RenewEntry::extend(id("a"), claims, ttl)]);
    let told = store.renew(&renewal).await.unwrap().leases.remove(0);
    let RenewOutcome::Lost(Some(LostReason::Evicted(why))) = told else { panic!("{told:?}") };
    assert_eq!(why, Some(reason));
    assert_eq!(evict(&store, Filter::default(), 10).await.removed, vec![]);
    assert_eq!(count(&place.raw(), "leasehold_holders"), 2, "it is still to be told");
    place.clock.advance(31 * SECOND);
    let evicted = evict(&store, Filter::default(), 10).await;
    assert_eq!((evicted.removed.len(), count(&place.raw(), "leasehold_holders")), (1, 0));
}

#[tokio::test]
async fn a_kept_key_stays_taken() {
    let place = Workplace::new();
    let store = place.open().await;
    grant(&store, "a", "k").await;
    let ending = ReleaseEntry::new(id("a"), [key("k")]).with_keep(5 * SECOND);
    store.release(&ReleaseRequest::new(vec![ending])).await.unwrap();
    place.clock.advance(5 * SECOND - Duration::from_micros(1));
    crate::common::refuse(&store, "b", "k").await;
    place.clock.advance(Duration::from_micros(1));
    acquire(&store, "b", "k").await.unwrap();
}
