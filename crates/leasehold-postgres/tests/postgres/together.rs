//! Requests that are sent in batches.

use leasehold_testkit::postgres::Server;
use leasehold_testkit::sql::SqlTestServer as _;
use leasehold_testkit::sql::together::rows_that_name_no_member_are_unexpected;

leasehold_testkit::sql_together!(Server);

#[tokio::test]
async fn a_row_of_a_batch_that_names_no_member_is_an_unexpected_reply() {
    for nth in ["NULL", "0", "9", "1"] {
        let (server, store) = Server::with_store(&[]).await;
        let breaks = format!(
            "CREATE OR REPLACE FUNCTION leasehold.release_batch(p_patience text, p_keys text[], p_ids bytea[], p_tokens bigint[], \
             p_wakes boolean[]) RETURNS TABLE (o_nth bigint, o_in_time boolean) LANGUAGE sql AS $$ \
             UPDATE leasehold.leases SET id = NULL WHERE key = ANY (p_keys) RETURNING {nth}::bigint, true $$"
        );
        rows_that_name_no_member_are_unexpected(&server, &store, &[&breaks]).await;
    }
}
