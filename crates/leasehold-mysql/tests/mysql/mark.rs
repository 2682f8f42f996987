//! The high-water mark of the tokens, and what remains of a key that nobody holds.

use leasehold_core::{Effect, Mode, ReleaseOutcome, RenewOutcome, Store as _, Ttl};
use leasehold_mysql::mysql_async::prelude::Queryable as _;
use leasehold_testkit::mysql::Server;
use leasehold_testkit::requests::{acquire, evict, only, refused, release, released, renew};
use leasehold_testkit::sql::SqlTestServer as _;
use leasehold_testkit::sql::mark::{mark, raise_tokens, rows, token, token_grows};
use leasehold_testkit::{in_time, until};

leasehold_testkit::sql_mark!(Server);

const ONE: &str =
    "CALL leasehold.leasehold_acquire_one('k', 'a', 1000000, NULL, NULL, NULL, NULL, NULL)";
const BATCH: &str = "CALL leasehold.leasehold_batch(
    7, '[[\"6a\",\"61\",1000000,null,null],[\"6b\",\"61\",1000000,null,null]]', NULL, NULL, NULL, NULL, NULL, NULL)";

/// A grant draws its token before its row is there. What the trigger does to the mark is what a grant and a release of the
/// key in between would do.
#[tokio::test]
async fn a_token_is_above_those_of_leases_that_came_and_went_meanwhile() {
    let (server, _) = Server::with_store(&[]).await;
    server
        .run(
            "CREATE TRIGGER leasehold.meanwhile BEFORE INSERT ON leasehold.leasehold_leases FOR EACH ROW
             INSERT INTO leasehold.leasehold_mark (value) VALUES (NEW.counter + 1000000000)",
        )
        .await;
    for (call, is_held) in [(ONE, false), (BATCH, false), (BATCH, true)] {
        // The row of another key of the batch is there, and somebody has locked it.
        let other = match is_held {
            true => {
                server
                    .run("INSERT INTO leasehold.leasehold_leases (`key`, slot) VALUES ('j', 0)")
                    .await;
                Some(server.hold("`key` = 'j'").await)
            }
            false => None,
        };
        let mut taken = Vec::new();
        until(async || {
            // Without a row if it had to wait, as on a busy machine: it is then for the caller to send alone.
            taken = server.rows(call).await;
            !taken.is_empty()
        })
        .await;
        drop(other);
        let mark = mark(&server).await;
        for row in taken {
            let token: u64 = row.get("o_token").unwrap();
            assert!(token > mark, "{token} after {mark}");
            let stored = "SELECT MIN(LEAST(token, counter)) FROM leasehold.leasehold_leases
                          WHERE state = 'h'";
            assert_eq!(server.rows(stored).await[0].get::<u64, _>(0).unwrap(), token);
        }
        server.run("DELETE FROM leasehold.leasehold_leases").await;
    }
}

#[tokio::test]
async fn a_token_is_above_that_of_a_lease_that_is_over() {
    let (server, store) = Server::with_store(&[]).await;
    for call in [ONE, BATCH] {
        token(&store, "k", "over").await;
        let over =
            "UPDATE leasehold.leasehold_leases SET expires = 1, counter = counter + 1000000000";
        server.run(over).await;
        let counter = "SELECT counter FROM leasehold.leasehold_leases";
        let counter: u64 = server.rows(counter).await[0].get(0).unwrap();
        let taken = server.rows(call).await;
        let next: u64 = taken.last().unwrap().get("o_token").unwrap();
        assert!(next > counter, "{next} after {counter}");
        server.run("DELETE FROM leasehold.leasehold_leases").await;
    }
}

#[tokio::test]
async fn a_batch_takes_keys_that_are_known_while_another_transaction_adds_one() {
    let (server, store) = Server::with_store(&[]).await;
    let mut other = server.connect().await.unwrap();
    other.query_drop("BEGIN").await.unwrap();
    let adds = "INSERT INTO leasehold.leasehold_leases (`key`, slot) VALUES ('k', 0)";
    other.query_drop(adds).await.unwrap();
    assert!(server.rows(BATCH).await.is_empty(), "no new key is taken");
    token(&store, "j", "over").await;
    server.run("UPDATE leasehold.leasehold_leases SET expires = 1 WHERE `key` = 'j'").await;
    let taken = server.rows(BATCH).await;
    let names: Vec<String> = taken.iter().map(|row| row.get("o_key").unwrap()).collect();
    assert_eq!(names, ["j"]);
}

