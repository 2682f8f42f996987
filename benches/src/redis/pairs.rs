//! Uncontended acquire and release; each task has its own key.

use std::time::Duration;

use leasehold::store::Store;
use leasehold::{Key, Locker, Result};
use leasehold_redis::RedisStore;
use leasehold_redis::redis::aio::MultiplexedConnection;

use super::raw::{self, Forms, Scripts};
use super::{LATENCY, peers};
use crate::sides::{self, Amount, Side};
use crate::subjects::through_locker;
use leasehold_testkit::redis::Server;

/// Measures all sides at every number of tasks.
pub(crate) async fn run(server: &Server) -> Result<()> {
    println!("## Uncontended acquire + release\n");
    println!(
        "The first row is raw calls of the driver with the store's own scripts, on one connection without time \
         limits. All sides take turns; figures are medians of all rounds, ratios are within a round.\n"
    );
    println!("{}", peers::LACKS);
    println!(
        "First behind a network: a proxy delays each message to and from the server by {} ms.\n",
        LATENCY.as_millis()
    );
    sides::head();
    let network = super::slow_network(server).await?;
    let far = same_scripts(&format!("redis://{}/", network.address())).await?;
    sides::rows(&far, Amount { tasks: 1, pairs: 4, rounds: 25 }).await?;
    println!(
        "\nThen with one thread, where no work moves between cores; then with a thread per core.\n"
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
    let url = server.url();
    let mut sides = same_scripts(&url).await?;
    // The driver's usual limit.
    let mut limited = raw::connected(&url, Some(Duration::from_millis(500))).await?;
    let same = Scripts::load(&mut limited, Forms::Same).await?;
    let mut link = raw::connect(&url).await?;
    let least = Scripts::load(&mut link, Forms::Least).await?;
    sides.extend([
        by_hand("raw, same scripts, the driver's limit of 500 ms", same, limited),
        by_hand("raw, `SET NX PX` + compare and delete", least, link),
        peers::rslock(&[server]),
        peers::distributed_lock(&[server]).await?,
    ]);
    Ok(sides)
}

async fn same_scripts(url: &str) -> Result<Vec<Side>> {
    let mut link = raw::connect(url).await?;
    let same = Scripts::load(&mut link, Forms::Same).await?;
    let locks = Locker::new(RedisStore::connect(url).await?);
    let store = RedisStore::connect(url).await?;
    Ok(vec![
        by_hand("raw, same scripts", same, link),
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
