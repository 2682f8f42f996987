//! What stays in the table.

use leasehold_core::{EvictRequest, Filter, ListRequest, Mode, Store as _};
use leasehold_postgres::PostgresConfig;
use leasehold_testkit::postgres::Server;
use leasehold_testkit::requests::{acquire, acquire_for, granted, release};
use std::time::Duration;

/// The bytes of the table with its indexes.
async fn size(server: &Server) -> i64 {
    server.rows("SELECT pg_total_relation_size('leasehold.leases')").await[0].get(0)
}

const MIB: i64 = 1 << 20;

#[tokio::test]
async fn one_key_stays_small_however_often_it_is_locked() {
    let server = Server::start(&["fsync=off", "autovacuum=off"]).await.unwrap();
    server.store().await;
    let calls = "
        DO $$ DECLARE n integer; BEGIN
            FOR n IN 1 .. 100000 LOOP
                PERFORM leasehold.acquire_one(NULL, 'k', 'a', 1000000, NULL, 'host', 1, 'program', NULL);
                COMMIT;
                PERFORM leasehold.release_one(NULL, 'k', 'a', NULL, true);
                COMMIT;
            END LOOP;
        END $$";
    server.run(calls).await;
    let size = size(&server).await;
    assert!(size <= MIB, "{size} bytes");
}

#[tokio::test]
async fn one_semaphore_stays_small_however_often_it_is_taken() {
    let server = Server::start(&["fsync=off", "autovacuum=off"]).await.unwrap();
    server.store().await;
    let calls = "
        DO $$ DECLARE n integer; BEGIN
            FOR n IN 1 .. 20000 LOOP
                PERFORM leasehold.acquire(
                    NULL, convert_to((n % 5)::text, 'UTF8'), '{k}', '{5}', 1000000, NULL, 'host', 1, NULL, NULL);
                COMMIT;
                PERFORM leasehold.release(NULL, convert_to(((n + 1) % 5)::text, 'UTF8'), '{k}', NULL, NULL, true);
                COMMIT;
            END LOOP;
        END $$";
    server.run(calls).await;
    let size = size(&server).await;
    assert!(size <= MIB, "{size} bytes");
}

#[tokio::test]
async fn places_of_shared_holders_that_have_left_are_removed() {
    let server = Server::start(&["fsync=off"]).await.unwrap();
    server.store().await;
    let calls = "
        DO $$ DECLARE n integer; BEGIN
            FOR n IN 1 .. 200 LOOP
                PERFORM leasehold.acquire(
                    NULL, convert_to(n::text, 'UTF8'), '{k}', '{0}', 100000000, NULL, 'host', 1, NULL, NULL);
                COMMIT;
            END LOOP;
            FOR n IN 1 .. 200 LOOP
                PERFORM leasehold.release(NULL, convert_to(n::text, 'UTF8'), '{k}', NULL, NULL, true);
                COMMIT;
            END LOOP;
        END $$";
    server.run(calls).await;
    let rows: i64 = server.rows("SELECT count(*) FROM leasehold.leases").await[0].get(0);
    assert!((1..=10).contains(&rows), "{rows} rows");
}

#[tokio::test]
async fn nothing_is_left_of_keys_that_are_forgotten() {
    let server = Server::start(&["fsync=off"]).await.unwrap();
    server.store().await;
    let config = PostgresConfig::parse(&server.url()).unwrap();
    let store = config.forget_after(Some(Duration::from_millis(1))).connect().await.unwrap();
    for n in 0..300 {
        let (name, lease) = (format!("k{n}"), format!("l{n}"));
        granted(
            store
                .acquire(&acquire_for(&name, &lease, Mode::SHARED, Duration::from_millis(10)))
                .await,
        );
        granted(store.acquire(&acquire(&name, "other", Mode::SHARED)).await);
        store.release(&release(&name, "other")).await.unwrap();
    }
    // By the server's clock the terms are over, and so are the counters of 1 ms.
    let all = ListRequest::new(Filter::default());
    while !store.list(&all).await.unwrap().records.is_empty() {}
    let purged =
        store.evict(&EvictRequest::expired(Filter::default()).with_limit(1_000)).await.unwrap();
    // Some leases were over before the next one of their key came, which removed them.
    assert!(purged.removed.len() <= 300, "{purged:?}");
    assert_eq!((purged.counters_forgotten, purged.more), (300, false));
    let left: i64 = server.rows("SELECT count(*) FROM leasehold.leases").await[0].get(0);
    assert_eq!(left, 0);
}
