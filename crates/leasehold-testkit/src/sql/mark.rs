//! The high-water mark of the tokens, and what remains of a key that nobody holds.

use futures_util::future::join_all;
use leasehold_core::{
    AcquireRequest, Claim, Claims, ErrorKind, EvictRequest, EvictTarget, FencingToken, Filter,
    Mode, ReleaseEntry, ReleaseRequest, RenewEntry, RenewOutcome, RenewReply, RenewRequest, Result,
    Store, Ttl,
};

use super::{SqlTestServer, names};
use crate::LONG;
use crate::requests::{acquire, evict, granted, id, key, only, release};

#[macro_export]
macro_rules! sql_mark {
    ($server:ty) => {
        $crate::sql_tests!($server, mark, [
            nothing_remains_of_released_keys_in_any_mode,
            a_key_that_another_transaction_adds_delays_no_other_lease,
            the_last_token_ends_the_store_without_a_grant,
            a_counter_that_was_damaged_by_hand_ends_no_other_key,
        ], on two threads []);
    };
}

/// The rows of the leases.
pub async fn rows<S: SqlTestServer>(server: &S) -> usize {
    server.ask(&format!("SELECT slot FROM {}", S::LEASES)).await.len()
}

/// The high-water mark.
pub async fn mark<S: SqlTestServer>(server: &S) -> u64 {
    server.ask(S::HIGH_WATER_MARK).await[0][0].as_deref().unwrap().parse().unwrap()
}

/// Takes a key, and returns the token.
pub async fn token(store: &impl Store, name: &str, lease: &str) -> u64 {
    granted(store.acquire(&acquire(name, lease, Mode::Exclusive)).await).token.unwrap().get()
}

/// The mark is at least the token of each lease that is gone, whatever has removed it.
pub async fn nothing_remains_of_released_keys_in_any_mode<S: SqlTestServer>() {
    let (server, store) = S::with_store(&[]).await;
    let taken = |reply| granted(reply).token.unwrap().get();
    let gone = async |token: u64| {
        let found = (rows(&server).await, mark(&server).await);
        assert_eq!((found.0, found.1 >= token), (0, true), "{found:?} after {token}");
    };
    let mut last = 0;
    for lease in ["a", "b", "c"] {
        last = taken(store.acquire(&acquire("shared", lease, Mode::SHARED)).await);
    }
    assert_eq!(rows(&server).await, 3);
    for lease in ["b", "c", "a"] {
        store.release(&release("shared", lease)).await.unwrap();
    }
    gone(last).await;
    let claims =
        Claims::new(["x", "y"].map(|name| Claim { key: key(name), mode: Mode::Exclusive }));
    let many = AcquireRequest::new(id("m"), claims.unwrap(), Ttl::new(LONG).unwrap());
    last = taken(store.acquire(&many).await);
    let end = ReleaseEntry::new(id("m"), ["x", "y"].map(key));
    store.release(&ReleaseRequest::new(vec![end])).await.unwrap();
    gone(last).await;
    last = token(&store, "one", "a").await;
    store.release(&release("one", "a")).await.unwrap();
    gone(last).await;
    let of_batch = names(64);
    let batch: Vec<_> = of_batch.iter().map(|name| acquire(name, "a", Mode::Exclusive)).collect();
    for reply in join_all(batch.iter().map(|request| store.acquire(request))).await {
        last = last.max(taken(reply));
    }
    let ends: Vec<_> = of_batch.iter().map(|name| release(name, "a")).collect();
    join_all(ends.iter().map(|end| store.release(end))).await;
    gone(last).await;
    last = token(&store, "over", "a").await;
    server.ask(&format!("UPDATE {} SET expires = 1", S::LEASES)).await;
    store.evict(&EvictRequest::expired(Filter::default())).await.unwrap();
    gone(last).await;
    // An evicted lease leaves a mark for its holder, also each of two of one key that are evicted together.
    token(&store, "evicted", "a").await;
    store.evict(&evict("evicted", "a")).await.unwrap();
    assert_eq!(rows(&server).await, 2);
    for lease in ["b", "c"] {
        last = taken(store.acquire(&acquire("shared", lease, Mode::SHARED)).await);
    }
    let both = ["b", "c"].map(|lease| EvictTarget::new(key("shared"), Some(id(lease))));
    store.evict(&EvictRequest::exactly(both.to_vec(), None)).await.unwrap();
    server.ask(&format!("UPDATE {} SET expires = 1", S::LEASES)).await;
    store.evict(&EvictRequest::expired(Filter::default())).await.unwrap();
    gone(last).await;
}

