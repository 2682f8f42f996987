//! Files of schema version 1, which kept a counter for each key, and the programs that have them open.

use std::time::Duration;

use futures_util::future::join_all;
use leasehold_core::{
    AcquireReply, AcquireRequest, Claims, Clock, ErrorKind, Mode, ReleaseOutcome, Store, Ttl,
};
use leasehold_sqlite::SqliteStore;

use crate::common::{SECOND, Workplace, count, grant, id, key, refuse, release};
use crate::version_1::{self, Program};

/// What an upgraded file says to a program that would mint a token.
const NEEDS_NEWER: &str = "this_file_needs_a_newer_leasehold";

/// A file of schema version 1, and a program of that version that has it open.
async fn older() -> (Workplace, Program) {
    let place = Workplace::new();
    place.open().await.close_database().await;
    version_1::make(&place, "leasehold_");
    let program = Program::open(&place);
    (place, program)
}

fn version(place: &Workplace) -> i64 {
    place.raw().pragma_query_value(None, "user_version", |row| row.get(0)).unwrap()
}

fn mark(place: &Workplace) -> u64 {
    let mark = "SELECT mark FROM leasehold_mark";
    place.raw().query_row(mark, [], |row| row.get::<_, i64>(0)).unwrap().try_into().unwrap()
}

async fn token(store: &SqliteStore, id: &str, key: &str) -> u64 {
    grant(store, id, key).await.token.unwrap().get()
}

#[tokio::test]
async fn the_mark_is_above_every_token_of_a_file_of_version_1() {
    let (place, older) = older().await;
    older.acquire("a", "held", "exclusive").unwrap().unwrap();
    let mut last = 0;
    for _ in 0..5 {
        last = older.acquire("b", "free", "exclusive").unwrap().unwrap();
        older.release("b", "free").unwrap();
    }
    let store = place.open().await;
    let last = u64::try_from(last).unwrap();
    assert_eq!(mark(&place), last);
    refuse(&store, "c", "held").await;
    assert_eq!(token(&store, "c", "new").await, last + 1);
    // What remains is for the older program's lease.
    assert_eq!(count(&place.raw(), "leasehold_keys"), 1);
}

#[tokio::test]
async fn an_older_program_renews_and_releases_its_lease() {
    let (place, older) = older().await;
    let first = older.acquire("a", "job", "exclusive").unwrap().unwrap();
    let store = place.open().await;
    for _ in 0..3 {
        place.clock.advance(20 * SECOND);
        assert_eq!(older.renew("a", "job", None), Ok(true));
        let refused = refuse(&store, "b", "job").await;
        assert_eq!(refused.retry_after, Some(30 * SECOND));
    }
    assert_eq!(older.release("a", "job"), Ok(true));
    assert!(token(&store, "b", "job").await > u64::try_from(first).unwrap());
    assert_eq!(older.renew("a", "job", None), Ok(false), "it is lost, and no error");
    assert_eq!(older.acquire("a", "job", "exclusive"), Ok(None), "it is held");
    assert!(matches!(release(&store, "b", "job").await, ReleaseOutcome::Released));
    for table in ["leasehold_keys", "leasehold_holders"] {
        assert_eq!(count(&place.raw(), table), 0, "nothing remains in {table}");
    }
}

#[tokio::test]
async fn an_older_program_mints_no_token_after_the_upgrade() {
    let (place, older) = older().await;
    older.acquire("a", "held", "exclusive").unwrap().unwrap();
    older.acquire("a", "free", "exclusive").unwrap().unwrap();
    older.release("a", "free").unwrap();
    let store = place.open().await;
    let before = mark(&place);
    let wall = place.clock.wall_micros();
    for wall in [wall, wall + 1_000_000, wall - 1_000_000] {
        place.clock.set_wall_micros(wall);
        for name in ["free", "never seen"] {
            let error = older.acquire("b", name, "exclusive").unwrap_err();
            assert!(error.contains(NEEDS_NEWER), "{error}");
        }
        let raise = i64::try_from(before).unwrap() + 9;
        let error = older.renew("a", "held", Some(raise)).unwrap_err();
        assert!(error.contains(NEEDS_NEWER), "{error}");
        assert_eq!(older.renew("a", "held", None), Ok(true), "it holds its lease");
    }
    // Also of keys that had a lease since.
    place.clock.advance(31 * SECOND);
    grant(&store, "c", "held").await;
    place.clock.advance(31 * SECOND);
    assert!(older.acquire("b", "held", "exclusive").is_err());
    release(&store, "c", "held").await;
    assert!(older.acquire("b", "held", "exclusive").is_err());
    assert_eq!(count(&place.raw(), "leasehold_holders WHERE CAST(id AS TEXT) = 'b'"), 0);
}

