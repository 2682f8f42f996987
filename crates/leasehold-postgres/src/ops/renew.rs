use std::collections::HashSet;
use std::future::Future;
use std::sync::Arc;

use futures_util::future::join_all;
use leasehold_core::{
    Effect, Error, Key, RenewEntry, RenewOutcome, RenewReply, RenewRequest, Result,
};

use crate::calls::acquire::is_simple;
use crate::calls::renew::{Renew, outcome};
use crate::error;
use crate::inner::{Inner, locked};
use crate::lane::{Done, Entry};

impl Inner {
    pub(crate) async fn renew(self: &Arc<Self>, request: &RenewRequest) -> Result<RenewReply> {
        let leases = request.leases();
        let keys = leases.iter().flat_map(|lease| lease.claims().keys());
        let outcomes = each(leases, keys, |lease| self.renewed(lease)).await;
        all_or(outcomes, RenewOutcome::Failed).map(RenewReply::new)
    }

    async fn renewed(self: &Arc<Self>, lease: &RenewEntry) -> Result<RenewOutcome> {
        if is_simple(lease.claims()) {
            match self.together(Entry::Renew(lease.clone())).await {
                Some(Ok(Done::Renewed(outcome))) => return Ok(outcome),
                Some(Ok(other)) => {
                    return Err(error::odd(&self.links.server, format_args!("{other:?}")));
                }
                Some(Err(error)) => return Err(error),
                None => {}
            }
        }
        let rows = self.apart(Renew::new(lease)).await?;
        let rows = rows.ok_or_else(|| locked(&self.links.server))?;
        outcome(&self.links.server, lease, &rows)
    }
}

/// Acts on all entries at once, or on one after the other if a key is named twice.
pub(crate) async fn each<'a, E, T, F: Future<Output = T>>(
    entries: &'a [E],
    mut keys: impl Iterator<Item = &'a Key>,
    act: impl Fn(&'a E) -> F,
) -> Vec<T> {
    let mut named = HashSet::new();
    if keys.all(|key| named.insert(key)) {
        return join_all(entries.iter().map(act)).await;
    }
    let mut outcomes = Vec::new();
    for entry in entries {
        outcomes.push(act(entry).await);
    }
    outcomes
}

/// The outcomes; the failure of all if all failed.
pub(crate) fn all_or<T>(outcomes: Vec<Result<T>>, failed: impl Fn(Error) -> T) -> Result<Vec<T>> {
    if outcomes.iter().all(Result::is_err) {
        let failures = outcomes.into_iter().filter_map(Result::err);
        let worst = failures.max_by_key(|failure| failure.effect() == Effect::Unknown);
        return worst.map_or(Ok(Vec::new()), Err);
    }
    Ok(outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(&failed)).collect())
}
