//! The high-water mark of the tokens, and what remains of a key that nobody holds.

use leasehold_core::{ReleaseOutcome, Store as _};
use leasehold_postgres::tokio_postgres::Client;
use leasehold_postgres::tokio_postgres::error::SqlState;
use leasehold_testkit::postgres::{Server, connect};
use leasehold_testkit::requests::{only, release};
use leasehold_testkit::sql::SqlTestServer as _;
use leasehold_testkit::sql::mark::{raise_tokens, rows, token, token_grows};
use leasehold_testkit::{in_time, until};

const MARK: &str = "SELECT last_value FROM leasehold.mark";

const ONE: &str = "SELECT o_key, o_token FROM leasehold.acquire_one(
    NULL, 'k', 'a', 1000000, NULL, NULL, NULL, NULL, NULL)";
const BATCH: &str = "SELECT o_key, o_token FROM leasehold.acquire_batch(
    NULL, '{j,k}', '{a,b}', '{1000000,1000000}', '{NULL,NULL}', '{NULL,NULL}', '{NULL,NULL}', '{NULL,NULL}', '{NULL,NULL}')";

leasehold_testkit::sql_mark!(Server);

async fn number(server: &Server, query: &str) -> i64 {
    server.rows(query).await[0].get(0)
}

/// A grant draws its token and then waits for another transaction that takes the key. What that one does to the mark is
/// what a grant and a release of the key in between would do.
#[tokio::test]
async fn a_token_is_above_those_of_leases_that_came_and_went_while_it_waited() {
    let (server, _) = Server::with_store(&[]).await;
    for call in [ONE, BATCH] {
        let other = server.connect().await.unwrap();
        other
            .batch_execute("BEGIN; INSERT INTO leasehold.leases (key, slot) VALUES ('k', 0)")
            .await
            .unwrap();
        let waiting = connect(&server.url()).await.unwrap();
        let (answer, ()) = tokio::join!(waiting.query(call, &[]), async {
            until(async || server.waits("transactionid").await).await;
            let ahead = "SELECT leasehold.pass(leasehold.now_us() + 1000000000)";
            other.batch_execute(&format!("{ahead}; ROLLBACK")).await.unwrap();
        });
        let mark = number(&server, MARK).await;
        for row in answer.unwrap() {
            let token: i64 = row.get(1);
            assert!(token > mark, "{token} after {mark}");
            let stored = "SELECT min(least(token, counter)) FROM leasehold.leases";
            assert_eq!(number(&server, stored).await, token);
        }
        server.run("DELETE FROM leasehold.leases").await;
    }
}

#[tokio::test]
async fn a_token_is_above_that_of_a_lease_that_is_over() {
    let (server, store) = Server::with_store(&[]).await;
    for call in [ONE, BATCH] {
        token(&store, "k", "over").await;
        server.run("UPDATE leasehold.leases SET expires = 1, counter = counter + 1000000000").await;
        let counter = number(&server, "SELECT counter FROM leasehold.leases").await;
        let taken = server.rows(call).await;
        let next: i64 = taken.last().unwrap().get(1);
        assert!(next > counter, "{next} after {counter}");
        server.run("DELETE FROM leasehold.leases").await;
    }
}

/// Whoever sets the mark holds the advisory lock, not to the end of the transaction, and not after an error either.
#[tokio::test]
async fn the_mark_is_set_by_one_session_at_a_time() {
    let (server, store) = Server::with_store(&[]).await;
    let own = "pg_advisory_lock(1282631780, 'leasehold.mark'::regclass::oid::integer)";
    let holder = connect(&server.url()).await.unwrap();
    holder.batch_execute(&format!("SELECT {own}")).await.unwrap();
    let raises = connect(&server.url()).await.unwrap();
    let failed = raises
        .batch_execute("SET lock_timeout = '1ms'; SELECT leasehold.pass(leasehold.now_us())")
        .await
        .unwrap_err();
    assert_eq!(failed.code(), Some(&SqlState::LOCK_NOT_AVAILABLE), "{failed:?}");
    raises.batch_execute("SET lock_timeout = 0").await.unwrap();
    let before = number(&server, MARK).await;
    let raise = async |client: &Client, to: i64| {
        client.batch_execute(&format!("SELECT leasehold.pass({to})")).await.unwrap();
    };
    let (low, high) = (before + 10, before + 20);
    let others = connect(&server.url()).await.unwrap();
    tokio::join!(raise(&raises, high), raise(&others, low), async {
        let both = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";
        until(async || number(&server, both).await == 2).await;
        assert_eq!(number(&server, MARK).await, before, "somebody else sets it");
        holder.batch_execute("SELECT pg_advisory_unlock_all()").await.unwrap();
    });
    assert_eq!(number(&server, MARK).await, high);
    token(&store, "k", "a").await;
    store.release(&release("k", "a")).await.unwrap();
    // More than there are tokens.
    raises.batch_execute("SELECT leasehold.pass(9007199254740992)").await.unwrap_err();
    // In a transaction that goes on, and is rolled back.
    let further = number(&server, MARK).await + 1;
    let in_a_transaction = format!("BEGIN; SELECT leasehold.pass({further})");
    raises.batch_execute(&in_a_transaction).await.unwrap();
    let locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'";
    assert_eq!(number(&server, locks).await, 0);
    raises.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(number(&server, MARK).await, further);
}