#[tokio::test]
async fn a_reader_of_an_older_program_keeps_its_lease_beside_new_ones() {
    let (place, older) = older().await;
    older.acquire("a", "job", "shared").unwrap().unwrap();
    let store = place.open().await;
    let reader = |name| {
        let claims = Claims::one(key("job"), Mode::SHARED);
        AcquireRequest::new(id(name), claims, Ttl::new(30 * SECOND).unwrap())
    };
    let joined = store.acquire(&reader("b")).await.unwrap();
    assert!(matches!(joined, AcquireReply::Granted(_)), "{joined:?}");
    place.clock.advance(20 * SECOND);
    assert_eq!(older.renew("a", "job", None), Ok(true));
    let raise = i64::try_from(mark(&place)).unwrap() + 9;
    for minted in [
        older.acquire("c", "job", "shared").map(drop),
        older.renew("a", "job", Some(raise)).map(drop),
    ] {
        let error = minted.unwrap_err();
        assert!(error.contains(NEEDS_NEWER), "it mints nothing: {error}");
    }
    place.clock.advance(20 * SECOND);
    assert_eq!(older.release("a", "job"), Ok(true));
}

#[tokio::test]
async fn stores_with_other_prefixes_are_upgraded_when_they_are_opened() {
    let place = Workplace::new();
    let other = || place.config().prefix("other_").connect();
    place.open().await.close_database().await;
    other().await.unwrap().close_database().await;
    version_1::make(&place, "leasehold_");
    version_1::make(&place, "other_");
    place.change("INSERT INTO other_keys VALUES ('k', 4000000000000000)");
    let older = Program::open(&place);
    let store = other().await.unwrap();
    assert_eq!(token(&store, "a", "k").await, 4_000_000_000_000_001);
    assert!(older.acquire("a", "k", "exclusive").unwrap().is_some(), "the other is as it was");
    assert_eq!(version(&place), 1);
    refuse(&place.open().await, "b", "k").await;
    assert!(older.acquire("a", "free", "exclusive").is_err());
}

/// The counter of such a key is in no row; the manual says what to make of the message.
#[tokio::test]
async fn an_older_program_takes_no_key_that_only_newer_ones_know() {
    let (place, older) = older().await;
    older.acquire("a", "held", "exclusive").unwrap().unwrap();
    let store = place.open().await;
    grant(&store, "b", "new").await;
    for mode in ["exclusive", "shared"] {
        let error = older.acquire("a", "new", mode).unwrap_err();
        assert!(error.contains("counter"), "{error}");
    }
    assert!(matches!(release(&store, "b", "new").await, ReleaseOutcome::Released));
}

#[tokio::test]
async fn of_many_programs_one_upgrades() {
    let (place, older) = older().await;
    let first = older.acquire("a", "job", "exclusive").unwrap().unwrap();
    let stores = join_all((0..8).map(|_| place.open())).await;
    for (number, store) in stores.iter().enumerate() {
        refuse(store, "b", "job").await;
        let expected = u64::try_from(first).unwrap() + 1 + u64::try_from(number).unwrap();
        assert_eq!(token(store, "b", &format!("k{number}")).await, expected);
    }
}

