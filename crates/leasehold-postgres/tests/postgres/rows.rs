//! What stays in the table.

use leasehold_testkit::postgres::Server;
use leasehold_testkit::sql::SqlTestServer as _;

leasehold_testkit::sql_rows!(Server);

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