/// The members of a batch with such a key are sent in another way.
pub async fn a_key_that_another_transaction_adds_delays_no_other_lease<S: SqlTestServer>() {
    let (server, store) = S::with_store(&[]).await;
    token(&store, "warm", "a").await;
    let mut other = server.connect().await.unwrap();
    let adds = format!("BEGIN; INSERT INTO {} ({}, slot) VALUES ('k1', 0)", S::LEASES, S::KEY);
    S::query(&mut other, &adds).await.unwrap();
    let batch = ["k0", "k1", "k2", "k3"].map(|name| acquire(name, "a", Mode::Exclusive));
    let mut held = Box::pin(store.acquire(&batch[1]));
    let others = [0, 2, 3].map(|n| store.acquire(&batch[n]));
    tokio::select! {
        biased;
        reply = &mut held => panic!("{reply:?}"),
        replies = tokio::time::timeout(LONG, join_all(others)) => {
            replies.unwrap().into_iter().for_each(|reply| drop(granted(reply)));
        }
    }
    S::query(&mut other, "ROLLBACK").await.unwrap();
    granted(held.await);
}

pub async fn the_last_token_ends_the_store_without_a_grant<S: SqlTestServer>() {
    let (server, store) = S::with_store(&[]).await;
    server.ask(&S::SET_THE_MARK.replace("{mark}", "9007199254740991")).await;
    let asks = ["a", "b", "c", "d"].map(|name| acquire(name, "a", Mode::Exclusive));
    for reply in join_all(asks.iter().map(|ask| store.acquire(ask))).await {
        let error = reply.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    }
    assert_eq!(rows(&server).await, 0);
}

/// One value near the end would end every key.
pub async fn a_counter_that_was_damaged_by_hand_ends_no_other_key<S: SqlTestServer>() {
    let (server, store) = S::with_store(&[]).await;
    // Each is released by another function.
    for (count, mode) in [(1, Mode::Exclusive), (1, Mode::SHARED), (8, Mode::Exclusive)] {
        let keys = names(count);
        for name in &keys {
            granted(store.acquire(&acquire(name, "a", mode)).await);
        }
        server.ask(&format!("UPDATE {} SET counter = 9007199254740991", S::LEASES)).await;
        let ends: Vec<_> = keys.iter().map(|name| release(name, "a")).collect();
        for released in join_all(ends.iter().map(|end| store.release(end))).await {
            released.unwrap();
        }
        assert_eq!((rows(&server).await, mark(&server).await < 1 << 52), (count, true));
        token(&store, "other", "a").await;
        store.release(&release("other", "a")).await.unwrap();
        server.ask(&format!("DELETE FROM {}", S::LEASES)).await;
    }
}

/// How far a token may be raised in a store that is new.
const FAR: u64 = (1 << 52) + (1 << 32);

/// Raises tokens far above the clock, so that from now on only the mark makes them grow, and one too far. Returns the
/// highest.
pub async fn raise_tokens(store: &impl Store) -> u64 {
    let raised = [("a", FAR - 9), ("b", FAR - 8), ("c", FAR), ("d", FAR - 7), ("e", FAR + 1)];
    for (name, _) in raised {
        token(store, name, "a").await;
    }
    let raises = raised.map(|(name, to)| {
        let claims = Claims::one(key(name), Mode::Exclusive);
        let entry = RenewEntry::extend(id("a"), claims, Ttl::new(LONG).unwrap());
        RenewRequest::new(vec![entry.with_token_raised_to(FencingToken::new(to).unwrap())])
    });
    let check = |to: u64, renewed: Result<RenewReply>| match renewed.map(|reply| only(reply.leases))
    {
        Ok(RenewOutcome::Held(_)) => assert!(to <= FAR),
        Ok(RenewOutcome::Failed(error)) | Err(error) => {
            assert_eq!((to > FAR, error.kind()), (true, ErrorKind::InvalidInput), "{error}");
        }
        lost => panic!("{lost:?}"),
    };
    // The first is sent alone, the others in a batch, and the last again alone.
    let renewed = join_all(raises.iter().map(|raise| store.renew(raise))).await;
    for ((_, to), renewed) in raised.iter().zip(renewed) {
        check(*to, renewed);
    }
    check(FAR + 1, store.renew(&raises[4]).await);
    let ends = raised.map(|(name, _)| release(name, "a"));
    join_all(ends.iter().map(|end| store.release(end))).await;
    FAR
}

/// Takes and releases a key whose next token must be above the last one.
pub async fn token_grows(store: &impl Store, last: &mut u64) {
    let next = token(store, "a", "next").await;
    assert!(next > *last, "{next} after {last}");
    *last = next;
    store.release(&release("a", "next")).await.unwrap();
}
