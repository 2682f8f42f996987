//! Ends the leases of others, so that this run comes next.

use std::time::Duration;

use leasehold::inspect::{Reason, Record};
use leasehold::{Claims, Key, Lease, Locker, ReleaseOutcome, Ttl, Wait};

use crate::eviction::evict;
use crate::failure::Failure;
use crate::holder::Holding;
use crate::plan::Supersede;
use crate::record::{leases, longest_term};
use crate::report::{Event, Reporter};

/// The reason that a holder sees.
const REASON: &str = "superseded by another run";

/// Ends exactly the live leases that it finds on the keys.
///
/// Unless it is to be now, each key stays taken until its holder has ended: neither this run nor another one gets it before.
pub(super) async fn supersede(
    keys: &[Key],
    when: Supersede,
    wait: Wait,
    locker: &Locker,
    reporter: &Reporter,
) -> Result<(), Failure> {
    let mut found = Vec::new();
    for key in keys {
        found.extend(leases(locker.status(key).await?));
    }
    // One that has ended already is only awaited.
    found.retain(|record| !record.kept);
    let ended = match when {
        Supersede::Now => {
            let reason = Reason::new(REASON).map_err(leasehold::Error::from)?;
            evict(&found, Some(&reason), locker).await?
        }
        Supersede::AfterTerm => {
            let endings = endings(found, wait, locker)?;
            let mut ended = Vec::new();
            for Ending { record, lease, keep } in endings {
                if let ReleaseOutcome::Kept(_) = locker.release(&lease, keep).await?.outcome {
                    ended.push(record);
                }
            }
            ended
        }
    };
    for record in &ended {
        reporter.report(&Event::Superseded { record });
    }
    Ok(())
}

/// A lease that is to be ended.
struct Ending {
    record: Record,
    lease: Lease,
    /// How long its holder may run on.
    keep: Duration,
}

/// What to end. Nothing is ended if one of them cannot be awaited.
fn endings(found: Vec<Record>, wait: Wait, locker: &Locker) -> Result<Vec<Ending>, Failure> {
    let ending = |record: Record| {
        let holding = Holding::of(&record).to_string();
        let refused = |why: &str| {
            Err(Failure::usage(format!(
                "{:?} cannot be superseded: it is {holding}; {why}",
                record.key
            )))
        };
        let Some(id) = record.id.clone() else {
            return refused("only a lease with an id can be ended so that its key stays taken");
        };
        let Some(keep) = longest_term(&record) else {
            return refused(
                "nobody knows when its holder has ended; --supersede=now does not wait",
            );
        };
        let keep = keep.min(locker.capabilities().max_term);
        if let Wait::UpTo(limit) = wait
            && limit < keep
        {
            let keep = humantime::format_duration(Duration::from_secs(keep.as_secs() + 1));
            return refused(&format!("its holder may run for {keep}, longer than the wait"));
        }
        let claims = Claims::one(record.key.clone(), record.mode);
        let mut lease =
            Lease::new(id, claims, Ttl::new(keep.max(Ttl::MIN)).map_err(leasehold::Error::from)?);
        lease.token = record.token;
        Ok(Ending { record, lease, keep })
    };
    found.into_iter().map(ending).collect()
}