#[tokio::test]
async fn what_older_programs_need_goes_with_their_leases() {
    let (place, older) = older().await;
    for (name, key) in [("a", "released"), ("b", "expired"), ("c", "held")] {
        older.acquire(name, key, "exclusive").unwrap().unwrap();
    }
    place.open().await.close_database().await;
    older.release("a", "released").unwrap();
    place.clock.advance(20 * SECOND);
    assert_eq!(older.renew("c", "held", None), Ok(true));
    place.clock.advance(20 * SECOND);
    let store = place.open().await;
    assert_eq!(version(&place), 1, "older programs can open it again");
    let purge = leasehold_core::EvictRequest::expired(leasehold_core::Filter::default());
    assert_eq!(store.evict(&purge).await.unwrap().removed.len(), 1);
    assert_eq!(count(&place.raw(), "leasehold_keys"), 1, "a purge removes those without a lease");
    assert_eq!(older.renew("c", "held", None), Ok(true));
    place.clock.advance(Duration::from_secs(4_000));
    grant(&store, "d", "held").await;
    release(&store, "d", "held").await;
    assert_eq!(count(&place.raw(), "leasehold_keys"), 0);
    place.open().await;
    assert_eq!(version(&place), 2, "no older program has a lease");
    let error = older.acquire("c", "held", "exclusive").unwrap_err();
    assert!(error.contains(NEEDS_NEWER), "{error}");
}

/// It was opened while an older program had a lease, and another has raised the version since.
#[tokio::test]
async fn a_program_goes_on_without_what_older_ones_needed() {
    let (place, older) = older().await;
    older.acquire("a", "job", "exclusive").unwrap().unwrap();
    let store = place.open().await;
    assert_eq!(older.release("a", "job"), Ok(true));
    place.open().await;
    assert_eq!(version(&place), 2);
    place.change("DROP TABLE leasehold_keys");
    grant(&store, "b", "job").await;
    assert!(matches!(release(&store, "b", "job").await, ReleaseOutcome::Released));
    let purge = leasehold_core::EvictRequest::expired(leasehold_core::Filter::default());
    store.evict(&purge).await.unwrap();
    place.open().await;
}

/// What is left of the old table says nothing of the tokens since: a new mark could be below them.
#[tokio::test]
async fn a_lost_mark_is_not_made_again() {
    for older_has_lease in [true, false] {
        let (place, older) = older().await;
        if older_has_lease {
            older.acquire("a", "job", "exclusive").unwrap().unwrap();
        }
        place.open().await.close_database().await;
        place.change("DROP TABLE leasehold_mark");
        let error = place.config().connect().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(error.to_string().contains("3 of 4"), "{error}");
    }
}

/// Version 1 let a raise go to the end of all tokens, which ended that key alone.
#[tokio::test]
async fn a_file_with_a_token_near_the_end_of_all_is_not_upgraded() {
    let (place, older) = older().await;
    older.acquire("a", "job", "exclusive").unwrap().unwrap();
    older.renew("a", "job", Some(9_007_199_254_740_991)).unwrap();
    let error = place.config().connect().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible, "{error}");
    assert!(error.to_string().contains("\"job\" has the token 9007199254740991"), "{error}");
    assert!(older.acquire("b", "free", "exclusive").unwrap().is_some(), "nothing has changed");
    // As the manual says.
    older.release("a", "job").unwrap();
    place.change("DELETE FROM leasehold_keys WHERE key = 'job'");
    grant(&place.open().await, "c", "job").await;
}

#[tokio::test]
async fn beside_older_leases_a_file_is_opened_without_a_write() {
    let (place, older) = older().await;
    older.acquire("a", "job", "exclusive").unwrap().unwrap();
    let store = place.open().await;
    assert_eq!(store.check().await.unwrap().schema, Some(1));
    let writer = place.raw();
    writer.execute_batch("BEGIN IMMEDIATE").unwrap();
    let timeout = Duration::from_millis(30);
    let other = place.config().timeout(timeout).connect().await.unwrap();
    drop(writer);
    refuse(&other, "b", "job").await;
    older.release("a", "job").unwrap();
    let last = place.open().await;
    assert_eq!(last.check().await.unwrap().schema, Some(2));
}
