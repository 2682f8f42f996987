//! Requests that are sent in batches.

use futures_util::future::{join, join_all};
use leasehold_core::{Mode, ReleaseOutcome, Store as _};
use leasehold_testkit::postgres::Server;
use leasehold_testkit::requests::{acquire, granted, release, released};
use leasehold_testkit::sql::SqlTestServer as _;
use leasehold_testkit::sql::together::rows_that_name_no_member_are_unexpected;

leasehold_testkit::sql_together!(Server);

#[tokio::test]
async fn a_row_of_a_batch_that_names_no_member_is_an_unexpected_reply() {
    for key in ["NULL", "'nobody'", "p_keys[1]"] {
        let (server, store) = Server::with_store(&[]).await;
        let breaks = format!(
            "CREATE OR REPLACE FUNCTION leasehold.release_batch(p_patience text, p_keys text[], p_ids bytea[], p_tokens bigint[], \
             p_wakes boolean[]) RETURNS TABLE (o_key text, o_late boolean) LANGUAGE sql AS $$ \
             UPDATE leasehold.leases SET id = NULL WHERE key = ANY (p_keys) RETURNING {key}, false $$"
        );
        rows_that_name_no_member_are_unexpected(&server, &store, &[&breaks]).await;
    }
}

/// The trigger stands for a role that may no longer insert. With one connection for batches acquires and releases share one.
#[tokio::test]
async fn releases_succeed_where_acquires_are_denied() {
    let (server, _) = Server::with_store(&[]).await;
    let store = server.prepared("connections=2").await;
    let names: Vec<_> = (0..10).map(|n| format!("k{n}")).collect();
    for name in &names {
        granted(store.acquire(&acquire(name, "a", Mode::Exclusive)).await);
    }
    server
        .run(
            "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS
                 $$ BEGIN RAISE insufficient_privilege USING MESSAGE = 'no insertions'; END $$;
             CREATE TRIGGER no BEFORE INSERT ON leasehold.leases EXECUTE FUNCTION no()",
        )
        .await;
    let new = acquire("new", "a", Mode::Exclusive);
    let ends: Vec<_> = names.iter().map(|name| release(name, "a")).collect();
    // The first goes ahead alone, and the others together.
    let (first, rest) = (released(&store, &ends[0]), &ends[1..]);
    let others = join(store.acquire(&new), join_all(rest.iter().map(|end| released(&store, end))));
    let (first, (denied, outcomes)) = join(first, others).await;
    denied.unwrap_err();
    for outcome in [first].into_iter().chain(outcomes) {
        assert!(matches!(outcome, Ok(ReleaseOutcome::Released)), "{outcome:?}");
    }
}
