//! Redlock clients of other libraries, which write a plain string at the key, sent as they send it: redlock (a UUID's
//! text), redsync (16 random bytes in base64) and rslock (20 random bytes).

use std::time::Duration;

use leasehold_core::{
    AcquireRequest, Claims, EvictRequest, EvictTarget, Filter, LeaseId, ListRequest, LostReason,
    Mode, RefusalReason, ReleaseEntry, ReleaseOutcome, ReleaseRequest, Remaining, RenewEntry,
    RenewOutcome, RenewRequest, Store as _, Ttl,
};
use leasehold_redis::RedisStore;
use leasehold_redis::redis::aio::MultiplexedConnection;
use leasehold_redis::redis::{self, RedisResult, Script, Value};
use leasehold_testkit::redis::Server;
use leasehold_testkit::requests::{
    acquire, acquire_for, granted, id, key, only, refused, release, renew,
};
use leasehold_testkit::{LONG, until};

const RELEASE: &str =
    "if redis.call('GET',KEYS[1])==ARGV[1] then return redis.call('DEL',KEYS[1]) else return 0 end";
const EXTEND: &str = "if redis.call('GET',KEYS[1])==ARGV[1] then return redis.call('PEXPIRE',KEYS[1],ARGV[2]) else return 0 end";
const ACQUIRE_OR_EXTEND: &str = "if redis.call('GET',KEYS[1])==ARGV[1] then return redis.call('PEXPIRE',KEYS[1],ARGV[2]) elseif redis.call('SET',KEYS[1],ARGV[1],'NX','PX',ARGV[2]) then return 1 else return 0 end";
/// rslock's extension writes the value again.
const EXTEND_BY_SET: &str = "if redis.call('GET',KEYS[1])~=ARGV[1] then return 0 elseif redis.call('SET',KEYS[1],ARGV[1],'PX',ARGV[2])~=nil then return 1 else return 0 end";

/// What their clients write at a key.
const VALUES: [&[u8]; 3] = [
    b"7f0c8a52-5d0e-4a3e-9d0c-3b1f4a2e6d11",
    b"q83vEjRWeJCrze8SNFZ4kA==",
    b"\x00\xff\x80 \n\x01\xfe\xc3\x28\x7f\x0d\xa0\xe2\x82\x00\x3d\x10\x99\xf0\x9f",
];

/// Another library's client.
struct Foreign {
    connection: MultiplexedConnection,
    /// Its script that extends a lock.
    extends: &'static str,
}

impl Foreign {
    async fn on(server: &Server) -> Self {
        let client = redis::Client::open(server.url()).unwrap();
        let connection = client.get_multiplexed_async_connection().await.unwrap();
        Self { connection, extends: EXTEND }
    }

    /// `SET NX`, with `EX` for whole seconds, `PX` for others, and neither for no end.
    async fn acquire(&self, key: &str, token: impl AsRef<[u8]>, ms: u64) -> bool {
        let mut set = redis::cmd("set");
        set.arg(key).arg(token.as_ref());
        match ms {
            0 => &mut set,
            ms if ms % 1_000 == 0 => set.arg("ex").arg(ms / 1_000),
            ms => set.arg("px").arg(ms),
        }
        .arg("nx");
        let set: Value = set.query_async(&mut self.connection.clone()).await.unwrap();
        set == Value::Okay
    }

    async fn extend(&self, key: &str, token: impl AsRef<[u8]>, ms: u64) -> bool {
        self.script(self.extends, key, token.as_ref(), Some(ms)).await
    }

    async fn acquire_or_extend(&self, key: &str, token: impl AsRef<[u8]>, ms: u64) -> bool {
        self.script(ACQUIRE_OR_EXTEND, key, token.as_ref(), Some(ms)).await
    }

    async fn release(&self, key: &str, token: impl AsRef<[u8]>) -> bool {
        self.script(RELEASE, key, token.as_ref(), None).await
    }

