//! Sessions with other settings than the store's.

use futures_util::future::join_all;
use leasehold_core::{Filter, ListRequest, Mode, Store};

use super::SqlTestServer;
use crate::in_time;
use crate::requests::{acquire, granted, is_renewed, refused, release, released};

#[macro_export]
macro_rules! sql_sessions {
    ($server:ty) => {
        $crate::sql_tests!($server, sessions, [
            other_isolation_levels_work,
            a_pool_of_the_callers_own_serves,
            callers_lock_while_their_own_transactions_have_the_whole_pool,
        ], on two threads []);
    };
}

pub async fn other_isolation_levels_work<S: SqlTestServer>() {
    for (settings, statements) in S::ISOLATION_LEVELS {
        works_with::<S>(settings, statements).await;
    }
}

/// Locks of all kinds behave as ever with these settings of the server and after these statements, on connections of
/// the store's own and on those of a caller's pool, which keep these settings.
pub async fn works_with<S: SqlTestServer>(settings: &[&str], statements: &str) {
    let server = S::start(settings).await.unwrap();
    server.store().await;
    if !statements.is_empty() {
        server.ask(statements).await;
    }
    works(&server.store().await).await;
    works(&server.open_on(server.pool(10)).await).await;
}

pub async fn works(store: &impl Store) {
    for round in 0..2 {
        let first = granted(store.acquire(&acquire("k", "a", Mode::Exclusive)).await);
        assert!(first.fresh, "round {round}");
        refused(store.acquire(&acquire("k", "b", Mode::Exclusive)).await);
        // Two that are sent in a batch, on the connection that has just refused.
        let ends = ["x", "y", "z"].map(|name| release(name, "a"));
        for outcome in join_all(ends.iter().map(|end| released(store, end))).await {
            outcome.unwrap();
        }
        is_renewed(store, "k", "a", Mode::Exclusive).await;
        granted(store.acquire(&acquire("s", "a", Mode::SHARED)).await);
        granted(store.acquire(&acquire("s", "b", Mode::SHARED)).await);
        let listed = store.list(&ListRequest::new(Filter::default())).await.unwrap();
        assert_eq!(listed.records.len(), 3);
        assert!(listed.records.iter().all(|record| record.id.is_some()), "{listed:?}");
        for (name, lease) in [("k", "a"), ("s", "a"), ("s", "b")] {
            store.release(&release(name, lease)).await.unwrap();
        }
    }
    assert!(store.check().await.unwrap().hazards.is_empty());
}

/// A transaction of the caller's is neither joined nor ended.
pub async fn a_pool_of_the_callers_own_serves<S: SqlTestServer>() {
    let (server, _) = S::with_store(&[]).await;
    server.ask("CREATE TABLE leasehold.mine (n INT)").await;
    let pool = server.pool(3);
    let store = server.open_on(pool.clone()).await;
    let mut own = S::pooled(&pool).await;
    let insert = "BEGIN; INSERT INTO leasehold.mine VALUES (1)";
    S::query(S::client(&mut own), insert).await.unwrap();
    for (name, mode) in [("k", Mode::Exclusive), ("s", Mode::SHARED)] {
        granted(store.acquire(&acquire(name, "a", mode)).await);
        store.release(&release(name, "a")).await.unwrap();
    }
    S::query(S::client(&mut own), "ROLLBACK").await.unwrap();
    assert!(server.ask("SELECT n FROM leasehold.mine").await.is_empty());
}

/// Each of the callers has a connection, and waits for the lock with it. Shared locks go in no batch.
pub async fn callers_lock_while_their_own_transactions_have_the_whole_pool<S: SqlTestServer>() {
    let (server, _) = S::with_store(&[]).await;
    let pool = server.pool(4);
    let store = &server.open_on(pool.clone()).await;
    let callers = (0..8).map(async |n| {
        let mut own = S::pooled(&pool).await;
        S::query(S::client(&mut own), "BEGIN").await.unwrap();
        let mode = if n % 2 == 0 { Mode::Exclusive } else { Mode::SHARED };
        granted(store.acquire(&acquire(&format!("k{n}"), "a", mode)).await);
        S::query(S::client(&mut own), "COMMIT").await.unwrap();
    });
    in_time(join_all(callers)).await;
}
