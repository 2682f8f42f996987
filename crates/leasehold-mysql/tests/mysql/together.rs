//! Requests that are sent in batches.

use std::time::Duration;

use futures_util::future::{join, join_all};
use leasehold_core::{
    EvictRequest, Filter, ListRequest, Mode, ReleaseEntry, ReleaseOutcome, ReleaseRequest,
    RenewOutcome, RenewReply, Store as _, Ttl,
};
use leasehold_mysql::mysql_async::prelude::Queryable as _;
use leasehold_mysql::{MysqlConfig, MysqlStore};
use leasehold_testkit::mysql::Server;
use leasehold_testkit::requests::{
    acquire, evict, granted, id, is_renewed, key, only, refused, release, released, renew,
};
use leasehold_testkit::sql::together::rows_that_name_no_member_are_unexpected;
use leasehold_testkit::sql::{SqlTestServer as _, names};
use leasehold_testkit::{LONG, in_time};

leasehold_testkit::sql_together!(Server);

#[tokio::test]
async fn a_row_of_a_batch_that_names_no_member_is_an_unexpected_reply() {
    let (server, store) = Server::with_store(&[]).await;
    for row in [
        "'nobody' AS o_key",
        "NULL AS o_key, 'nobody' AS o_all",
        "NULL AS o_key, 'acquires' AS o_all",
    ] {
        let breaks = [
            "DROP PROCEDURE leasehold.leasehold_release_batch".to_owned(),
            format!(
                "CREATE PROCEDURE leasehold.leasehold_release_batch(p_wanted LONGTEXT, p_highest BIGINT) BEGIN \
                 UPDATE leasehold.leasehold_leases SET state = 'f' WHERE INSTR(p_wanted, LOWER(HEX(`key`))) > 0; \
                 SELECT {row}, 0 AS o_late; END"
            ),
        ];
        let breaks = breaks.each_ref().map(String::as_str);
        rows_that_name_no_member_are_unexpected(&server, &store, &breaks).await;
    }
}

#[tokio::test]
async fn a_batch_reports_which_leases_were_over() {
    let (server, store) = Server::with_store(&[]).await;
    let names = names(10);
    for name in &names {
        granted(store.acquire(&acquire(name, "a", Mode::Exclusive)).await);
    }
    server.run("UPDATE leasehold.leasehold_leases SET expires = 1 WHERE `key` = 'k3'").await;
    let ends: Vec<_> = names.iter().map(|name| release(name, "a")).collect();
    let outcomes = join_all(ends.iter().map(|end| released(&store, end))).await;
    for (name, outcome) in names.iter().zip(outcomes) {
        let is_late = match outcome.unwrap() {
            ReleaseOutcome::Expired => true,
            ReleaseOutcome::Released => false,
            other => panic!("{name}: {other:?}"),
        };
        assert_eq!(is_late, name == "k3", "{name}");
    }
}

/// In a small table the server would rather read every row than use the primary key.
#[tokio::test]
async fn a_row_that_a_users_transaction_holds_delays_no_other_key_of_a_small_table() {
    let (server, _) = Server::with_store(&[]).await;
    let own = MysqlStore::connect(&format!("{}?timeout=10s", server.url())).await.unwrap();
    granted(own.acquire(&acquire("m", "user", Mode::SHARED)).await);
    granted(own.acquire(&acquire("a", "first", Mode::SHARED)).await);
    let mut user = server.hold("`key` = 'm' AND slot = 0").await;
    let config = MysqlConfig::pool(server.pool(4), "leasehold");
    let callers = config.timeout(Duration::from_secs(10)).connect().await.unwrap();
    for (store, lease) in [(&own, "own"), (&callers, "callers")] {
        for name in ["a", "z"] {
            let ask = acquire(name, lease, Mode::SHARED);
            let end = release(name, lease);
            let keep = ReleaseEntry::new(id(lease), [key(name)]).with_keep(LONG);
            let keep = ReleaseRequest::new(vec![keep]);
            let evict = evict(name, lease);
            // The second confirms the first.
            granted(store.acquire(&ask).await);
            granted(store.acquire(&ask).await);
            is_renewed(store, name, lease, Mode::SHARED).await;
            assert_eq!(store.evict(&evict).await.unwrap().removed.len(), 1, "{name}");
            granted(store.acquire(&ask).await);
            assert!(matches!(released(store, &end).await, Ok(ReleaseOutcome::Released)), "{name}");
            granted(store.acquire(&ask).await);
            assert!(matches!(released(store, &keep).await, Ok(ReleaseOutcome::Kept(_))), "{name}");
            assert_eq!(store.evict(&evict).await.unwrap().removed.len(), 1, "{name}");
        }
    }
    // What is over, in slot 0 and in another one.
    granted(own.acquire(&acquire("a", "second", Mode::SHARED)).await);
    server.run("UPDATE leasehold.leasehold_leases SET expires = 1 WHERE `key` = 'a'").await;
    let over = EvictRequest::expired(Filter::default().with_key(key("a")));
    assert_eq!(own.evict(&over).await.unwrap().removed.len(), 2);
    user.query_drop("ROLLBACK").await.unwrap();
}

