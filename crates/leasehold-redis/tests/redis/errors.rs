//! Bad input and bad states: each has its own clear error, and nothing is lost.

use leasehold_conformance::free_port;
use leasehold_core::{
    Claims, Effect, ErrorKind, Filter, Level, ListRequest, Mode, ReleaseOutcome, ReleaseRequest,
    RenewEntry, RenewOutcome, RenewRequest, Result, Store as _, Ttl,
};
use leasehold_redis::{RedisConfig, RedisStore};
use leasehold_testkit::redis::Server;
use leasehold_testkit::requests::{
    acquire, failed, granted, id, is_unreadable, key, names, only, purge_leaves, refused, release,
    renew,
};
use leasehold_testkit::{LONG, in_time, until};

/// As `Locker::connect` does.
async fn connect(url: &str) -> Result<RedisStore> {
    let store = RedisStore::connect(url).await?;
    store.check().await?;
    Ok(store)
}

#[tokio::test]
async fn another_type_at_the_key_or_at_its_metadata_key() {
    let server = Server::start(&[]).await.unwrap();
    let store = server.store().await;
    server.ask(&["RPUSH", "list", "a"]).await.unwrap();
    server.ask(&["RPUSH", "lh:lock:{plain}:plain", "a"]).await.unwrap();
    for name in ["list", "plain"] {
        let acquired = store.acquire(&acquire(name, "a", Mode::Exclusive)).await;
        failed(acquired, ErrorKind::Incompatible, Effect::NotApplied, "another type");
        let named = ListRequest::new(Filter::default().with_key(key(name)));
        let listed = store.list(&named).await.unwrap();
        assert_eq!(names(&listed.unreadable), [name]);
        let (kind, effect) = (ErrorKind::Incompatible, Effect::NotApplied);
        failed(listed.holders(), kind, effect, "another type");
    }
    assert_eq!(server.number(&["LLEN", "list"]).await, 1, "it is left alone");
    // Of many leases, no other is affected.
    granted(store.acquire(&acquire("fine", "b", Mode::Exclusive)).await);
    let claims = |name| Claims::one(key(name), Mode::Exclusive);
    let ttl = Ttl::new(LONG).unwrap();
    let both = vec![
        RenewEntry::extend(id("a"), claims("list"), ttl),
        RenewEntry::extend(id("b"), claims("fine"), ttl),
    ];
    let renewed = store.renew(&RenewRequest::new(both)).await.unwrap().leases;
    assert!(
        matches!(&renewed[0], RenewOutcome::Failed(error) if error.kind() == ErrorKind::Incompatible)
    );
    assert!(matches!(renewed[1], RenewOutcome::Held(_)));
    let both = ["list", "fine"].into_iter().zip(["a", "b"]);
    let both = both.map(|(name, lease)| leasehold_core::ReleaseEntry::new(id(lease), [key(name)]));
    let released = store.release(&ReleaseRequest::new(both.collect())).await.unwrap().leases;
    assert!(matches!(released[0], ReleaseOutcome::Failed(_)));
    assert!(matches!(released[1], ReleaseOutcome::Released));
}

