//! Other crates that lock in Redis.

use std::sync::Arc;

use distributed_lock_core::error::LockError;
use distributed_lock_core::traits::{DistributedLock as _, LockHandle as _, LockProvider as _};
use distributed_lock_redis::RedisLockProvider;
use leasehold::{Error, Result};
use rslock::LockManager;

use crate::sides::Side;
use crate::subjects::TTL;
use leasehold_testkit::redis::Server;

/// What the peers lack, for readers of the figures.
pub(crate) const LACKS: &str = "`rslock` has no fencing tokens, no shared mode, no record of the holder and no \
wake-ups (it polls every 0 to 200 ms); dropping a guard releases nothing, and a lease is extended only around a \
closure. `distributed-lock-redis` has no fencing tokens, no record of the holder and no wake-ups (with one server \
its `acquire` fails at once if the lock is held); it extends each lease in a separate task, first right after the \
grant, so that a pair is three commands, and dropping a handle releases nothing. `distributed-lock` always depends \
on all its stores, whatever its features, so its Redis crate is used directly.\n";

/// Pairs of `rslock`, one after the other.
pub(crate) fn rslock(servers: &[&Server]) -> Side {
    let locks = LockManager::new(servers.iter().map(|server| server.url()).collect());
    Side::new("`rslock`", move |task, pairs| {
        let locks = locks.clone();
        async move {
            let key = format!("rslock-{task}");
            for _ in 0..pairs {
                let lock = locks.lock(key.as_str(), TTL).await;
                lock.map_err(|e| Error::unexpected("rslock failed").with_source(e))?
                    .release()
                    .await;
            }
            Ok(())
        }
    })
}

/// Pairs of `distributed-lock-redis`, one after the other.
pub(crate) async fn distributed_lock(servers: &[&Server]) -> Result<Side> {
    let urls: Vec<_> = servers.iter().map(|server| server.url()).collect();
    let provider = RedisLockProvider::builder().urls(&urls).expiry(TTL).build().await;
    let provider = Arc::new(provider.map_err(failed)?);
    Ok(Side::new("`distributed-lock-redis`", move |task, pairs| {
        let provider = Arc::clone(&provider);
        async move {
            for _ in 0..pairs {
                // A lock has one id for all its grants, so a late answer could end a later grant.
                let lock = provider.create_lock(&format!("dl-{task}"));
                let handle = lock.try_acquire().await.map_err(failed)?;
                let handle = handle.ok_or_else(|| Error::unexpected("the lock is held"))?;
                handle.release().await.map_err(failed)?;
            }
            Ok(())
        }
    }))
}

fn failed(error: LockError) -> Error {
    Error::unexpected("distributed-lock-redis failed").with_source(error)
}
