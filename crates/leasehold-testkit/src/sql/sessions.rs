//! Sessions with other settings than the store's.

use futures_util::future::join_all;
use leasehold_core::{Filter, ListRequest, Mode, RenewOutcome, Store, Ttl};

use super::SqlTestServer;
use crate::LONG;
use crate::requests::{acquire, granted, refused, release, released, renew, renewed};

#[macro_export]
macro_rules! sql_sessions {
    ($server:ty) => {
        $crate::sql_tests!($server, sessions, [
            other_isolation_levels_work,
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
    works(&server.open_on_pool(10).await).await;
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
        let renewal = renew("k", "a", Mode::Exclusive, Ttl::new(LONG).unwrap());
        assert!(matches!(renewed(store, &renewal).await, Ok(RenewOutcome::Held(_))));
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
