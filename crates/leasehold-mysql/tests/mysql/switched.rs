//! Servers that are read-only, and what they must not answer.

use futures_util::future::join_all;
use leasehold_core::{Effect, Mode, Store as _, Ttl};
use leasehold_mysql::{MysqlConfig, MysqlStore};
use leasehold_testkit::mysql::{Server, pool};
use leasehold_testkit::read_only::{answers_nothing, never_acts};
use leasehold_testkit::requests::{acquire, granted, release, renew};
use leasehold_testkit::sql::SqlTestServer as _;
use leasehold_testkit::{LONG, in_time};

/// An administrator could write there all the same, and grant what the new primary grants too.
#[tokio::test]
async fn a_server_that_is_read_only_answers_nothing_that_it_knew_before() {
    let (server, store) = Server::with_store(&[]).await;
    granted(store.acquire(&acquire("k", "a", Mode::Exclusive)).await);
    // What was used before is taken again by another statement than what is new.
    let (free, held) = (names("free"), names("held"));
    for name in free.iter().chain(&held).chain([&"free".to_owned()]) {
        granted(store.acquire(&acquire(name, "a", Mode::Exclusive)).await);
    }
    for name in free.iter().chain([&"free".to_owned()]) {
        store.release(&release(name, "a")).await.unwrap();
    }
    server.run("CREATE USER app").await;
    server.run("GRANT SELECT, INSERT, UPDATE, DELETE, EXECUTE ON leasehold.* TO app").await;
    server.demote().await;
    for user in ["root", "app"] {
        let url = server.url().replace("root@", &format!("{user}@"));
        let open = async || MysqlStore::connect(&url).await.unwrap();
        answers_nothing(open, "connect to the primary", "connect to the primary").await;
    }
    // A batch is refused too.
    let store = async || MysqlStore::connect(&server.url()).await.unwrap();
    let ttl = Ttl::new(LONG).unwrap();
    let acquires = free.iter().map(|name| acquire(name, "b", Mode::Exclusive));
    let renewals = held.iter().map(|name| renew(name, "a", Mode::Exclusive, ttl));
    let releases = held.iter().map(|name| release(name, "a"));
    let (acquires, renewals, releases): (Vec<_>, Vec<_>, Vec<_>) =
        (acquires.collect(), renewals.collect(), releases.collect());
    let (first, second, third) = (store().await, store().await, store().await);
    let acquired = join_all(acquires.iter().map(|request| first.acquire(request))).await;
    let renewed = join_all(renewals.iter().map(|request| second.renew(request))).await;
    let released = join_all(releases.iter().map(|request| third.release(request))).await;
    let answers = acquired.into_iter().map(|answer| answer.map(drop));
    let answers = answers.chain(renewed.into_iter().map(|answer| answer.map(drop)));
    for answer in answers.chain(released.into_iter().map(|answer| answer.map(drop))) {
        assert_eq!(answer.unwrap_err().effect(), Effect::NotApplied);
    }
}

fn names(of: &str) -> Vec<String> {
    (0..20).map(|n| format!("{of} {n}")).collect()
}

#[tokio::test]
async fn a_server_that_is_read_only_gets_one_connection_a_second() {
    let (server, _) = Server::with_store(&[]).await;
    let store = MysqlStore::connect(&server.url()).await.unwrap();
    server.demote().await;
    let before = server.status("Connections").await;
    never_acts(&store, "").await;
    // Five before the first answer, one a second, and the one that counts.
    let sessions = server.status("Connections").await - before;
    assert!((2..=10).contains(&sessions), "{sessions} sessions");
}

/// The idle connections of a pool of the caller's do not delay what follows the switch.
#[tokio::test]
async fn the_idle_connections_of_a_callers_pool_are_left_at_once() {
    let (old, _) = Server::with_store(&[]).await;
    let (new, _) = Server::with_store(&[]).await;
    let address = old.proxy().await;
    let pool = pool(address.address().port(), 10);
    let store = MysqlConfig::pool(pool.clone(), "leasehold").connect().await.unwrap();
    let idle = join_all((0..8).map(|_| pool.get_conn())).await;
    drop(idle);
    old.demote().await;
    address.lead_to(([127, 0, 0, 1], new.port()).into());
    // The first answer is the old server's.
    store.acquire(&acquire("k", "a", Mode::SHARED)).await.unwrap_err();
    granted(in_time(store.acquire(&acquire("k", "a", Mode::SHARED))).await);
}
