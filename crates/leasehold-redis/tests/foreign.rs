//! Redlock clients of other libraries, which write a plain string at the key: the protocol of section 2b of the
//! replaced systems' page, sent as they send it.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod requests;
mod server;

use std::time::Duration;

use leasehold_core::{
    Evict, Filter, LeaseReleased, LeaseRenewed, List, LostReason, Mode, Remaining, Store as _,
    Target, Ttl, Why,
};
use leasehold_redis::RedisStore;
use requests::{LONG, acquire, acquire_for, granted, id, key, only, refused, release, renew};
use server::{Server, until};

const RELEASE: &str =
    "if redis.call('GET',KEYS[1])==ARGV[1] then return redis.call('DEL',KEYS[1]) else return 0 end";
const EXTEND: &str = "if redis.call('GET',KEYS[1])==ARGV[1] then return redis.call('PEXPIRE',KEYS[1],ARGV[2]) else return 0 end";

/// Another library's client.
struct Foreign<'a>(&'a Server);

impl Foreign<'_> {
    async fn acquire(&self, key: &str, token: &str, ms: u64) -> bool {
        let words = ["SET", key, token, "PX", &ms.to_string(), "NX"];
        self.0.text(&words).await.as_deref() == Some("OK")
    }

    async fn extend(&self, key: &str, token: &str, ms: u64) -> bool {
        self.0.number(&["EVAL", EXTEND, "1", key, token, &ms.to_string()]).await == 1
    }

    async fn release(&self, key: &str, token: &str) -> bool {
        self.0.number(&["EVAL", RELEASE, "1", key, token]).await == 1
    }
}

async fn setup() -> (Server, RedisStore) {
    let server = Server::start(&[]).await.unwrap();
    let store = server.store().await;
    (server, store)
}

#[tokio::test]
async fn they_exclude_us() {
    let (server, store) = setup().await;
    let foreign = Foreign(&server);
    assert!(foreign.acquire("k", "theirs", 20_000).await);
    for mode in [Mode::Exclusive, Mode::SHARED] {
        let refused = refused(store.acquire(&acquire("k", "ours", mode)).await);
        let rest = refused.retry_after.unwrap();
        assert!(rest > Duration::from_secs(10) && rest <= Duration::from_secs(20), "{rest:?}");
        let Why::Held(Some(holder)) = refused.why else { panic!("{:?}", refused.why) };
        assert_eq!((holder.id, holder.token), (Some(id("theirs")), None));
    }
    assert!(foreign.release("k", "theirs").await);
    granted(store.acquire(&acquire("k", "ours", Mode::Exclusive)).await);
}

#[tokio::test]
async fn we_exclude_them_shared_holders_included() {
    let (server, store) = setup().await;
    let foreign = Foreign(&server);
    granted(store.acquire(&acquire("x", "ours", Mode::Exclusive)).await);
    assert!(!foreign.acquire("x", "theirs", 1_000).await);
    assert_eq!(server.text(&["GET", "x"]).await.as_deref(), Some("ours"));

    granted(store.acquire(&acquire_for("s", "short", Mode::SHARED, LONG)).await);
    granted(store.acquire(&acquire_for("s", "long", Mode::SHARED, 4 * LONG)).await);
    let rest = server.number(&["PTTL", "s"]).await;
    assert!(rest > 100_000, "the longest holder's: {rest}");
    for token in ["theirs", "short", "long"] {
        assert!(!foreign.acquire("s", token, 1_000).await);
        assert!(!foreign.release("s", token).await, "no id is the key's value");
    }
    store.release(&release("s", "long")).await.unwrap();
    let rest = server.number(&["PTTL", "s"]).await;
    assert!(rest <= 30_000, "computed again: {rest}");
    assert!(!foreign.acquire("s", "theirs", 1_000).await);
    store.release(&release("s", "short")).await.unwrap();
    store.release(&release("x", "ours")).await.unwrap();
    assert!(foreign.acquire("s", "theirs", 1_000).await);
    assert!(foreign.acquire("x", "theirs", 1_000).await);
}

#[tokio::test]
async fn their_lock_is_adopted_renewed_and_released_by_its_token() {
    let (server, store) = setup().await;
    let foreign = Foreign(&server);
    assert!(foreign.acquire("k", "theirs", 5_000).await);
    let to = Ttl::new(4 * LONG).unwrap();
    let renewed = store.renew(&renew("k", "theirs", Mode::Exclusive, to)).await.unwrap();
    assert!(
        matches!(only(renewed.leases), LeaseRenewed::Held(Remaining::For(rest)) if rest > 3 * LONG)
    );
    assert!(server.number(&["PTTL", "k"]).await > 100_000);
    let again = granted(store.acquire(&acquire("k", "theirs", Mode::Exclusive)).await);
    assert!(!again.fresh && again.token.is_some());
    let token = granted(store.acquire(&acquire("k", "theirs", Mode::Exclusive)).await).token;
    assert_eq!(token, again.token);
    assert!(foreign.extend("k", "theirs", 9_000).await, "it is still theirs too");
    let released = store.release(&release("k", "theirs")).await.unwrap();
    assert!(matches!(only(released.leases), LeaseReleased::Released));
    assert_eq!(server.number(&["EXISTS", "k"]).await, 0);
}

