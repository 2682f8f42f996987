//! Ends leases by force.

use leasehold::inspect::{EvictRequest, EvictTarget, Reason, Record};
use leasehold::{Locker, Result};

/// The most leases that one request may name.
const BATCH: usize = 1_000;

/// Ends exactly these leases, and returns those that it ended: a holder may have released its lease meanwhile.
pub(crate) async fn evict(
    records: &[Record],
    reason: Option<&Reason>,
    locker: &Locker,
) -> Result<Vec<Record>> {
    let mut ended = Vec::new();
    for batch in records.chunks(BATCH) {
        let targets = batch.iter().map(EvictTarget::of).collect();
        let evicted = locker.evict(&EvictRequest::exactly(targets, reason.cloned())).await?;
        let is_gone = |record: &&Record| {
            let is_it = |gone: &EvictTarget| gone.key == record.key && gone.id == record.id;
            evicted.removed.iter().any(is_it)
        };
        ended.extend(batch.iter().filter(is_gone).cloned());
    }
    Ok(ended)
}
