//! What stays in the table.

use leasehold_testkit::postgres::Server;
use leasehold_testkit::sql::SqlTestServer as _;

leasehold_testkit::sql_rows!(Server);

const MIB: i64 = 1 << 20;

/// Makes these calls, each with its own commit, for each `n` up to this.
fn looped(count: u32, calls: &[&str]) -> String {
    let calls: String =
        calls.iter().map(|call| format!("PERFORM leasehold.{call}; COMMIT;")).collect();
    format!("DO $$ DECLARE n integer; BEGIN FOR n IN 1 .. {count} LOOP {calls} END LOOP; END $$")
}

/// With a vacuum after each part, the bytes of the table with its indexes stay few.
async fn stays_small(parts: u32, count: u32, calls: &[&str]) {
    let (server, _) = Server::with_store(&["fsync=off", "autovacuum=off"]).await;
    for _ in 0..parts {
        server.run(&looped(count, calls)).await;
        server.run("VACUUM leasehold.leases").await;
    }
    let size = "SELECT pg_total_relation_size('leasehold.leases')";
    let size: i64 = server.rows(size).await[0].get(0);
    assert!(size <= MIB, "{size} bytes");
}

#[tokio::test]
async fn one_key_stays_small_however_often_it_is_locked() {
    let calls = [
        "acquire_one(NULL, 'k', 'a', 1000000, NULL, 'host', 1, 'program', NULL)",
        "release_one(NULL, 'k', 'a', NULL, true)",
    ];
    // Until the next vacuum, each acquire leaves some 220 bytes.
    stays_small(20, 4_000, &calls).await;
}

#[tokio::test]
async fn one_semaphore_stays_small_however_often_it_is_taken() {
    let calls = [
        "acquire(NULL, convert_to((n % 5)::text, 'UTF8'), '{k}', '{5}', 1000000, NULL, 'host', 1, NULL, NULL)",
        "release(NULL, convert_to(((n + 1) % 5)::text, 'UTF8'), '{k}', NULL, NULL, true)",
    ];
    stays_small(1, 20_000, &calls).await;
}

#[tokio::test]
async fn places_of_shared_holders_that_have_left_are_removed() {
    let acquire = "acquire(NULL, convert_to(n::text, 'UTF8'), '{k}', '{0}', 100000000, NULL, 'host', 1, NULL, NULL)";
    let release = "release(NULL, convert_to(n::text, 'UTF8'), '{k}', NULL, NULL, true)";
    let (server, _) = Server::with_store(&["fsync=off"]).await;
    server.run(&looped(200, &[acquire])).await;
    server.run(&looped(195, &[release])).await;
    let rows: i64 = server.rows("SELECT count(*) FROM leasehold.leases").await[0].get(0);
    assert!((5..=20).contains(&rows), "{rows} rows");
}