#[tokio::test]
async fn a_changed_or_deleted_metadata_key() {
    let server = Server::start(&[]).await.unwrap();
    let store = server.store().await;
    let metadata = "lh:lock:{k}:k";
    let one = granted(store.acquire(&acquire("k", "a", Mode::Exclusive)).await);
    let before = server.text(&["GET", metadata]).await.unwrap();
    let hash = |field: &str| format!("HSET {metadata} {field}");
    let string = format!("SET {metadata}");
    for (command, value) in [
        (string.clone(), "nonsense"),
        (string.clone(), "xh 1 a 1 1"),
        (string.clone(), "xh 99 a 1 1 0 {}"),
        (hash("=a"), "nonsense"),
        (hash("=a"), "xh 1 2 3"),
        (hash("=other"), ""),
    ] {
        let words: Vec<_> = command.split(' ').chain([value]).collect();
        server.ask(&["DEL", metadata]).await.unwrap();
        server.ask(&words).await.unwrap();
        let error = failed(
            store.acquire(&acquire("k", "b", Mode::Exclusive)).await,
            ErrorKind::Corrupt,
            Effect::NotApplied,
            metadata,
        );
        assert!(error.to_string().contains("https://docs.rs/leasehold-redis"), "{error}");
        let ttl = Ttl::new(LONG).unwrap();
        let renewed = store.renew(&renew("k", "a", Mode::Exclusive, ttl)).await.unwrap();
        let renewed = only(renewed.leases);
        assert!(
            matches!(&renewed, RenewOutcome::Failed(e) if e.kind() == ErrorKind::Corrupt),
            "{renewed:?}"
        );
        assert_eq!(server.text(&["GET", "k"]).await.as_deref(), Some("a"), "it stays taken");
        is_unreadable(&store, "k").await;
        purge_leaves(&store, &["k"]).await;
    }
    // The mark of all tokens: nobody can be granted anything, holders continue.
    server.ask(&["DEL", metadata]).await.unwrap();
    server.ask(&["SET", metadata, &before]).await.unwrap();
    for mark in ["12x", "1.80000000000e15", "9007199254740992", "9007199254740991"] {
        server.ask(&["SET", "lh:token", mark]).await.unwrap();
        for mode in [Mode::Exclusive, Mode::SHARED] {
            let acquired = store.acquire(&acquire("free", "b", mode)).await;
            failed(acquired, ErrorKind::Corrupt, Effect::NotApplied, "lh:token");
        }
        let ttl = Ttl::new(LONG).unwrap();
        let renewed = store.renew(&renew("k", "a", Mode::Exclusive, ttl)).await.unwrap();
        assert!(matches!(only(renewed.leases), RenewOutcome::Held(_)));
        assert_eq!(server.text(&["GET", "lh:token"]).await.as_deref(), Some(mark));
    }
    server.ask(&["SET", "lh:token", &one.token.unwrap().to_string()]).await.unwrap();
    // Deleted: the plain key decides, so the holder continues.
    server.ask(&["DEL", metadata]).await.unwrap();
    refused(store.acquire(&acquire("k", "b", Mode::Exclusive)).await);
    let again = granted(store.acquire(&acquire("k", "a", Mode::Exclusive)).await);
    assert!(!again.fresh);
    // Only the metadata key knows the sharers: nobody is admitted before the longest term has ended.
    granted(store.acquire(&acquire("s", "reader", Mode::SHARED)).await);
    server.ask(&["DEL", "lh:lock:{s}:s"]).await.unwrap();
    let refused = refused(store.acquire(&acquire("s", "b", Mode::SHARED)).await);
    assert!(refused.retry_after.unwrap() > LONG / 2);
    let ttl = Ttl::new(LONG).unwrap();
    let renewed = store.renew(&renew("s", "reader", Mode::SHARED, ttl)).await.unwrap();
    assert!(matches!(only(renewed.leases), RenewOutcome::Lost(_)));
}

#[tokio::test]
async fn keys_with_braces_and_keys_that_begin_like_metadata_keys() {
    let server = Server::start(&[]).await.unwrap();
    let store = server.store().await;
    for (at, name) in ["a{b}c", "{", "}", "{}", "a}b{c", "{x}:x", "}:"].into_iter().enumerate() {
        granted(store.acquire(&acquire(name, &format!("id{at}"), Mode::Exclusive)).await);
        refused(store.acquire(&acquire(name, "other", Mode::Exclusive)).await);
    }
    let all = store.list(&ListRequest::new(Filter::default())).await.unwrap().records;
    assert_eq!(all.len(), 7, "{all:?}");
    let keys = server.number(&["DBSIZE"]).await;
    let acquired = store.acquire(&acquire("lh:lock:{a}:a", "a", Mode::Exclusive)).await;
    failed(acquired, ErrorKind::InvalidInput, Effect::NotApplied, "begins with \"lh:\"");
    assert_eq!(server.number(&["DBSIZE"]).await, keys);
}