/// When the removal is committed, so is the mark, which is at least the counter.
#[tokio::test]
async fn a_key_whose_removal_is_not_over_is_granted_afterwards() {
    let (server, store) = Server::with_store(&[]).await;
    token(&store, "k", "a").await;
    let mut removing = server.connect().await.unwrap();
    for statement in [
        "UPDATE leasehold.leasehold_leases SET counter = counter + 1000000000",
        "BEGIN",
        "CALL leasehold.leasehold_pass((SELECT counter FROM leasehold.leasehold_leases), 0)",
        "DELETE FROM leasehold.leasehold_leases",
    ] {
        removing.query_drop(statement).await.unwrap();
    }
    refused(store.acquire(&acquire("k", "b", Mode::Exclusive)).await);
    assert_eq!(mark(&server).await, 0);
    removing.query_drop("COMMIT").await.unwrap();
    let next = token(&store, "k", "b").await;
    assert!(next > mark(&server).await);
}

/// They fail, or are tried again by the client.
#[tokio::test]
async fn what_another_transaction_adds_is_awaited_on_no_connection() {
    let (server, _) = Server::with_store(&[]).await;
    let store = server.prepared("timeout=4s").await;
    let mut other = server.connect().await.unwrap();
    other.query_drop("BEGIN").await.unwrap();
    let adds = "INSERT INTO leasehold.leasehold_leases (`key`, slot) VALUES ('k', 0)";
    other.query_drop(adds).await.unwrap();
    let before = server.status("Innodb_row_lock_time").await;
    let (renewal, end) = (renew("k", "a", Mode::Exclusive, Ttl::NEVER), release("k", "a"));
    let evicts = evict("k", "a");
    let (renewed, released, evicted) =
        tokio::join!(store.renew(&renewal), store.release(&end), store.evict(&evicts));
    for effect in [
        renewed.map(drop).unwrap_err().effect(),
        released.map(drop).unwrap_err().effect(),
        evicted.map(drop).unwrap_err().effect(),
    ] {
        assert_eq!(effect, Effect::NotApplied);
    }
    let waited = server.status("Innodb_row_lock_time").await - before;
    assert!(waited < 500, "{waited} ms");
    other.query_drop("ROLLBACK").await.unwrap();
    store.evict(&evicts).await.unwrap();
    assert!(matches!(only(store.renew(&renewal).await.unwrap().leases), RenewOutcome::Lost(_)));
    assert_eq!(rows(&server).await, 0);
}

/// The answer to the acquire is lost while its commit waits, and the caller releases what it may have.
#[tokio::test]
async fn a_release_waits_for_an_acquire_that_is_not_over() {
    let (server, store) = Server::with_store(&[]).await;
    let mut acquiring = server.connect().await.unwrap();
    for statement in [
        "BEGIN",
        "INSERT INTO leasehold.leasehold_leases (`key`, slot, counter, id, shared, state, token, expires, granted_at)
         VALUES ('k', 0, 1, 'a', FALSE, 'h', 1, 4000000000000000, 1)",
    ] {
        acquiring.query_drop(statement).await.unwrap();
    }
    let (end, before) = (release("k", "a"), server.calls().await);
    let (outcome, ()) = tokio::join!(released(&store, &end), async {
        until(async || server.calls().await > before + 1).await;
        acquiring.query_drop("COMMIT").await.unwrap();
    });
    assert!(matches!(outcome, Ok(ReleaseOutcome::Released)), "{outcome:?}");
    assert_eq!(rows(&server).await, 0);
}

/// A removal has a row of the mark to itself until it is committed, and nobody waits for it.
#[tokio::test]
async fn removals_at_the_same_time_have_rows_of_the_mark_of_their_own() {
    let (server, store) = Server::with_store(&[]).await;
    let shards = async || server.rows("SELECT shard FROM leasehold.leasehold_mark").await.len();
    for _ in 0..3 {
        token(&store, "k", "a").await;
        store.release(&release("k", "a")).await.unwrap();
        assert_eq!(shards().await, 1);
    }
    let mut other = server.connect().await.unwrap();
    for statement in [
        "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
        "BEGIN",
        "SELECT * FROM leasehold.leasehold_mark FOR UPDATE",
    ] {
        other.query_drop(statement).await.unwrap();
    }
    let last = token(&store, "k", "a").await;
    in_time(store.release(&release("k", "a"))).await.unwrap();
    assert_eq!((shards().await, mark(&server).await), (2, last));
    other.query_drop("ROLLBACK").await.unwrap();
    // A value never goes back, whichever row it is in.
    server.run("CALL leasehold.leasehold_pass(5, 0)").await;
    assert_eq!(mark(&server).await, last);
}

#[tokio::test]
async fn tokens_grow_through_races_of_raises_crashes_and_a_promotion() {
    let server = Server::primary().await.unwrap();
    let store = server.store().await;
    let mut last = raise_tokens(&store).await;
    token_grows(&store, &mut last).await;
    server.restart().await.unwrap();
    token_grows(&server.store().await, &mut last).await;
    let replica = server.replica().await.unwrap();
    token_grows(&server.store().await, &mut last).await;
    replica.has_all_of(&server).await;
    server.kill();
    replica.promote().await;
    token_grows(&replica.store().await, &mut last).await;
}
