//! A pooler between the store and the server, with transaction pooling.

use futures_util::future::join_all;
use leasehold_core::{Mode, Store as _};
use leasehold_postgres::PostgresStore;
use leasehold_testkit::in_time;
use leasehold_testkit::postgres::{Pooler, Server};
use leasehold_testkit::requests::{acquire, evict, granted, is_renewed, key, refused, release};
use leasehold_testkit::sql::SqlTestServer as _;

#[tokio::test]
async fn every_operation_works_behind_a_pooler() {
    let server = Server::start(&[]).await.unwrap();
    let pooler = Pooler::before(&server).await.unwrap();
    let store = PostgresStore::connect(&pooler.url()).await.unwrap();
    store.prepare().await.unwrap();
    let health = store.check().await.unwrap();
    assert!(health.hazards.iter().any(|hazard| hazard.contains("not woken")), "{health:?}");
    // Another client of the pooler prepares statements under the names that the driver uses.
    let other = leasehold_testkit::postgres::connect(&pooler.url()).await.unwrap();
    for n in 0..5 {
        drop(other.prepare(&format!("SELECT {n}")).await);
    }
    let mut stores = Vec::new();
    for _ in 0..5 {
        stores.push(PostgresStore::connect(&pooler.url()).await.unwrap());
    }
    let jobs = stores.iter().enumerate().map(|(n, store)| async move {
        for round in 0..20 {
            let (name, lease) = (format!("k{n}"), format!("l{round}"));
            granted(store.acquire(&acquire(&name, &lease, Mode::Exclusive)).await);
            refused(store.acquire(&acquire(&name, "other", Mode::Exclusive)).await);
            is_renewed(store, &name, &lease, Mode::Exclusive).await;
            granted(store.acquire(&acquire("shared", &format!("{n} {round}"), Mode::SHARED)).await);
            store.release(&release("shared", &format!("{n} {round}"))).await.unwrap();
            if round % 2 == 0 {
                store.release(&release(&name, &lease)).await.unwrap();
            } else {
                let evicted = store.evict(&evict(&name, &lease)).await.unwrap();
                assert_eq!(evicted.removed.len(), 1);
            }
        }
    });
    in_time(join_all(jobs)).await;
}

#[tokio::test]
async fn wake_ups_come_from_the_server_itself() {
    let server = Server::start(&[]).await.unwrap();
    let pooler = Pooler::before(&server).await.unwrap();
    let url = format!("{}&wakeups=127.0.0.1:{}", pooler.url(), server.port());
    let store = PostgresStore::connect(&url).await.unwrap();
    store.prepare().await.unwrap();
    granted(store.acquire(&acquire("k", "holder", Mode::Exclusive)).await);
    let mut wakeups = store.subscribe(&[key("k")]).await.unwrap();
    store.release(&release("k", "holder")).await.unwrap();
    assert_eq!(in_time(wakeups.next()).await, key("k"));
}
