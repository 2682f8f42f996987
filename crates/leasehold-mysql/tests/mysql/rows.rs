//! What stays in the table.

use leasehold_testkit::mysql::Server;
use leasehold_testkit::sql::SqlTestServer as _;

leasehold_testkit::sql_rows!(Server);

#[tokio::test]
async fn one_key_stays_small_however_often_it_is_locked() {
    let (server, _) = Server::with_store(&["--innodb-flush-log-at-trx-commit=2"]).await;
    server
        .run(
            "CREATE PROCEDURE leasehold.again() BEGIN
                 DECLARE n INT DEFAULT 0;
                 WHILE n < 50000 DO
                     CALL leasehold.leasehold_acquire_one('k', 'a', 1000000, NULL, 'host', 1, 'program', NULL);
                     CALL leasehold.leasehold_release_one('k', 'a', NULL);
                     SET n = n + 1;
                 END WHILE;
             END",
        )
        .await;
    server.run("CALL leasehold.again()").await;
    let file = server.directory().join("data/leasehold/leasehold_leases.ibd");
    let size = std::fs::metadata(file).unwrap().len();
    assert!(size <= 1 << 20, "{size} bytes");
}
