//! What stays in the table.

use leasehold_core::{
    AcquireRequest, Claim, Claims, EvictRequest, Filter, ListRequest, Mode, Store as _, Ttl,
};
use leasehold_mysql::MysqlConfig;
use leasehold_testkit::mysql::Server;
use leasehold_testkit::requests::{acquire, acquire_for, granted, id, key, refused, release};
use std::time::Duration;

#[tokio::test]
async fn one_key_stays_small_however_often_it_is_locked() {
    let server = Server::start(&["--innodb-flush-log-at-trx-commit=2"]).await.unwrap();
    server.store().await;
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

#[tokio::test]
async fn a_refusal_leaves_no_row_of_a_new_key() {
    let server = Server::start(&[]).await.unwrap();
    let store = server.store().await;
    granted(store.acquire(&acquire("held", "a", Mode::Exclusive)).await);
    let both = ["held", "new"].map(|name| Claim { key: key(name), mode: Mode::Exclusive }).to_vec();
    let ttl = Ttl::new(Duration::from_secs(30)).unwrap();
    let wanted = AcquireRequest::new(id("b"), Claims::new(both).unwrap(), ttl);
    refused(store.acquire(&wanted).await);
    assert_eq!(server.rows("SELECT 1 FROM leasehold.leasehold_leases").await.len(), 1);
}

#[tokio::test]
async fn nothing_is_left_of_keys_that_are_forgotten() {
    let server = Server::start(&["--innodb-flush-log-at-trx-commit=2"]).await.unwrap();
    server.store().await;
    let config = MysqlConfig::parse(&server.url()).unwrap();
    let store = config.forget_after(Some(Duration::from_millis(1))).connect().await.unwrap();
    for n in 0..300 {
        let (name, lease) = (format!("k{n}"), format!("l{n}"));
        let short = acquire_for(&name, &lease, Mode::SHARED, Duration::from_millis(10));
        granted(store.acquire(&short).await);
        granted(store.acquire(&acquire(&name, "other", Mode::SHARED)).await);
        store.release(&release(&name, "other")).await.unwrap();
    }
    // By the server's clock the terms are over, and so are the counters of 1 ms.
    let all = ListRequest::new(Filter::default());
    while !store.list(&all).await.unwrap().records.is_empty() {}
    let purge = EvictRequest::expired(Filter::default()).with_limit(1_000);
    let purged = store.evict(&purge).await.unwrap();
    // Some leases were over before the next one of their key came, which removed them.
    assert!(purged.removed.len() <= 300, "{purged:?}");
    assert_eq!((purged.counters_forgotten, purged.more), (300, false));
    assert!(server.rows("SELECT 1 FROM leasehold.leasehold_leases").await.is_empty());
}
