//! `leasehold list`.

use leasehold::inspect::ListReply;

use super::session::on;
use crate::args::ListArgs;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output;
use crate::record::{RecordJson, table};
use crate::report::Reporter;
use crate::store::Choice;

/// Lists leases by key.
pub(crate) async fn list(
    args: ListArgs,
    store: &Choice,
    json: bool,
    reporter: &Reporter,
) -> Result<Exit, Failure> {
    let filter = args.filter.filter()?;
    let ListReply { mut records, unreadable, .. } =
        on(store.open_existing(), async |locks| Ok(locks.list(filter).await?)).await?;
    records.sort_by(|a, b| (&a.key, a.token).cmp(&(&b.key, b.token)));
    if json {
        for record in &records {
            output::json(&RecordJson::from(record))?;
        }
    } else if !records.is_empty() {
        output::line(&table(&records))?;
    }
    reporter.report_unreadable(unreadable);
    Ok(Exit::SUCCESS)
}