/// A batch begins anywhere and counts: another store's may have the same number.
#[tokio::test]
async fn a_batch_of_the_same_number_grants_nothing_of_another() {
    let (server, store) = Server::with_store(&[]).await;
    granted(store.acquire(&acquire("k", "warm", Mode::Exclusive)).await);
    store.release(&release("k", "warm")).await.unwrap();
    let batch = async |parts: &str| {
        server.rows(&format!("CALL leasehold.leasehold_batch(7, {parts})")).await.len()
    };
    let lease = |id: &str| format!("'[[\"6b\",\"{id}\",60000000,null,null]]'");
    let ask = |id: &str| format!("{}, NULL, NULL, NULL, NULL, NULL, NULL", lease(id));
    let renewal = |id: &str| format!("NULL, NULL, NULL, NULL, {}, NULL, NULL", lease(id));
    let end = |id: &str| {
        format!("NULL, NULL, NULL, NULL, NULL, '[[\"6b\",\"{id}\",null]]', 4000000000000000")
    };
    assert_eq!(batch(&ask("61")).await, 1);
    assert_eq!(batch(&ask("62")).await, 0);
    let end_of = async || {
        let rows = server.rows("SELECT expires FROM leasehold.leasehold_leases").await;
        rows[0].get::<i64, _>(0).unwrap()
    };
    let before = end_of().await;
    assert_eq!(batch(&renewal("62")).await, 0);
    assert_eq!(end_of().await, before, "it has extended another's lease");
    assert_eq!(batch(&renewal("61")).await, 1);
    assert_eq!(batch(&end("62")).await, 0);
    assert_eq!(batch(&end("61")).await, 1);
}

/// A wait there ends after a second, and would delay every other lease of the batch.
#[tokio::test]
async fn a_batch_waits_for_no_row_in_the_server() {
    let (server, _) = Server::with_store(&[]).await;
    let store = MysqlStore::connect(&format!("{}?timeout=2s", server.url())).await.unwrap();
    let names = names(10);
    for name in &names {
        granted(store.acquire(&acquire(name, "a", Mode::Exclusive)).await);
    }
    let mut user = server.hold("`key` = 'k3'").await;
    let before = server.status("Innodb_row_lock_time").await;
    let term = Ttl::new(LONG).unwrap();
    let renewals = names.iter().map(|name| renew(name, "a", Mode::Exclusive, term));
    let renewals: Vec<_> = renewals.collect();
    let renewed = join_all(renewals.iter().map(|renewal| store.renew(renewal))).await;
    for (name, reply) in names.iter().zip(renewed) {
        let held = |reply: RenewReply| matches!(only(reply.leases), RenewOutcome::Held(_));
        assert_eq!(reply.is_ok_and(held), name != "k3", "{name}");
    }
    let ends: Vec<_> = names.iter().map(|name| release(name, "a")).collect();
    let released = join_all(ends.iter().map(|end| released(&store, end))).await;
    for (name, outcome) in names.iter().zip(released) {
        assert_eq!(matches!(outcome, Ok(ReleaseOutcome::Released)), name != "k3", "{name}");
    }
    let waited = server.status("Innodb_row_lock_time").await - before;
    assert!(waited < 500, "{waited} ms");
    user.query_drop("ROLLBACK").await.unwrap();
}

/// Another client's transaction uses a key for the first time: others that want it wait in the client, not on a connection.
#[tokio::test]
async fn waiters_for_a_new_key_of_another_hold_no_connection() {
    let (server, _) = Server::with_store(&[]).await;
    let own = MysqlStore::connect(&format!("{}?timeout=5s", server.url())).await.unwrap();
    let config = MysqlConfig::pool(server.pool(4), "leasehold");
    let callers = config.timeout(Duration::from_secs(5)).connect().await.unwrap();
    let stores = [("own", &own), ("callers", &callers)];
    for (name, store) in stores {
        granted(store.acquire(&acquire(name, "a", Mode::SHARED)).await);
    }
    let mut user = server.connect().await.unwrap();
    user.query_drop("BEGIN").await.unwrap();
    user.query_drop("INSERT INTO leasehold.leasehold_leases (`key`, slot) VALUES ('new', 0)")
        .await
        .unwrap();
    let before = server.status("Innodb_row_lock_time").await;
    let asks: Vec<_> = (0..12).map(|n| acquire("new", &n.to_string(), Mode::SHARED)).collect();
    let replies = asks.iter().flat_map(|ask| [own.acquire(ask), callers.acquire(ask)]);
    // What goes in no batch needs one of their connections.
    let others = stores.map(async |(name, store)| {
        is_renewed(store, name, "a", Mode::SHARED).await;
        store.list(&ListRequest::new(Filter::default())).await.unwrap();
        store.check().await.unwrap();
    });
    let (replies, _) = in_time(join(join_all(replies), join_all(others))).await;
    // On a busy machine the last try may go unanswered.
    for reply in replies.into_iter().filter(Result::is_ok) {
        let why = refused(reply).why;
        assert!(matches!(why, leasehold_core::RefusalReason::Busy), "{why:?}");
    }
    let waited = server.status("Innodb_row_lock_time").await - before;
    assert!(waited < 500, "{waited} ms");
}