#[tokio::test]
async fn a_server_that_cannot_be_reached_or_refuses_the_login() {
    let url = format!("redis://u:hunter2@127.0.0.1:{}/", free_port().unwrap());
    let error =
        failed(connect(&url).await, ErrorKind::Unavailable, Effect::NotApplied, "127.0.0.1:");
    assert!(!format!("{error} {error:?}").contains("hunter2"));

    let server = Server::start(&[]).await.unwrap();
    server.ask(&["ACL", "SETUSER", "locker", "on", ">right", "~*", "&*", "+@all"]).await.unwrap();
    for url in [
        server.url().replace("//", "//locker:hunter2@"),
        server.url().replace("//", "//nobody:hunter2@"),
    ] {
        let error = failed(connect(&url).await, ErrorKind::Denied, Effect::NotApplied, "refused");
        assert!(!format!("{error} {error:?}").contains("hunter2"));
    }
    connect(&server.url().replace("//", "//locker:right@")).await.unwrap();
    server
        .ask(&[
            "ACL",
            "SETUSER",
            "poor",
            "on",
            ">p",
            "~*",
            "+@connection",
            "+info",
            "+time",
            "+config|get",
        ])
        .await
        .unwrap();
    let checked = connect(&server.url().replace("//", "//poor:p@")).await;
    failed(checked, ErrorKind::Denied, Effect::NotApplied, "https://docs.rs/leasehold-redis");
}

#[tokio::test]
async fn the_least_privileges_of_the_documentation_are_enough() {
    let server = Server::start(&[]).await.unwrap();
    server.add_locker("").await;
    let url = server.url().replace("//", "//locker:PASSWORD@");
    let prefixed = connect(&format!("{url}?prefix=app:")).await.unwrap();
    for mode in [Mode::Exclusive, Mode::SHARED] {
        let mut wakeups = prefixed.subscribe(&[key("k")]).await.unwrap();
        granted(prefixed.acquire(&acquire("k", "a", mode)).await);
        let to = Ttl::new(LONG).unwrap();
        let renewed = prefixed.renew(&renew("k", "a", mode, to)).await.unwrap();
        assert!(matches!(only(renewed.leases), RenewOutcome::Held(_)));
        let listed = prefixed.list(&ListRequest::new(Filter::default())).await.unwrap();
        assert_eq!(listed.records.len(), 1);
        let released = prefixed.release(&release("k", "a")).await.unwrap();
        assert!(matches!(only(released.leases), ReleaseOutcome::Released));
        assert_eq!(in_time(wakeups.next()).await, key("k"));
    }
    server.add_locker("~lh:lock:* &lh:lock:*").await;
    let store = connect(&url).await.unwrap();
    let health = store.check().await.unwrap();
    assert!(!health.hazards.iter().any(|hazard| hazard.contains("does not show")), "{health:?}");
    let mut wakeups = store.subscribe(&[key("app:k")]).await.unwrap();
    granted(store.acquire(&acquire("app:k", "a", Mode::SHARED)).await);
    let ttl = Ttl::new(LONG).unwrap();
    let renewed = store.renew(&renew("app:k", "a", Mode::SHARED, ttl)).await.unwrap();
    assert!(matches!(only(renewed.leases), RenewOutcome::Held(_)));
    assert_eq!(store.list(&ListRequest::new(Filter::default())).await.unwrap().records.len(), 1);
    // Another client's.
    granted(server.store().await.acquire(&acquire("other", "b", Mode::Exclusive)).await);
    let list = async |filter| store.list(&ListRequest::new(filter)).await.unwrap();
    let all = list(Filter::default()).await;
    assert_eq!((all.records.len(), names(&all.unreadable)), (1, vec!["other"]));
    let error = &all.unreadable[0].error;
    assert!(error.kind() == ErrorKind::Denied && error.to_string().contains("--prefix"), "{error}");
    let own = list(Filter::default().with_prefix("app:")).await;
    assert_eq!((own.records.len(), own.unreadable.len()), (1, 0));
    purge_leaves(&store, &["other"]).await;
    let named = ListRequest::new(Filter::default().with_key(key("other")));
    failed(store.list(&named).await, ErrorKind::Denied, Effect::NotApplied, "NOPERM");
    let released = store.release(&release("app:k", "a")).await.unwrap();
    assert!(matches!(only(released.leases), ReleaseOutcome::Released));
    assert_eq!(in_time(wakeups.next()).await, key("app:k"));
    store.evict(&leasehold_core::EvictRequest::expired(Filter::default())).await.unwrap();
    let acquired = store.acquire(&acquire("other", "a", Mode::Exclusive)).await;
    failed(acquired, ErrorKind::Denied, Effect::NotApplied, "NOPERM");
}