#[tokio::test]
async fn tokens_grow_through_races_of_raises_crashes_and_a_promotion() {
    let (server, store) = Server::with_store(&[]).await;
    let mut last = raise_tokens(&store).await;
    token_grows(&store, &mut last).await;
    server.restart().await.unwrap();
    token_grows(&server.store().await, &mut last).await;
    let standby = server.standby().await.unwrap();
    token_grows(&server.store().await, &mut last).await;
    standby.has_all_of(&server).await;
    server.kill();
    standby.promote().await;
    token_grows(&standby.store().await, &mut last).await;
}

#[tokio::test]
async fn a_wait_for_a_new_key_that_ends_leaves_no_line_in_the_servers_log() {
    let (server, store) = Server::with_store(&[]).await;
    let (other, waiting) = (server.connect().await.unwrap(), server.connect().await.unwrap());
    other
        .batch_execute("BEGIN; INSERT INTO leasehold.leases (key, slot) VALUES ('k', 0)")
        .await
        .unwrap();
    waiting.batch_execute("SET lock_timeout = '1ms'").await.unwrap();
    let one = ONE.replace("o_key, o_token", "outcome");
    let outcome: String = waiting.query_one(&one, &[]).await.unwrap().get(0);
    assert_eq!(outcome, "locked");
    assert!(waiting.query(BATCH, &[]).await.unwrap().is_empty(), "no new key is taken");
    assert_eq!(rows(&server).await, 0);
    token(&store, "j", "over").await;
    server.run("UPDATE leasehold.leases SET expires = 1").await;
    let taken = waiting.query(BATCH, &[]).await.unwrap();
    assert_eq!(taken.iter().map(|row| row.get(0)).collect::<Vec<String>>(), ["j"]);
    assert!(!server.log().contains("ERROR:"), "{}", server.log());
}

#[tokio::test]
async fn a_batch_waits_for_no_row_that_is_there() {
    let (server, store) = Server::with_store(&[]).await;
    token(&store, "k", "held").await;
    for change in ["UPDATE leasehold.leases SET expires = 1", "DELETE FROM leasehold.leases"] {
        let other = server.connect().await.unwrap();
        other.batch_execute(&format!("BEGIN; {change}")).await.unwrap();
        let taken = in_time(server.rows(BATCH)).await;
        assert_eq!(taken.iter().map(|row| row.get(0)).collect::<Vec<String>>(), ["j"], "{change}");
        other.batch_execute("ROLLBACK").await.unwrap();
        server.run("DELETE FROM leasehold.leases WHERE key = 'j'").await;
    }
}

/// Its row was removed and another one added, while the request waited for a key before it.
#[tokio::test]
async fn several_keys_are_locked_although_their_rows_change() {
    let (server, store) = Server::with_store(&[]).await;
    token(&store, "a", "over").await;
    token(&store, "h", "old").await;
    let before = server.hold("key = 'a'").await;
    let many = server.connect().await.unwrap();
    let acquire = "BEGIN; SELECT leasehold.acquire(NULL, 'm', '{a,h}', '{-1,-1}', 1000000, NULL, NULL, NULL, NULL, NULL)";
    tokio::join!(async { many.batch_execute(acquire).await.unwrap() }, async {
        until(async || server.waits("transactionid").await).await;
        store.release(&release("h", "old")).await.unwrap();
        token(&store, "h", "new").await;
        before.batch_execute("COMMIT").await.unwrap();
    });
    let unlocked = "SELECT FROM leasehold.leases WHERE key = 'h' FOR UPDATE SKIP LOCKED";
    assert!(server.rows(unlocked).await.is_empty());
    many.batch_execute("ROLLBACK").await.unwrap();
}

/// The answer to the acquire is lost while its commit waits, and the caller releases what it may have.
#[tokio::test]
async fn a_release_waits_for_an_acquire_that_is_not_over() {
    let (server, store) = Server::with_store(&[]).await;
    for call in [ONE, BATCH] {
        let acquiring = server.connect().await.unwrap();
        acquiring.batch_execute(&format!("BEGIN; {call}")).await.unwrap();
        let lease = if call == ONE { "a" } else { "b" };
        let end = release("k", lease);
        let (released, ()) = tokio::join!(store.release(&end), async {
            until(async || server.waits("transactionid").await).await;
            acquiring.batch_execute("COMMIT").await.unwrap();
        });
        let outcome = only(released.unwrap().leases);
        assert!(matches!(outcome, ReleaseOutcome::Released), "{outcome:?}");
        server.run("DELETE FROM leasehold.leases").await;
    }
}

#[tokio::test]
async fn a_batch_takes_no_key_twice() {
    let (server, store) = Server::with_store(&[]).await;
    token(&store, "k", "held").await;
    // The term of its first key is over when it comes to its others.
    let taken = server.rows(&BATCH.replacen("1000000", "-1", 1)).await;
    assert_eq!(taken.iter().map(|row| row.get(0)).collect::<Vec<String>>(), ["j"]);
}