#[tokio::test]
async fn the_plain_key_is_the_truth() {
    let (server, store) = setup().await;
    let foreign = Foreign(&server);
    let first = granted(store.acquire(&acquire("k", "ours", Mode::Exclusive)).await);
    // Who deletes it breaks the lock, and who extends it extends it.
    assert!(foreign.extend("k", "ours", 300_000).await);
    let page = store.list(&List::new(Filter::default())).await.unwrap();
    assert!(matches!(page.records[0].remaining(), Remaining::For(rest) if rest > 8 * LONG));
    server.ask(&["DEL", "k"]).await.unwrap();
    let to = Ttl::new(LONG).unwrap();
    let renewed = store.renew(&renew("k", "ours", Mode::Exclusive, to)).await.unwrap();
    assert!(matches!(only(renewed.leases), LeaseRenewed::Lost(Some(LostReason::Gone))));
    assert!(store.list(&List::new(Filter::default())).await.unwrap().records.is_empty());
    assert!(foreign.acquire("k", "theirs", 20_000).await);
    let renewed = store.renew(&requests::renew("k", "ours", Mode::Exclusive, to)).await.unwrap();
    assert!(matches!(only(renewed.leases), LeaseRenewed::Lost(_)));
    let released = store.release(&release("k", "ours")).await.unwrap();
    assert!(matches!(only(released.leases), LeaseReleased::NotHeld));
    assert_eq!(server.text(&["GET", "k"]).await.as_deref(), Some("theirs"));
    assert!(foreign.release("k", "theirs").await);
    let second = granted(store.acquire(&acquire("k", "again", Mode::Exclusive)).await);
    assert!(second.token > first.token);

    granted(store.acquire(&acquire("s", "reader", Mode::SHARED)).await);
    server.ask(&["DEL", "s"]).await.unwrap();
    granted(store.acquire(&acquire("s", "writer", Mode::Exclusive)).await);
}

#[tokio::test]
async fn their_lock_is_shown_and_broken_by_its_key() {
    let (server, store) = setup().await;
    let foreign = Foreign(&server);
    assert!(foreign.acquire("k", "theirs", 20_000).await);
    // Longer than any id, so that it has none.
    let long = "x".repeat(300);
    assert!(foreign.acquire("long", &long, 20_000).await);
    for (name, theirs) in [("k", Some(id("theirs"))), ("long", None)] {
        let named = List::new(Filter::default().with_key(key(name)));
        let shown = store.list(&named).await.unwrap().records;
        assert_eq!((shown.len(), &shown[0].id), (1, &theirs));
        let target = Target::of(&shown[0]);
        let evicted = store.evict(&Evict::exactly(vec![target], None)).await.unwrap();
        assert_eq!(evicted.removed.len(), 1);
        assert!(store.list(&named).await.unwrap().records.is_empty());
        assert_eq!(server.number(&["EXISTS", name]).await, 0);
    }
}

#[tokio::test]
async fn an_id_that_was_shared_is_theirs_when_they_take_it_alone() {
    let (server, store) = setup().await;
    let foreign = Foreign(&server);
    granted(store.acquire(&acquire("k", "one", Mode::SHARED)).await);
    server.ask(&["DEL", "k"]).await.unwrap();
    assert!(foreign.acquire("k", "one", 20_000).await);
    let to = Ttl::new(LONG).unwrap();
    let renewed = store.renew(&renew("k", "one", Mode::Exclusive, to)).await.unwrap();
    assert!(matches!(only(renewed.leases), LeaseRenewed::Held(_)));
    let released = store.release(&release("k", "one")).await.unwrap();
    assert!(matches!(only(released.leases), LeaseReleased::Released));
    assert_eq!(server.number(&["EXISTS", "k"]).await, 0);
}

#[tokio::test]
async fn what_is_left_of_ours_is_removed_beside_a_lock_of_theirs() {
    let (server, store) = setup().await;
    let foreign = Foreign(&server);
    let brief = Duration::from_millis(10);
    for (name, theirs) in [("k", "theirs".to_owned()), ("long", "x".repeat(300))] {
        granted(store.acquire(&acquire_for(name, "ours", Mode::Exclusive, brief)).await);
        until(async || foreign.acquire(name, &theirs, 20_000).await).await;
    }
    let purged = store.evict(&Evict::expired(Filter::default())).await.unwrap();
    assert_eq!(purged.removed.len(), 2);
    assert_eq!(server.text(&["GET", "k"]).await.as_deref(), Some("theirs"));
    assert_eq!(server.text(&["GET", "long"]).await, Some("x".repeat(300)));
    let rest = server.number(&["PTTL", "k"]).await;
    assert!((10_000..=20_000).contains(&rest), "{rest}");
    // A mark whose companion is gone stays one too.
    granted(store.acquire(&acquire("s", "reader", Mode::SHARED)).await);
    let mark = server.text(&["GET", "s"]).await;
    server.ask(&["DEL", "lh:lock:{s}:s"]).await.unwrap();
    server.ask(&["HSET", "lh:lock:{s}:s", "=old", "xh 1 1 1 0 {}"]).await.unwrap();
    let purged = store.evict(&Evict::expired(Filter::default())).await.unwrap();
    assert_eq!(purged.removed.len(), 1);
    assert_eq!(server.text(&["GET", "s"]).await, mark);
}