#[tokio::test]
async fn a_refused_subscription_is_an_error_and_leaves_nothing() {
    let server = Server::start(&[]).await.unwrap();
    server.add_locker("~lh:lock:* resetchannels &lh:lock:{app:a}:*").await;
    let store = connect(&server.url().replace("//", "//locker:PASSWORD@")).await.unwrap();
    for names in [&["app:a", "app:b"][..], &["app:b", "app:a"], &["app:b"]] {
        let keys: Vec<_> = names.iter().map(|name| key(name)).collect();
        let subscribed = store.subscribe(&keys).await.map(drop);
        failed(subscribed, ErrorKind::Denied, Effect::NotApplied, "channel");
    }
    until(async || server.number(&["SPUBLISH", "lh:lock:{app:a}:app:a", ""]).await == 0).await;
    let mut wakeups = store.subscribe(&[key("app:a")]).await.unwrap();
    assert_eq!(server.number(&["SPUBLISH", "lh:lock:{app:a}:app:a", ""]).await, 1);
    assert_eq!(in_time(wakeups.next()).await, key("app:a"));

    // The server disconnects subscribers of forbidden channels. Everything else continues.
    server.ask(&["ACL", "SETUSER", "locker", "resetchannels"]).await.unwrap();
    assert_eq!(in_time(wakeups.next()).await, key("app:a"), "that it was connected again");
    granted(store.acquire(&acquire("app:a", "a", Mode::Exclusive)).await);
}

#[tokio::test]
async fn a_replica_is_refused_and_a_master_that_becomes_one_is_unavailable() {
    let master = Server::start(&[]).await.unwrap();
    let port = master.port().to_string();
    let replica = Server::start(&["--replicaof", &format!("127.0.0.1 {port}")]).await.unwrap();
    let opened = connect(&replica.url()).await;
    failed(opened, ErrorKind::Unavailable, Effect::NotApplied, "is a replica");

    let store = master.store().await;
    let health = store.check().await.unwrap();
    assert_eq!((health.level, health.fails_over), (Level::BestEffort, true));
    master.ask(&["REPLICAOF", "127.0.0.1", &replica.port().to_string()]).await.unwrap();
    let acquired = store.acquire(&acquire("k", "a", Mode::Exclusive)).await;
    failed(acquired, ErrorKind::Unavailable, Effect::NotApplied, "replica");
    let ttl = Ttl::new(LONG).unwrap();
    let renewed = store.renew(&renew("k", "a", Mode::Exclusive, ttl)).await;
    failed(renewed, ErrorKind::Unavailable, Effect::NotApplied, "replica");
}

#[tokio::test]
async fn out_of_memory_acquires_fail_and_releases_succeed() {
    let server = Server::start(&[]).await.unwrap();
    let store = server.store().await;
    for (name, mode) in [("x", Mode::Exclusive), ("s", Mode::SHARED)] {
        granted(store.acquire(&acquire(name, "a", mode)).await);
    }
    server.ask(&["CONFIG", "SET", "maxmemory", "1"]).await.unwrap();
    let acquired = store.acquire(&acquire("k", "b", Mode::Exclusive)).await;
    failed(acquired, ErrorKind::Unavailable, Effect::NotApplied, "out of memory");
    for (name, mode) in [("x", Mode::Exclusive), ("s", Mode::SHARED)] {
        let ttl = Ttl::new(LONG).unwrap();
        let renewed = store.renew(&renew(name, "a", mode, ttl)).await.unwrap();
        assert!(matches!(only(renewed.leases), RenewOutcome::Held(_)));
        let released = store.release(&release(name, "a")).await.unwrap();
        assert!(matches!(only(released.leases), ReleaseOutcome::Released));
    }
    server.ask(&["CONFIG", "SET", "maxmemory", "0"]).await.unwrap();
    granted(store.acquire(&acquire("k", "b", Mode::Exclusive)).await);
}

