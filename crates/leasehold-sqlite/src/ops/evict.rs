use leasehold_core::{Effect, EvictReply, EvictRequest, EvictScope, Filter, Key, Result};

use crate::decide::decide;
use crate::inner::Inner;
use crate::sweep::Sweep;

impl Inner {
    pub(crate) async fn evict(&self, request: &EvictRequest) -> Result<EvictReply> {
        match request.scope() {
            EvictScope::Expired(filter) if filter.keys().is_none() => {
                self.sweep(filter, request.limit()).await
            }
            EvictScope::Expired(_) | EvictScope::Exactly { .. } => self.evict_named(request).await,
        }
    }

    /// Evicts exact records, or expired ones of named keys.
    async fn evict_named(&self, request: &EvictRequest) -> Result<EvictReply> {
        let request = request.clone();
        self.write(move |rows| {
            let keys: Vec<&Key> = match request.scope() {
                EvictScope::Exactly { targets, .. } => {
                    targets.iter().map(|target| &target.key).collect()
                }
                EvictScope::Expired(filter) => filter.keys().unwrap_or_default().iter().collect(),
            };
            decide(rows, keys, |table, now| Ok(table.evict(&request, now)))
        })
        .await
    }

    /// Removes expired records of any key, step by step. When the time is over it returns what it has done.
    async fn sweep(&self, filter: &Filter, most: usize) -> Result<EvictReply> {
        let limit = self.limit();
        let mut sweep = Sweep::new(filter, most);
        while !sweep.is_done() {
            let acted = sweep.has_acted();
            if acted && limit.left(&*self.clock).is_none() {
                break;
            }
            sweep = self
                .run_within(limit, |database, limit| sweep.step(database, limit))
                .await
                .map_err(|e| if acted { e.with_effect(Effect::Unknown) } else { e })?;
        }
        Ok(sweep.reply())
    }
}
