//! The data in the server: the store's manual, byte by byte.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_core::{
    GroupName, LostReason, Mode, Note, ReleaseEntry, ReleaseRequest, RenewOutcome, Store as _, Ttl,
};
use leasehold_redis::redis::{self, AsyncConnectionConfig, ProtocolVersion, PushInfo, PushKind};
use leasehold_testkit::redis::Server;
use leasehold_testkit::requests::{acquire, acquire_for, granted, id, key, only, release, renew};
use leasehold_testkit::{LONG, in_time, until};
use redis::IntoConnectionInfo as _;
use tokio::sync::mpsc;

async fn metadata(server: &Server, name: &str) -> BTreeMap<String, String> {
    redis::from_redis_value(server.ask(&["HGETALL", name]).await.unwrap()).unwrap()
}

#[tokio::test]
async fn an_exclusive_holder() {
    let server = Server::start(&[]).await.unwrap();
    let store = server.store().await;
    let note = Note::default().with_host("h").unwrap().with_pid(7);
    let request =
        acquire("k", "a", Mode::Exclusive).with_group(GroupName::new("o").unwrap()).with_note(note);
    let token = granted(store.acquire(&request).await).token.unwrap();
    assert_eq!(server.text(&["GET", "k"]).await.as_deref(), Some("a"));
    let ends = server.number(&["PEXPIRETIME", "k"]).await;
    let record = |renewed: &str| {
        format!(r#"xh 1 a {token} {token} {renewed} {{"group":"o","host":"h","pid":7}}"#)
    };
    let metadata = async || server.text(&["GET", "lh:lock:{k}:k"]).await.unwrap();
    assert_eq!(metadata().await, record("0"), "granted at its token's time");
    assert_eq!(server.text(&["GET", "lh:token"]).await, Some(token.to_string()));
    let forgotten = async || server.number(&["PEXPIRETIME", "lh:lock:{k}:k"]).await;
    // The server keeps the key through the millisecond before its term ends.
    assert_eq!(forgotten().await - ends, 1 + 60 * 60 * 1_000);

    let to = Ttl::new(2 * LONG).unwrap();
    store.renew(&renew("k", "a", Mode::Exclusive, to)).await.unwrap();
    let renewed = metadata().await;
    let renewed = renewed.split(' ').nth(5).unwrap();
    assert_eq!(metadata().await, record(renewed));
    assert!(renewed.parse::<u64>().unwrap() > token.get());
    let later = server.number(&["PEXPIRETIME", "k"]).await;
    assert!(later > ends);
    assert_eq!(forgotten().await - later, 1 + 60 * 60 * 1_000);
}

#[tokio::test]
async fn shared_and_kept_and_endless_holders() {
    let server = Server::start(&[]).await.unwrap();
    let store = server.store().await;
    granted(store.acquire(&acquire("s", "a", Mode::SHARED)).await);
    granted(store.acquire(&acquire_for("s", "b", Mode::SHARED, 2 * LONG)).await);
    let value = server.text(&["GET", "s"]).await.unwrap();
    assert!(value.starts_with("lh:") && value.len() == 43, "{value}");
    let fields = metadata(&server, "lh:lock:{s}:s").await;
    assert_eq!(fields["mark"], value);
    assert!(fields["=a"].starts_with("sh ") && fields["=b"].starts_with("sh "), "{fields:?}");
    let ends = server.number(&["PEXPIRETIME", "s"]).await.to_string();
    let after = (ends.parse::<u64>().unwrap() + 1).to_string();
    assert_eq!(fields["=b"].split(' ').nth(1), Some(after.as_str()));

    let never = renew("s", "a", Mode::SHARED, Ttl::NEVER);
    store.renew(&never).await.unwrap();
    assert_eq!(server.number(&["PTTL", "s"]).await, -1);
    assert_eq!(
        server.number(&["PTTL", "lh:lock:{s}:s"]).await,
        -1,
        "nothing forgets what is held for ever"
    );
    assert!(metadata(&server, "lh:lock:{s}:s").await["=a"].starts_with("sh 0 "));

    granted(store.acquire(&acquire("k", "a", Mode::Exclusive)).await);
    let keep = ReleaseEntry::new(id("a"), [key("k")]).with_keep(LONG);
    store.release(&ReleaseRequest::new(vec![keep])).await.unwrap();
    let fields = metadata(&server, "lh:lock:{k}:k").await;
    assert!(fields["=a"].starts_with("xk "), "{fields:?}");
    assert_eq!(
        server.text(&["GET", "k"]).await,
        Some(fields["mark"].clone()),
        "no id's release ends it"
    );
}

#[tokio::test]
async fn nothing_is_left_of_a_key_after_its_release() {
    let server = Server::start(&[]).await.unwrap();
    let store = server.store().await;
    let keys = async || redis::from_redis_value(server.ask(&["KEYS", "*"]).await.unwrap()).unwrap();
    for mode in [Mode::Exclusive, Mode::SHARED] {
        for n in 0..20 {
            let name = format!("order:{n}");
            granted(store.acquire(&acquire(&name, "a", mode)).await);
            store.release(&release(&name, "a")).await.unwrap();
        }
        let keys: Vec<String> = keys().await;
        assert_eq!(keys, ["lh:token"], "the mark of all tokens");
    }
}

#[tokio::test]
async fn a_lease_that_ended_is_remembered_for_an_hour() {
    let server = Server::start(&[]).await.unwrap();
    let store = server.store().await;
    let brief = Duration::from_millis(10);
    for (name, mode) in [("x", Mode::Exclusive), ("s", Mode::SHARED)] {
        granted(store.acquire(&acquire_for(name, "a", mode, brief)).await);
        until(async || server.number(&["EXISTS", name]).await == 0).await;
        let left = server.number(&["PTTL", &format!("lh:lock:{{{name}}}:{name}")]).await;
        assert!((3_500_000..=3_600_010).contains(&left), "{left}");
        let renewed = store.renew(&renew(name, "a", mode, Ttl::new(LONG).unwrap())).await.unwrap();
        let renewed = only(renewed.leases);
        assert!(matches!(renewed, RenewOutcome::Lost(Some(LostReason::Expired))), "{renewed:?}");
    }
}

#[tokio::test]
async fn what_is_older_goes_with_the_next_renewal_of_another_holder() {
    let server = Server::start(&[]).await.unwrap();
    let store = server.store().await;
    granted(store.acquire(&acquire("s", "a", Mode::SHARED)).await);
    let now = server.number(&["PEXPIRETIME", "s"]).await;
    let recent = format!("sh {} 1 1 0 {{}}", now - 1_800_000);
    for (field, record) in
        [("=expired", "sh 1 1 1 0 {}"), ("=evicted", "se 1 1 1 0 {}"), ("=recent", &recent)]
    {
        server.ask(&["HSET", "lh:lock:{s}:s", field, record]).await.unwrap();
    }
    store.renew(&renew("s", "a", Mode::SHARED, Ttl::new(LONG).unwrap())).await.unwrap();
    let fields: Vec<_> = metadata(&server, "lh:lock:{s}:s").await.into_keys().collect();
    assert_eq!(fields, ["=a", "=recent", "mark"]);
}

/// The messages of a shard channel.
struct Channel {
    messages: mpsc::UnboundedReceiver<PushInfo>,
    _connection: redis::aio::MultiplexedConnection,
}

impl Channel {
    async fn of(server: &Server, name: &str) -> Self {
        let (sender, messages) = mpsc::unbounded_channel();
        let config = AsyncConnectionConfig::new().set_push_sender(sender);
        let info = server.url().into_connection_info().unwrap();
        let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        let client = redis::Client::open(info.set_redis_settings(settings)).unwrap();
        let connecting = client.get_multiplexed_async_connection_with_config(&config);
        let mut connection = connecting.await.unwrap();
        redis::cmd("SSUBSCRIBE").arg(name).exec_async(&mut connection).await.unwrap();
        Self { messages, _connection: connection }
    }

    async fn next(&mut self) -> String {
        loop {
            let PushInfo { kind, data } = in_time(self.messages.recv()).await.unwrap();
            if kind == PushKind::SMessage {
                let data = redis::Value::Array(data);
                let (_, message): (String, String) = redis::from_redis_value(data).unwrap();
                return message;
            }
        }
    }
}

#[tokio::test]
async fn a_hint_has_the_number_of_subscribed_connections() {
    let server = Server::start(&[]).await.unwrap();
    let (holder, waiter) = (server.store().await, server.store().await);
    let mut channel = Channel::of(&server, "lh:lock:{k}:k").await;
    for (waits, subscribers) in [(0, 1), (2, 2), (0, 1)] {
        let mut waiting = Vec::new();
        for _ in 0..waits {
            waiting.push(waiter.subscribe(&[key("k")]).await.unwrap());
        }
        // A listener leaves in the background.
        until(async || server.subscribers("lh:lock:{k}:k").await == subscribers).await;
        granted(holder.acquire(&acquire("k", "a", Mode::Exclusive)).await);
        holder.release(&release("k", "a")).await.unwrap();
        assert_eq!(channel.next().await, subscribers.to_string());
    }
}

#[tokio::test]
async fn a_lease_that_many_waited_for_is_told_to_those_who_wait() {
    let server = Server::start(&[]).await.unwrap();
    let (waiter, other) = (server.store().await, server.store().await);
    let mut wakeups = waiter.subscribe(&[key("k")]).await.unwrap();
    let mut channel = Channel::of(&server, "lh:lock:{k}:k").await;
    for (store, count, tells) in
        [(&waiter, "4", false), (&waiter, "5", true), (&other, "5", false), (&waiter, "5", true)]
    {
        server.ask(&["SPUBLISH", "lh:lock:{k}:k", count]).await.unwrap();
        assert_eq!(channel.next().await, count);
        in_time(wakeups.next()).await;
        granted(store.acquire(&acquire("k", "a", Mode::Exclusive)).await);
        if tells {
            assert_eq!(channel.next().await, format!("taken {}", LONG.as_millis()));
        }
        store.release(&release("k", "a")).await.unwrap();
        assert_eq!(channel.next().await, "2");
        in_time(wakeups.next()).await;
    }
}
