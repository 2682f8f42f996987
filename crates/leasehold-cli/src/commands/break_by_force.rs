//! `leasehold break`.

use leasehold::{Evict, Filter, Record, Target};
use serde::Serialize;

use crate::args::BreakArgs;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output;
use crate::record::RecordJson;
use crate::store::Choice;

/// The most leases that one request may name.
const BATCH: usize = 1_000;

#[derive(Debug, Serialize)]
struct Broken<'a> {
    key: &'a str,
    removed: Vec<RecordJson<'a>>,
}

/// Ends the live leases on one key, exactly those that it finds.
pub(crate) async fn end_by_force(
    args: BreakArgs,
    store: &Choice,
    json: bool,
) -> Result<Exit, Failure> {
    let BreakArgs { key, lease, reason } = args;
    let mut filter = Filter::default().with_key(key.clone());
    if let Some(lease) = lease {
        filter = filter.with_lease(lease);
    }
    let locker = store.open().await?;
    let records = locker.list(filter).await?;
    let mut removed: Vec<&Record> = Vec::new();
    for batch in records.chunks(BATCH) {
        let targets = batch.iter().map(Target::of).collect();
        let evicted = locker.evict(&Evict::exactly(targets, reason.clone())).await?;
        // A holder that released meanwhile was not broken.
        removed.extend(batch.iter().filter(|record| {
            evicted.removed.iter().any(|target| target.key == record.key && target.id == record.id)
        }));
    }
    if json {
        let removed = removed.into_iter().map(RecordJson::from).collect();
        output::json(&Broken { key: key.as_str(), removed })?;
        return Ok(Exit::SUCCESS);
    }
    if removed.is_empty() {
        output::line(&format!("nothing was broken: no such lease holds {key:?}"))?;
    }
    for record in removed {
        output::line(&format!("broken: {key:?}, held by {}", record.who()))?;
    }
    Ok(Exit::SUCCESS)
}
