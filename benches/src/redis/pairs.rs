//! Uncontended acquire and release, each task with a key of its own.

use leasehold::{Key, Locker, Result, Store};
use leasehold_redis::RedisStore;
use leasehold_redis::redis::aio::MultiplexedConnection;

use super::peers;
use super::raw::{self, Forms, Scripts};
use crate::server::Server;
use crate::sides::{self, Amount, Side};
use crate::subjects::through_locker;

/// Measures all sides at every number of tasks.
pub(crate) async fn run(server: &Server) -> Result<()> {
    println!("## Uncontended acquire + release\n");
    println!(
        "The first is raw calls of the driver with the store's own scripts, on one connection without time limits. \
         All sides take turns; figures are medians of all rounds, multiples are of the same round.\n"
    );
    println!("{}", peers::LACKS);
    println!(
        "First all of a client in one thread, where no work passes from core to core; then a thread for each core.\n"
    );
    sides::head();
    tokio::task::block_in_place(|| {
        let alone = tokio::runtime::Builder::new_current_thread().enable_all().build();
        alone.map_err(crate::subjects::io)?.block_on(async {
            let amount = Amount { tasks: 1, pairs: 64, rounds: 101 };
            sides::rows(&sides(server).await?, amount).await
        })
    })?;
    println!();
    sides::head();
    let sides = sides(server).await?;
    for (tasks, pairs, rounds) in [(1, 64, 101), (16, 32, 41), (64, 16, 41), (256, 8, 21)] {
        sides::rows(&sides, Amount { tasks, pairs, rounds }).await?;
    }
    println!();
    Ok(())
}

async fn sides(server: &Server) -> Result<Vec<Side>> {
    let mut link = raw::connect(&server.url()).await?;
    let same = Scripts::load(&mut link, Forms::Same).await?;
    let least = Scripts::load(&mut link, Forms::Least).await?;
    // The driver's usual limit.
    let limited =
        raw::connected(&server.url(), Some(std::time::Duration::from_millis(500))).await?;
    let locks = Locker::new(RedisStore::from_url(&server.url()).await?);
    let store = RedisStore::from_url(&server.url()).await?;
    Ok(vec![
        by_hand("raw, same scripts", same.clone(), link.clone()),
        Side::new("`Locker`", move |task, pairs| {
            let locks = locks.clone();
            async move {
                let key = Key::new(&format!("locker-{task}"))?;
                for _ in 0..pairs {
                    through_locker(&locks, &key).await?;
                }
                Ok(())
            }
        }),
        on_store(store),
        by_hand("raw, same scripts, the driver's limit of 500 ms", same, limited),
        by_hand("raw, `SET NX PX` + compare and delete", least, link),
        peers::rslock(&[server]),
        peers::distributed_lock(&[server]).await?,
    ])
}

pub(crate) fn on_store<S: Store + Clone>(store: S) -> Side {
    Side::new("on the store", move |task, pairs| {
        let store = store.clone();
        async move {
            let key = Key::new(&format!("store-{task}"))?;
            for _ in 0..pairs {
                crate::subjects::through_store(&store, &key).await?;
            }
            Ok(())
        }
    })
}

fn by_hand(name: &str, scripts: Scripts, link: MultiplexedConnection) -> Side {
    let prefix = name.len();
    Side::new(name, move |task, pairs| {
        let (scripts, mut link) = (scripts.clone(), link.clone());
        async move {
            let key = format!("raw-{prefix}-{task}");
            for _ in 0..pairs {
                scripts.pair(&mut link, &key).await?;
            }
            Ok(())
        }
    })
}
