//! Acquire and release of a key that nobody else wants.

use std::sync::Arc;

use leasehold::store::Store;
use leasehold::{Key, Locker, Result};

use super::{POOL, Plain};
use crate::sides::{Amount, Side, head, rows};
use crate::subjects::{through_locker, through_store};

/// `alone` are further sides with one task.
pub(crate) async fn run(sides: &[Side], alone: &[Side]) -> Result<()> {
    println!("## Acquire and release of an uncontended key, durable commits\n");
    println!(
        "The first row is a pool of {POOL} connections (one per task if there are fewer), with one prepared statement \
         to acquire and one to release.\n"
    );
    head();
    for (tasks, pairs) in [(1, 1_000), (16, 200), (64, 100), (256, 50)] {
        let alone = if tasks == 1 { alone } else { &[] };
        rows(&[sides, alone].concat(), Amount { tasks, pairs, rounds: 7 }).await?;
    }
    println!();
    Ok(())
}

/// The same by plain statements, by the store, and by a `Locker`.
pub(crate) fn sides(plain: &Arc<impl Plain>, store: &Arc<impl Store>) -> Vec<Side> {
    let (plain, store) = (Arc::clone(plain), Arc::clone(store));
    let locks = Locker::new(Arc::clone(&store));
    vec![
        Side::new("plain statements", move |task, pairs| {
            let plain = Arc::clone(&plain);
            async move {
                let key = format!("k{task}");
                for _ in 0..pairs {
                    plain.pair(task, &key).await?;
                }
                Ok(())
            }
        }),
        Side::new("the store", move |task, pairs| {
            let store = Arc::clone(&store);
            async move {
                let key = Key::new(&format!("k{task}"))?;
                for _ in 0..pairs {
                    through_store(&*store, &key).await?;
                }
                Ok(())
            }
        }),
        Side::new("`Locker`", move |task, pairs| {
            let locks = locks.clone();
            async move {
                let key = Key::new(&format!("k{task}"))?;
                for _ in 0..pairs {
                    through_locker(&locks, &key).await?;
                }
                Ok(())
            }
        }),
    ]
}
