//! Requests that wait for a row that a user's transaction holds.

use futures_util::future::join_all;
use leasehold_core::{
    Effect, ErrorKind, Filter, ListRequest, Mode, RefusalReason, Store as _, Ttl,
};
use leasehold_postgres::PostgresStore;
use leasehold_testkit::postgres::Server;
use leasehold_testkit::requests::{acquire, evict, granted, is_renewed, refused, renew};
use leasehold_testkit::sql::SqlTestServer as _;
use leasehold_testkit::{LONG, SECOND, in_time, until};

/// The row of a key.
const HOT: &str = "slot = 0 AND key = 'hot'";

#[tokio::test]
async fn renewals_lists_evicts_and_checks_continue_while_requests_wait_for_a_row() {
    let server = Server::start(&[]).await.unwrap();
    for connections in [2, 3, 5] {
        let url = format!("{}&timeout=20s&connections={connections}", server.url());
        let store = PostgresStore::connect(&url).await.unwrap();
        store.prepare().await.unwrap();
        for (name, lease) in [("hot", "h"), ("cool", "c"), ("evicted", "e")] {
            granted(store.acquire(&acquire(name, lease, Mode::SHARED)).await);
        }
        let user = server.hold(HOT).await;
        let leases = ["a", "b", "c", "d", "e"];
        let acquires = leases.map(|lease| acquire("hot", lease, Mode::SHARED));
        let mut waits = Box::pin(async {
            let (acquired, _) = tokio::join!(
                join_all(acquires.iter().map(|request| store.acquire(request))),
                join_all((0..5).map(|_| is_renewed(&store, "hot", "h", Mode::SHARED))),
            );
            acquired.into_iter().for_each(|reply| drop(granted(reply)));
        });
        let others = async {
            until(async || server.waits("Lock").await).await;
            for _ in 0..3 {
                is_renewed(&store, "cool", "c", Mode::SHARED).await;
                store.list(&ListRequest::new(Filter::default())).await.unwrap();
                store.check().await.unwrap();
            }
            let evicted = store.evict(&evict("evicted", "e")).await.unwrap();
            assert_eq!(evicted.removed.len(), 1);
        };
        tokio::select! {
            () = &mut waits => panic!("the row is locked"),
            // Much sooner than a wait for the row ends.
            in_time = tokio::time::timeout(10 * SECOND, others) => in_time.unwrap(),
        }
        user.batch_execute("COMMIT").await.unwrap();
        in_time(waits).await;
    }
}

/// Who waits for a row waits for its turn among those who wait, and then for the row.
#[tokio::test]
async fn a_request_that_waited_for_a_row_in_vain_is_known_not_to_have_acted() {
    let server = Server::start(&[]).await.unwrap();
    let url = format!("{}&timeout=4s", server.url());
    let mut stores = Vec::new();
    for _ in 0..4 {
        stores.push(PostgresStore::connect(&url).await.unwrap());
        stores[0].prepare().await.unwrap();
    }
    granted(stores[0].acquire(&acquire("hot", "h", Mode::SHARED)).await);
    let _user = server.hold(HOT).await;
    let requests = ["a", "b", "c", "d"].map(|lease| acquire("hot", lease, Mode::SHARED));
    let acquires =
        stores.iter().zip(&requests).map(|(store, request)| async { store.acquire(request).await });
    for acquired in in_time(join_all(acquires)).await {
        assert!(matches!(refused(acquired).why, RefusalReason::Busy));
    }
    let renewal = renew("hot", "h", Mode::SHARED, Ttl::new(LONG).unwrap());
    let renewals = stores.iter().map(|store| store.renew(&renewal));
    for renewed in in_time(join_all(renewals)).await {
        let error = renewed.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::NotApplied));
    }
    // The server has given them up.
    until(async || !server.waits("Lock").await).await;
}