    /// By its hash, and in full if the server does not know that.
    async fn script(&self, text: &str, key: &str, token: &[u8], ms: Option<u64>) -> bool {
        let sent = async |command: &str, script: &str| -> RedisResult<i64> {
            let mut command = redis::cmd(command);
            command.arg(script).arg(1).arg(key).arg(token).arg(ms);
            command.query_async(&mut self.connection.clone()).await
        };
        match sent("evalsha", Script::new(text).get_hash()).await {
            Err(error) if error.code() == Some("NOSCRIPT") => {
                sent("eval", text).await.unwrap() == 1
            }
            answer => answer.unwrap() == 1,
        }
    }
}

/// One client of each library.
async fn each(server: &Server) -> [(Foreign, &'static [u8]); 3] {
    let mut rslock = Foreign::on(server).await;
    rslock.extends = EXTEND_BY_SET;
    [
        (Foreign::on(server).await, VALUES[0]),
        (Foreign::on(server).await, VALUES[1]),
        (rslock, VALUES[2]),
    ]
}

fn exclusive(name: &str) -> Claims {
    Claims::one(key(name), Mode::Exclusive)
}

async fn setup() -> (Server, RedisStore) {
    let server = Server::start(&[]).await.unwrap();
    let store = server.store().await;
    (server, store)
}

#[tokio::test]
async fn foreign_locks_exclude_ours() {
    let (server, store) = setup().await;
    let foreign = Foreign::on(&server).await;
    assert!(foreign.acquire("k", "theirs", 20_000).await);
    for mode in [Mode::Exclusive, Mode::SHARED] {
        let refused = refused(store.acquire(&acquire("k", "ours", mode)).await);
        let rest = refused.retry_after.unwrap();
        assert!(
            rest > Duration::from_secs(10) && rest <= Duration::from_millis(20_001),
            "{rest:?}"
        );
        let RefusalReason::Held(Some(holder)) = refused.why else { panic!("{:?}", refused.why) };
        assert_eq!((holder.id, holder.token), (Some(id("theirs")), None));
    }
    assert!(foreign.release("k", "theirs").await);
    granted(store.acquire(&acquire("k", "ours", Mode::Exclusive)).await);
}

#[tokio::test]
async fn our_locks_exclude_foreign_clients_shared_ones_too() {
    let (server, store) = setup().await;
    let foreign = Foreign::on(&server).await;
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
async fn a_foreign_lock_is_adopted_renewed_and_released_by_its_token() {
    let (server, store) = setup().await;
    let foreign = Foreign::on(&server).await;
    assert!(foreign.acquire("k", "theirs", 5_000).await);
    let to = Ttl::new(4 * LONG).unwrap();
    let renewed = store.renew(&renew("k", "theirs", Mode::Exclusive, to)).await.unwrap();
    assert!(
        matches!(only(renewed.leases), RenewOutcome::Held(Remaining::For(rest)) if rest > 3 * LONG)
    );
    assert!(server.number(&["PTTL", "k"]).await > 100_000);
    let again = granted(store.acquire(&acquire("k", "theirs", Mode::Exclusive)).await);
    assert!(!again.fresh && again.token.is_some());
    let token = granted(store.acquire(&acquire("k", "theirs", Mode::Exclusive)).await).token;
    assert_eq!(token, again.token);
    assert!(foreign.extend("k", "theirs", 9_000).await, "it is still theirs too");
    let released = store.release(&release("k", "theirs")).await.unwrap();
    assert!(matches!(only(released.leases), ReleaseOutcome::Released));
    assert_eq!(server.number(&["EXISTS", "k"]).await, 0);
}

#[tokio::test]
async fn the_plain_key_is_the_truth() {
    let (server, store) = setup().await;
    let foreign = Foreign::on(&server).await;
    let first = granted(store.acquire(&acquire("k", "ours", Mode::Exclusive)).await);
    // Deleting it breaks the lock; extending it extends the lock.
    assert!(foreign.extend("k", "ours", 300_000).await);
    let page = store.list(&ListRequest::new(Filter::default())).await.unwrap();
    assert!(matches!(page.records[0].remaining(), Remaining::For(rest) if rest > 8 * LONG));
    server.ask(&["DEL", "k"]).await.unwrap();
    let to = Ttl::new(LONG).unwrap();
    let renewed = store.renew(&renew("k", "ours", Mode::Exclusive, to)).await.unwrap();
    assert!(matches!(only(renewed.leases), RenewOutcome::Lost(Some(LostReason::Gone))));
    assert!(store.list(&ListRequest::new(Filter::default())).await.unwrap().records.is_empty());
    assert!(foreign.acquire("k", "theirs", 20_000).await);
    let renewed = store.renew(&renew("k", "ours", Mode::Exclusive, to)).await.unwrap();
    assert!(matches!(only(renewed.leases), RenewOutcome::Lost(_)));
    let released = store.release(&release("k", "ours")).await.unwrap();
    assert!(matches!(only(released.leases), ReleaseOutcome::NotHeld));
    assert_eq!(server.text(&["GET", "k"]).await.as_deref(), Some("theirs"));
    assert!(foreign.release("k", "theirs").await);
    let second = granted(store.acquire(&acquire("k", "again", Mode::Exclusive)).await);
    assert!(second.token > first.token);

    granted(store.acquire(&acquire("s", "reader", Mode::SHARED)).await);
    server.ask(&["DEL", "s"]).await.unwrap();
    granted(store.acquire(&acquire("s", "writer", Mode::Exclusive)).await);
}

#[tokio::test]
async fn a_foreign_lock_is_listed_and_broken_by_its_key() {
    let (server, store) = setup().await;
    let foreign = Foreign::on(&server).await;
    assert!(foreign.acquire("k", "theirs", 20_000).await);
    // Longer than any id, so it has none.
    let long = "x".repeat(300);
    assert!(foreign.acquire("long", &long, 20_000).await);
    for (name, theirs) in [("k", Some(id("theirs"))), ("long", None)] {
        let named = ListRequest::new(Filter::default().with_key(key(name)));
        let shown = store.list(&named).await.unwrap().records;
        assert_eq!((shown.len(), &shown[0].id), (1, &theirs));
        let target = EvictTarget::of(&shown[0]);
        let evicted = store.evict(&EvictRequest::exactly(vec![target], None)).await.unwrap();
        assert_eq!(evicted.removed.len(), 1);
        assert!(store.list(&named).await.unwrap().records.is_empty());
        assert_eq!(server.number(&["EXISTS", name]).await, 0);
    }
}

#[tokio::test]
async fn a_shared_id_of_ours_that_a_foreign_client_takes_is_foreign() {
    let (server, store) = setup().await;
    let foreign = Foreign::on(&server).await;
    granted(store.acquire(&acquire("k", "one", Mode::SHARED)).await);
    server.ask(&["DEL", "k"]).await.unwrap();
    assert!(foreign.acquire("k", "one", 20_000).await);
    let to = Ttl::new(LONG).unwrap();
    let renewed = store.renew(&renew("k", "one", Mode::Exclusive, to)).await.unwrap();
    assert!(matches!(only(renewed.leases), RenewOutcome::Held(_)));
    let released = store.release(&release("k", "one")).await.unwrap();
    assert!(matches!(only(released.leases), ReleaseOutcome::Released));
    assert_eq!(server.number(&["EXISTS", "k"]).await, 0);
}

#[tokio::test]
async fn our_leftovers_are_removed_under_a_foreign_lock() {
    let (server, store) = setup().await;
    let foreign = Foreign::on(&server).await;
    let brief = Duration::from_millis(10);
    for (name, theirs) in [("k", "theirs".to_owned()), ("long", "x".repeat(300))] {
        granted(store.acquire(&acquire_for(name, "ours", Mode::Exclusive, brief)).await);
        until(async || foreign.acquire(name, &theirs, 20_000).await).await;
    }
    let purged = store.evict(&EvictRequest::expired(Filter::default())).await.unwrap();
    assert_eq!(purged.removed.len(), 2);
    assert_eq!(server.text(&["GET", "k"]).await.as_deref(), Some("theirs"));
    assert_eq!(server.text(&["GET", "long"]).await, Some("x".repeat(300)));
    let rest = server.number(&["PTTL", "k"]).await;
    assert!((10_000..=20_000).contains(&rest), "{rest}");
    // A mark without a metadata key stays a mark too.
    granted(store.acquire(&acquire("s", "reader", Mode::SHARED)).await);
    let mark = server.text(&["GET", "s"]).await;
    server.ask(&["DEL", "lh:lock:{s}:s"]).await.unwrap();
    server.ask(&["HSET", "lh:lock:{s}:s", "=old", "xh 1 1 1 0 {}"]).await.unwrap();
    let purged = store.evict(&EvictRequest::expired(Filter::default())).await.unwrap();
    assert_eq!(purged.removed.len(), 1);
    assert_eq!(server.text(&["GET", "s"]).await, mark);
}

#[tokio::test]
async fn each_foreign_value_excludes_us_and_is_adopted_renewed_and_released() {
    let (server, store) = setup().await;
    for (foreign, value) in each(&server).await {
        let theirs = LeaseId::foreign(value).unwrap();
        for ms in [20_000, 20_500] {
            assert!(foreign.acquire("k", value, ms).await);
            for mode in [Mode::Exclusive, Mode::SHARED] {
                let refused = refused(store.acquire(&acquire("k", "ours", mode)).await);
                // The server keeps it through the millisecond of its end.
                let most = Duration::from_millis(ms + 1);
                assert!(refused.retry_after.is_some_and(|rest| rest <= most), "{refused:?}");
                let RefusalReason::Held(Some(holder)) = refused.why else {
                    panic!("{:?}", refused.why)
                };
                assert_eq!(holder.id.as_ref(), Some(&theirs));
            }
            assert!(foreign.extend("k", value, 300_000).await);
            let refused = refused(store.acquire(&acquire("k", "ours", Mode::Exclusive)).await);
            assert!(refused.retry_after.is_some_and(|rest| rest > LONG), "{refused:?}");
            assert!(foreign.acquire_or_extend("k", value, 20_000).await);
            assert!(foreign.release("k", value).await);
        }

        assert!(foreign.acquire_or_extend("k", value, 20_000).await, "of a free key");
        let to = Ttl::new(4 * LONG).unwrap();
        let renewal = RenewEntry::extend(theirs.clone(), exclusive("k"), to);
        let renewed = store.renew(&RenewRequest::new(vec![renewal])).await.unwrap();
        assert!(matches!(only(renewed.leases), RenewOutcome::Held(_)));
        let again = AcquireRequest::new(theirs.clone(), exclusive("k"), to);
        let again = granted(store.acquire(&again).await);
        assert!(!again.fresh && again.token.is_some());
        // It stays foreign: its value, and the effect of foreign scripts.
        assert!(!foreign.acquire("k", b"another", 1_000).await);
        assert!(foreign.extend("k", value, 300_000).await);
        assert!(foreign.acquire_or_extend("k", value, 300_000).await);
        let ending = || ReleaseRequest::new(vec![ReleaseEntry::new(theirs.clone(), [key("k")])]);
        let released = store.release(&ending()).await.unwrap();
        assert!(matches!(only(released.leases), ReleaseOutcome::Released));
        assert!(!foreign.release("k", value).await && !foreign.extend("k", value, 1_000).await);
        assert_eq!(server.number(&["EXISTS", "k"]).await, 0);
    }
}

#[tokio::test]
async fn each_of_our_locks_excludes_every_foreign_command() {
    let (server, store) = setup().await;
    granted(store.acquire(&acquire("x", "ours", Mode::Exclusive)).await);
    for reader in [b"reader".as_slice(), VALUES[2]] {
        let reader = LeaseId::foreign(reader).unwrap();
        let claims = Claims::one(key("s"), Mode::SHARED);
        granted(store.acquire(&AcquireRequest::new(reader, claims, Ttl::new(LONG).unwrap())).await);
    }
    for (name, ours) in [("x", None), ("s", Some(VALUES[2])), ("s", Some(b"reader".as_slice()))] {
        let before = server.ask(&["GET", name]).await.unwrap();
        for (foreign, value) in each(&server).await {
            // With a value of their own, and with the id of a sharer.
            for value in [value].into_iter().chain(ours) {
                assert!(!foreign.acquire(name, value, 1_000).await);
                assert!(!foreign.acquire(name, value, 1_500).await);
                assert!(!foreign.acquire(name, value, 0).await);
                assert!(!foreign.acquire_or_extend(name, value, 1_000).await);
                assert!(!foreign.extend(name, value, 1_000).await);
                assert!(!foreign.release(name, value).await);
            }
        }
        assert_eq!(server.ask(&["GET", name]).await.unwrap(), before);
        assert!(server.number(&["PTTL", name]).await > 10_000);
    }
}

#[tokio::test]
async fn a_foreign_client_that_knows_our_id_extends_and_releases_our_lock() {
    let (server, store) = setup().await;
    for (foreign, _) in each(&server).await {
        granted(store.acquire(&acquire("k", "ours", Mode::Exclusive)).await);
        assert!(foreign.extend("k", "ours", 300_000).await);
        assert!(foreign.acquire_or_extend("k", "ours", 400_000).await);
        let renewal = renew("k", "ours", Mode::Exclusive, Ttl::new(LONG).unwrap());
        let renewed = only(store.renew(&renewal).await.unwrap().leases);
        assert!(matches!(renewed, RenewOutcome::Held(Remaining::For(rest)) if rest > 10 * LONG));
        assert!(foreign.release("k", "ours").await);
        let renewed = only(store.renew(&renewal).await.unwrap().leases);
        assert!(matches!(renewed, RenewOutcome::Lost(Some(LostReason::Gone))), "{renewed:?}");
    }
}

/// redlock with a TTL of 0, which is for ever on one server.
#[tokio::test]
async fn a_foreign_lock_without_end_has_no_retry_after() {
    let (server, store) = setup().await;
    let foreign = Foreign::on(&server).await;
    assert!(foreign.acquire("k", "theirs", 0).await);
    let refused = refused(store.acquire(&acquire("k", "ours", Mode::Exclusive)).await);
    assert_eq!(refused.retry_after, None);
    let page = store.list(&ListRequest::new(Filter::default().with_key(key("k")))).await.unwrap();
    assert_eq!(page.records[0].remaining(), Remaining::Never);
    // Their extension gives it an end; one of zero ends it at once.
    assert!(foreign.extend("k", "theirs", 20_000).await);
    assert!(server.number(&["PTTL", "k"]).await > 0);
    assert!(foreign.extend("k", "theirs", 0).await);
    granted(store.acquire(&acquire("k", "ours", Mode::Exclusive)).await);
}

#[tokio::test]
async fn a_refusal_by_a_foreign_holder_is_to_be_polled() {
    let server = Server::start(&[]).await.unwrap();
    let (store, foreign) = (server.store().await, Foreign::on(&server).await);
    assert!(foreign.acquire("k", VALUES[0], 30_000).await);
    let by_foreign = refused(store.acquire(&acquire("k", "a", Mode::Exclusive)).await);
    assert_eq!(by_foreign.poll_within, Some(Duration::from_millis(200)));
    assert!(foreign.release("k", VALUES[0]).await);
    granted(store.acquire(&acquire("k", "a", Mode::Exclusive)).await);
    let by_ours = refused(store.acquire(&acquire("k", "b", Mode::Exclusive)).await);
    assert_eq!(by_ours.poll_within, None);
}
