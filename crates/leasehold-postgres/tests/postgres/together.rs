//! Requests that are sent in batches.

use leasehold_testkit::postgres::Server;

leasehold_testkit::sql_together!(Server);
