//! Servers and sessions that are read-only, and what a demoted one must not answer.

use std::time::Duration;

use futures_util::future::join_all;
use leasehold_core::{
    Effect, ErrorKind, EvictRequest, EvictTarget, Filter, ListRequest, Mode, Result, Store as _,
    Ttl,
};
use leasehold_postgres::PostgresStore;
use leasehold_testkit::LONG;
use leasehold_testkit::postgres::Server;
use leasehold_testkit::requests::{acquire, granted, id, key, release, renew};

/// What a store answers to each operation as its first.
async fn first_answers(url: &str) -> Vec<(PostgresStore, &'static str, Result<()>)> {
    let of = |name| ListRequest::new(Filter::default().with_key(key(name)));
    let (known, unknown) = (of("k"), of("nobody's"));
    let all = ListRequest::new(Filter::default());
    let expired = EvictRequest::expired(Filter::default());
    let target = EvictTarget::new(key("k"), Some(id("a")));
    let exactly = EvictRequest::exactly(vec![target], None);
    let renewal = renew("k", "a", Mode::Exclusive, Ttl::new(LONG).unwrap());
    let mut answers = Vec::new();
    for name in OPERATIONS {
        let store = PostgresStore::from_url(url).await.unwrap();
        let answer = match name {
            "acquire" => store.acquire(&acquire("l", "b", Mode::Exclusive)).await.map(drop),
            "acquire shared" => store.acquire(&acquire("l", "b", Mode::SHARED)).await.map(drop),
            "renew" => store.renew(&renewal).await.map(drop),
            "release" => store.release(&release("k", "a")).await.map(drop),
            "look up" => store.list(&known).await.map(drop),
            "look up a free key" => store.list(&unknown).await.map(drop),
            "list" => store.list(&all).await.map(drop),
            "purge" => store.evict(&expired).await.map(drop),
            "evict" => store.evict(&exactly).await.map(drop),
            "check" => store.check().await.map(drop),
            _ => store.subscribe(&[key("k")]).await.map(drop),
        };
        answers.push((store, name, answer));
    }
    answers
}

const OPERATIONS: [&str; 11] = [
    "acquire",
    "acquire shared",
    "renew",
    "release",
    "look up",
    "look up a free key",
    "list",
    "purge",
    "evict",
    "check",
    "subscribe",
];

#[tokio::test]
async fn a_server_that_is_read_only_answers_nothing_that_it_knew_before() {
    let server = Server::start(&[]).await.unwrap();
    let store = server.store().await;
    granted(store.acquire(&acquire("k", "a", Mode::Exclusive)).await);
    let standby = server.standby().await.unwrap();
    standby.has_all_of(&server).await;
    server.demote().await;
    for (server, says) in [(standby, "standby"), (server, "default_transaction_read_only")] {
        let answers = first_answers(&server.url()).await;
        // Each is in doubt now, and asks.
        let again = join_all(answers.iter().map(|(store, _, _)| store.check())).await;
        for ((_, name, answer), again) in answers.into_iter().zip(again) {
            let error = answer.expect_err(name);
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{name}: {error}");
            assert_eq!(error.effect(), Effect::NotApplied, "{name}: {error}");
            assert!(error.to_string().contains("target_session_attrs"), "{name}: {error}");
            let error = again.unwrap_err();
            assert!(error.to_string().contains(says), "{name}: {error}");
        }
    }
}

#[tokio::test]
async fn a_role_that_is_read_only_is_named_and_connects_once_a_second() {
    let server = Server::start(&["log_connections=on"]).await.unwrap();
    server.store().await;
    server
        .run("CREATE ROLE app LOGIN; ALTER ROLE app SET default_transaction_read_only = on")
        .await;
    server.run("GRANT USAGE ON SCHEMA leasehold TO app").await;
    server
        .run("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA leasehold TO app")
        .await;
    let store = PostgresStore::from_url(&server.url().replace("postgres@", "app@")).await.unwrap();
    let asks = async |n: usize| {
        let name = format!("k{n}");
        loop {
            let error = store.acquire(&acquire(&name, "a", Mode::SHARED)).await.unwrap_err();
            assert_eq!(error.effect(), Effect::NotApplied, "{error}");
            assert!(error.to_string().contains("read-only"), "{error}");
        }
    };
    let long = Duration::from_millis(2_500);
    tokio::time::timeout(long, join_all((0..20).map(asks))).await.unwrap_err();
    let log = server.log();
    let sessions = log.matches("connection authorized: user=app").count();
    // One that opened the store, five before the first answer, and one a second.
    assert!((3..=10).contains(&sessions), "{sessions} sessions");
}
