//! What the server's settings support.

use leasehold_core::{Health, Level, Result};
use leasehold_driver::Deadline;
use mongodb::bson::doc;

use crate::document::first_batch;
use crate::inner::Inner;
use crate::server::{Server, check_collection};

impl Inner {
    pub(crate) async fn check(&self) -> Result<Health> {
        let until = self.commands.deadline();
        let server = Server::read(&self.commands, until).await?;
        check_collection(&self.commands, until).await?;
        let is_alone = self.skew.0.is_zero();
        let is_contradicted = is_alone && self.has_foreign_lock(until).await?;
        // Each shard of a cluster has its own engine.
        let is_durable = server.is_router || self.is_on_disk(until).await?;
        let level = match server.is_router || !is_durable {
            true => Level::BestEffort,
            false if is_alone && !is_contradicted => Level::Fenced,
            false => Level::Lease,
        };
        let mut health = Health::new(level);
        health.durable = is_durable;
        health.identity = server.identity;
        health.clock_difference_us = server.ahead;
        if is_contradicted {
            health.hazards.push(
                "skew=0 states that no client of mongo-lock uses the collection, but one holds a lock there: its clock is \
                 trusted to the millisecond, and its garbage collection deletes token counters; leave out skew=0"
                    .to_owned(),
            );
        }
        if !is_alone {
            health.hazards.push(
                "clients of mongo-lock may share the collection: their garbage collection deletes token counters, and their \
                 Renew, Unlock and Purge end leases by lockId; if there are none, state it by the option skew=0"
                    .to_owned(),
            );
        }
        if !is_durable {
            health.hazards.push(
                "the server's storage engine is not WiredTiger: one in memory forgets all leases and token counters when the server \
                 ends"
                    .to_owned(),
            );
        }
        if server.is_router {
            health.hazards.push(
                "each router of a sharded cluster reads its own clock: a lease may end early by their difference".to_owned(),
            );
        }
        Ok(health)
    }

    /// Whether the collection is on disk. An engine in memory accepts journaled writes too.
    async fn is_on_disk(&self, until: Deadline) -> Result<bool> {
        let stages = [
            doc! { "$collStats": { "storageStats": {} } },
            doc! { "$project": { "storageStats.wiredTiger.type": 1 } },
        ];
        let command = doc! { "aggregate": self.commands.collection(), "pipeline": stages.to_vec(), "cursor": {} };
        let reply = self.commands.command(command, until).await?;
        let mut stats =
            first_batch(&reply).filter_map(|found| found.get_document("storageStats").ok());
        Ok(stats.any(|stats| stats.contains_key("wiredTiger")))
    }

    /// Whether another client than ours holds a lock.
    async fn has_foreign_lock(&self, until: Deadline) -> Result<bool> {
        let foreign = doc! { "$or": [
            { "exclusive.acquired": true, "exclusive.token": { "$exists": false } },
            { "shared.locks": { "$elemMatch": { "token": { "$exists": false } } } },
        ] };
        let found = vec![doc! { "$match": foreign }, doc! { "$limit": 1 }];
        let found = self.commands.aggregate(found, until, None).await;
        found
            .map(|(found, _)| !found.is_empty())
            .map_err(|failure| self.commands.error(failure, until))
    }
}
