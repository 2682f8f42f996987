//! Tokens of a lease of one key, which the server itself changes.

use std::time::Duration;

use leasehold_core::{
    AcquireReply, AcquireRequest, Claims, EvictRequest, FencingToken, Filter, Key, LeaseId, Mode,
    ReleaseEntry, ReleaseRequest, RenewEntry, RenewOutcome, RenewRequest, Store as _, Ttl, table,
};
use leasehold_mongodb::MongodbStore;
use leasehold_testkit::mongodb::Server;
use leasehold_testkit::requests::{acquire, granted, renew};

use crate::on_clock::OnClock;

const TTL: Duration = Duration::from_secs(60);

async fn token(store: &MongodbStore, request: &AcquireRequest) -> FencingToken {
    match store.acquire(request).await.unwrap() {
        AcquireReply::Granted(granted) => granted.token.unwrap(),
        AcquireReply::Refused(refused) => panic!("{refused:?}"),
    }
}

/// Without clients of mongo-lock.
#[tokio::test]
async fn a_raise_raises_the_token_and_the_counter_of_its_key() {
    let server = Server::start(&[]).await.unwrap();
    let store = MongodbStore::connect(&format!("{}?skew=0", server.url())).await.unwrap();
    store.prepare().await.unwrap();
    let (key, id) = (Key::new("k").unwrap(), LeaseId::foreign(b"a").unwrap());
    let (claims, ttl) = (Claims::one(key.clone(), Mode::Exclusive), Ttl::new(TTL).unwrap());
    let request = AcquireRequest::new(id.clone(), claims.clone(), ttl);
    let high = FencingToken::new(token(&store, &request).await.get() + 1_000_000_000_000).unwrap();
    let entry = RenewEntry::extend(id.clone(), claims, ttl).with_token_raised_to(high);
    let renewed = store.renew(&RenewRequest::new(vec![entry])).await.unwrap().leases;
    assert!(matches!(renewed[..], [RenewOutcome::Held(_)]), "{renewed:?}");
    assert_eq!(token(&store, &request).await, high);
    store.release(&ReleaseRequest::new(vec![ReleaseEntry::new(id, [key])])).await.unwrap();
    assert!(token(&store, &request).await > high);
}

/// Of the first key two things are over, its lease and its counter; of the second none, although its counter is as old.
#[tokio::test]
async fn purges_of_one_thing_at_a_time_leave_nothing() {
    let on = OnClock::new().await;
    for key in ["a", "b"] {
        granted(on.store.acquire(&acquire(key, "holder", Mode::Exclusive)).await);
    }
    let for_ever = renew("b", "holder", Mode::Exclusive, Ttl::NEVER);
    let renewed = on.store.renew(&for_ever).await.unwrap().leases;
    assert!(matches!(renewed[..], [RenewOutcome::Held(_)]), "{renewed:?}");
    on.set.advance(table::FORGET_AFTER + 2 * TTL).unwrap();
    let one = EvictRequest::expired(Filter::default()).with_limit(1);
    let (mut removed, mut forgotten) = (0, 0);
    loop {
        let purged = on.store.evict(&one).await.unwrap();
        removed += purged.removed.len();
        forgotten += purged.counters_forgotten;
        if !purged.more {
            break;
        }
    }
    assert_eq!((removed, forgotten), (1, 1));
}
