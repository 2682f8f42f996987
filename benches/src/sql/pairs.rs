//! Acquire and release of a key that nobody else wants: one that is used again and again, or once.

use std::sync::Arc;

use leasehold::Result;
use leasehold::store::Store;

use super::{POOL, Plain};
use crate::sides::{Amount, Side, head, rows};
use crate::subjects::{self, Keys};

/// With keys that are used once.
pub(crate) async fn fresh(plain: &Arc<impl Plain>, store: &Arc<impl Store>) -> Result<()> {
    println!("## Acquire and release of a key that is used once, durable commits (`fresh`)\n");
    println!(
        "The first row is a pool of {POOL} connections (one per task if there are fewer), with one prepared upsert and one \
         prepared `DELETE`. Each key is a random number.\n"
    );
    all(&sides(plain, store, Keys::Fresh), &[]).await
}

/// `alone` are further sides with one task.
pub(crate) async fn run(sides: &[Side], alone: &[Side]) -> Result<()> {
    println!("## Acquire and release of an uncontended key, durable commits (`pairs`)\n");
    println!(
        "The first row is a pool of {POOL} connections (one per task if there are fewer), with one prepared statement \
         to acquire and one to release.\n"
    );
    all(sides, alone).await
}

async fn all(sides: &[Side], alone: &[Side]) -> Result<()> {
    head();
    for (tasks, pairs) in [(1, 250), (16, 200), (64, 100), (256, 50)] {
        let alone = if tasks == 1 { alone } else { &[] };
        rows(&[sides, alone].concat(), Amount { tasks, pairs, rounds: 7 }).await?;
    }
    println!();
    Ok(())
}

/// The same by plain statements, by the store, and by a `Locker`.
pub(crate) fn sides(plain: &Arc<impl Plain>, store: &Arc<impl Store>, keys: Keys) -> Vec<Side> {
    let plain = Arc::clone(plain);
    let statements = Side::new("plain statements", move |task, pairs| {
        let plain = Arc::clone(&plain);
        async move {
            for _ in 0..pairs {
                plain.pair(task, &keys.of(task), keys).await?;
            }
            Ok(())
        }
    });
    [vec![statements], subjects::sides(store, keys)].concat()
}
