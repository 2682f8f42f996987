//! `leasehold purge`.

use leasehold::Evict;
use serde::Serialize;

use crate::args::PurgeArgs;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output;
use crate::store::Choice;

#[derive(Debug, Default, Serialize)]
struct Purged {
    removed: usize,
    forgotten: usize,
    batches: usize,
}

/// Removes what has expired, batch by batch, so that nobody waits long for the store.
pub(crate) async fn purge(args: PurgeArgs, store: &Choice, json: bool) -> Result<Exit, Failure> {
    let request = Evict::expired(args.keys.filter()?).with_limit(args.batch);
    let locker = store.open().await?;
    let mut purged = Purged::default();
    loop {
        let evicted = locker.evict(&request).await?;
        purged.removed += evicted.removed.len();
        purged.forgotten += evicted.forgotten;
        purged.batches += 1;
        if !evicted.more {
            break;
        }
    }
    if json {
        output::json(&purged)?;
    } else {
        let Purged { removed, forgotten, batches } = purged;
        output::line(&format!(
            "removed {removed} expired records and {forgotten} counters (batches: {batches})"
        ))?;
    }
    Ok(Exit::SUCCESS)
}
