//! `leasehold purge`.

use leasehold::Locker;
use serde::Serialize;

use super::session::on;
use crate::args::PurgeArgs;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output;
use crate::report::Reporter;
use crate::store::Choice;

#[derive(Debug, Serialize)]
struct Purged {
    removed: usize,
    forgotten: usize,
    batches: usize,
    unreadable: usize,
}

/// Removes expired records in batches, so that nobody waits long for the store.
pub(crate) async fn purge(
    args: PurgeArgs,
    store: &Choice,
    json: bool,
    reporter: &Reporter,
) -> Result<Exit, Failure> {
    let filter = args.keys.filter()?;
    let purge = async |locks: &Locker| Ok(locks.purge(filter, args.batch).await?);
    let purged = on(store.open_existing(), purge).await?;
    let (removed, forgotten) = (purged.records_removed, purged.counters_forgotten);
    let leasehold::Purged { batches, unreadable, .. } = purged;
    if json {
        output::json(&Purged { removed, forgotten, batches, unreadable: unreadable.len() })?;
    } else {
        output::line(&format!(
            "removed {removed} expired records and {forgotten} counters (batches: {batches})"
        ))?;
    }
    reporter.report_unreadable(unreadable);
    Ok(Exit::SUCCESS)
}