#[tokio::test]
async fn a_server_that_is_busy_with_a_foreign_script() {
    let server = Server::start(&["--busy-reply-threshold", "10"]).await.unwrap();
    let store = server.store().await;
    let url = server.url();
    let endless = leasehold_testkit::redis::ask(&url, &["EVAL", "while true do end", "0"]);
    let meanwhile = async {
        // It becomes busy a little later.
        until(async || store.acquire(&acquire("k", "a", Mode::Exclusive)).await.is_err()).await;
        let acquired = store.acquire(&acquire("k", "b", Mode::Exclusive)).await;
        failed(acquired, ErrorKind::Unavailable, Effect::NotApplied, "keeps the server busy");
        server.ask(&["SCRIPT", "KILL"]).await.unwrap();
    };
    let (endless, ()) = tokio::join!(endless, meanwhile);
    assert!(endless.is_err(), "it is the one that ended");
    granted(store.acquire(&acquire("k", "a", Mode::Exclusive)).await);
}

#[tokio::test]
async fn a_killed_script_of_ours_has_changed_nothing() {
    let server = Server::start(&["--busy-reply-threshold", "5"]).await.unwrap();
    let store = server.store().await;
    // A lock with so many readers that reading it takes a while.
    let fill = "redis.call('SET', KEYS[1], 'lh:0') redis.call('HSET', KEYS[2], 'mark', 'lh:0') \
                for i = 1, 30000 do redis.call('HSET', KEYS[2], '=' .. i, 'sh 0 1 1 0 {}') end";
    server.ask(&["EVAL", fill, "2", "k", "lh:lock:{k}:k"]).await.unwrap();
    let before = server.number(&["HLEN", "lh:lock:{k}:k"]).await;
    let mut link = leasehold_testkit::redis::connect(&server.url()).await.unwrap();
    let mut kill = async || {
        let mut command = redis::cmd("SCRIPT");
        drop(link.send_packed_command(command.arg("KILL")).await);
    };
    until(async || {
        let request = acquire("k", "a", Mode::Exclusive);
        let mut acquired = std::pin::pin!(store.acquire(&request));
        let acquired = loop {
            tokio::select! {
                acquired = &mut acquired => break acquired,
                () = kill() => {}
            }
        };
        // Otherwise it was faster, and refused.
        let Err(error) = acquired else { return false };
        failed::<()>(Err(error), ErrorKind::Unavailable, Effect::NotApplied, "script was killed");
        true
    })
    .await;
    assert_eq!(server.number(&["HLEN", "lh:lock:{k}:k"]).await, before);
    // The renewal itself may take longer, and is then sent again.
    server.ask(&["CONFIG", "SET", "busy-reply-threshold", "60000"]).await.unwrap();
    let renewal = renew("k", "1", Mode::SHARED, Ttl::new(LONG).unwrap());
    until(async || {
        let renewed = store.renew(&renewal).await;
        renewed.is_ok_and(|renewed| matches!(only(renewed.leases), RenewOutcome::Held(_)))
    })
    .await;
}

#[tokio::test]
async fn your_own_client_is_used_unchanged() {
    let server = Server::start(&[]).await.unwrap();
    let client = leasehold_redis::redis::Client::open(format!("{}5", server.url())).unwrap();
    let store = RedisConfig::client(&client).unwrap().prefix("app:").connect().await.unwrap();
    granted(store.acquire(&acquire("k", "a", Mode::Exclusive)).await);
    assert_eq!(server.number(&["EXISTS", "app:k"]).await, 0, "another database");
    let there = leasehold_testkit::redis::ask(&format!("{}5", server.url()), &["EXISTS", "app:k"])
        .await
        .unwrap();
    assert_eq!(there, leasehold_redis::redis::Value::Int(1));
}
