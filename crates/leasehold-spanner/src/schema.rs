//! Creates a table.

use std::time::Duration;

use google_cloud_lro::Poller as _;
use leasehold_core::{Effect, Result};
use leasehold_driver::Deadline;

use crate::client::Client;
use crate::{SpannerConfig, error};

/// How long a change of the schema may take, whatever the time limit of an operation: Spanner works on it in the background.
const LONG: Duration = Duration::from_secs(120);

/// How long another client's change of the schema is waited for before the next try.
const PAUSE: Duration = Duration::from_millis(100);

/// Creates a table by a statement if it is missing. Spanner makes one change of a schema at a time: while another client makes
/// one, it is tried again.
pub(crate) async fn prepare<F: Future<Output = Result<bool>>>(
    client: &Client,
    config: &SpannerConfig,
    create_table: &str,
    is_prepared: impl Fn() -> F,
) -> Result<()> {
    let until = Deadline::after(client.timeout.max(LONG));
    loop {
        if is_prepared().await? {
            return Ok(());
        }
        let created = until.bound(Box::pin(create(client, config, create_table))).await;
        match created.unwrap_or_else(|| Err(client.unanswered(until.limit(), Effect::Unknown))) {
            Err(error) if error::is_of_busy_schema(&error) && until.left() > PAUSE => {
                tokio::time::sleep(PAUSE).await;
            }
            created => return created,
        }
    }
}

async fn create(client: &Client, config: &SpannerConfig, statement: &str) -> Result<()> {
    let admin = config.admin(&client.server).await?;
    let request = admin
        .update_database_ddl()
        .set_database(config.path())
        .set_statements([statement.to_owned()]);
    let created = request.poller().until_done().await;
    created
        .map(drop)
        .map_err(|error| error::of_creating(error::of(&client.server, error, true), statement))
}
