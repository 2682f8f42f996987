//! What the server's settings support.

use leasehold_core::{Health, Level, Result};

use crate::inner::Inner;
use crate::server::{Server, check_collection};

impl Inner {
    pub(crate) async fn check(&self) -> Result<Health> {
        let until = self.commands.deadline();
        let server = Server::read(&self.commands, until).await?;
        check_collection(&self.commands, until).await?;
        let alone = self.skew.0.is_zero();
        let level = match (server.is_router, alone) {
            (true, _) => Level::BestEffort,
            (false, true) => Level::Fenced,
            (false, false) => Level::Lease,
        };
        let mut health = Health::new(level);
        health.durable = true;
        health.fails_over = false;
        health.identity = Some(format!("MongoDB {}", server.version));
        if !alone {
            health.hazards.push(
                "clients of mongo-lock may share the collection: their garbage collection deletes token counters, and their \
                 Renew, Unlock and Purge end leases by lockId; if there are none, state it by the option skew=0"
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
}
