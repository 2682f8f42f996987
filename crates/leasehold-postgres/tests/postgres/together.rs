//! Requests that are sent in batches.

use leasehold_testkit::postgres::Server;
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
