//! When a term is judged: after the row is locked, however long that took (C4, C6).

use std::time::Duration;

use futures_util::FutureExt as _;
use leasehold_core::{Filter, ListRequest, Mode, RefusalReason, RenewOutcome, Store as _, Ttl};
use leasehold_postgres::PostgresStore;
use leasehold_postgres::tokio_postgres::Client;
use leasehold_testkit::postgres::Server;
use leasehold_testkit::requests::{acquire, acquire_for, granted, key, only, refused, renew};
use leasehold_testkit::sql::SqlTestServer as _;
use leasehold_testkit::{LONG, in_time, until};

/// A clock that the test moves.
const CLOCK: &str = "
    CREATE TABLE leasehold.clock (now bigint NOT NULL);
    INSERT INTO leasehold.clock SELECT leasehold.now_us();
    CREATE OR REPLACE FUNCTION leasehold.now_us() RETURNS bigint LANGUAGE sql VOLATILE AS 'SELECT now FROM leasehold.clock'";

/// A lease of ten seconds on `held`, one that is over on `free`, and a transaction of somebody else that locks both rows.
async fn locked() -> (Server, Client) {
    let (server, store) = Server::with_store(&["fsync=off"]).await;
    server.run(CLOCK).await;
    for name in ["held", "free"] {
        granted(
            store.acquire(&acquire_for(name, "a", Mode::Exclusive, Duration::from_secs(10))).await,
        );
    }
    server.run("UPDATE leasehold.leases SET expires = 1 WHERE key = 'free'").await;
    let user = server.hold("true").await;
    (server, user)
}

#[tokio::test]
async fn a_batch_waits_for_no_row_and_so_cannot_judge_too_early() {
    let (server, user) = locked().await;
    let one = async |call: &str| {
        let text = format!("SELECT outcome FROM leasehold.{call}");
        in_time(server.ask(&text)).await[0][0].clone().unwrap()
    };
    let renewal = "renew_one(NULL, 'held', 'a', 10000000, NULL, NULL)";
    for call in [
        renewal,
        "release_one(NULL, 'held', 'a', NULL, true)",
        "acquire_one(NULL, 'free', 'b', 10000000, NULL, NULL, NULL, NULL, NULL)",
    ] {
        assert_eq!(one(call).await, "locked", "{call}");
    }
    let is_empty = async |batch: &str| {
        in_time(server.ask(&format!("SELECT o_key FROM leasehold.{batch}"))).await.is_empty()
    };
    let batches = [
        "renew_batch(NULL, '{held}', '{a}', '{10000000}', '{NULL}', '{NULL}')",
        "release_batch(NULL, '{held}', '{a}', '{NULL}', '{t}')",
        "acquire_batch(NULL, '{free}', '{b}', '{10000000}', '{NULL}', '{NULL}', '{NULL}', '{NULL}', '{NULL}')",
    ];
    for batch in batches {
        assert!(is_empty(batch).await, "{batch}");
    }
    user.batch_execute("COMMIT").await.unwrap();
    // An ended lease is in none of them.
    server.run("UPDATE leasehold.clock SET now = now + 11000000").await;
    assert!(is_empty(batches[0]).await);
    assert_eq!(one(renewal).await, "expired");
}

#[tokio::test]
async fn what_waits_for_a_row_is_judged_when_the_row_is_locked() {
    for (text, outcome, rest) in [
        ("SELECT outcome, o_rest FROM leasehold.renew(NULL, 'a', '{held}', '{-1}', 10000000, NULL, NULL)", "expired", None),
        ("SELECT outcome, o_rest FROM leasehold.release(NULL, 'a', '{held}', NULL, NULL, true)", "expired", None),
        ("SELECT outcome, o_rest FROM leasehold.release(NULL, 'a', '{held}', 5000000, NULL, true)", "expired", None),
        // A whole term from the moment at which the row was locked; of its own lease, and of one that has ended.
        (
            "SELECT outcome, o_rest FROM leasehold.acquire(
                NULL, 'b', '{free}', '{-1}', 10000000, NULL, NULL, NULL, NULL, NULL)",
            "granted",
            Some("10000000"),
        ),
        (
            "SELECT o_token > 0, o_rest FROM leasehold.acquire(
                NULL, 'a', '{held}', '{-1}', 10000000, NULL, NULL, NULL, NULL, NULL) WHERE outcome = 'granted'",
            "t",
            Some("10000000"),
        ),
    ] {
        let (server, user) = locked().await;
        let (found, ()) = tokio::join!(server.ask(text), async {
            until(async || server.waits("Lock").await).await;
            server.run("UPDATE leasehold.clock SET now = now + 11000000").await;
            user.batch_execute("COMMIT").await.unwrap();
        });
        assert_eq!(found, [[Some(outcome.to_owned()), rest.map(str::to_owned)]], "{text}");
        let late = server.rows("SELECT FROM leasehold.leases, leasehold.clock WHERE expires > now + 10000000").await;
        assert!(late.is_empty(), "{text}");
        assert_eq!(server.logged_errors(), Vec::<String>::new(), "{text}");
    }
}

/// Nothing is judged after the clock was read; but the row stays locked until the commit is answered.
#[tokio::test]
async fn a_renewal_that_waits_in_its_commit_beyond_the_old_term_lets_nobody_in() {
    let (server, store) = Server::with_store(&["fsync=off"]).await;
    let other = PostgresStore::connect(&format!("{}&timeout=4s", server.url())).await.unwrap();
    let term = Duration::from_secs(4);
    granted(store.acquire(&acquire_for("k", "a", Mode::Exclusive, term)).await);
    server.set("synchronous_standby_names", "nobody").await;
    let request = renew("k", "a", Mode::Exclusive, Ttl::new(2 * LONG).unwrap());
    let mut renewal = store.renew(&request).boxed();
    assert!((&mut renewal).now_or_never().is_none());
    until(async || server.waits("SyncRep").await).await;
    let over = "SELECT FROM leasehold.leases WHERE expires < leasehold.now_us()";
    until(async || !server.rows(over).await.is_empty()).await;
    let why = refused(other.acquire(&acquire("k", "b", Mode::Exclusive)).await).why;
    assert!(matches!(why, RefusalReason::Busy), "{why:?}");
    // What a reader sees is the row before the renewal.
    let list = ListRequest::new(Filter::default().with_keys([key("k")]));
    assert!(other.list(&list).await.unwrap().records.is_empty());
    assert!((&mut renewal).now_or_never().is_none());
    server.set("synchronous_standby_names", "").await;
    assert!(matches!(only(in_time(renewal).await.unwrap().leases), RenewOutcome::Held(_)));
    refused(other.acquire(&acquire("k", "b", Mode::Exclusive)).await);
}
