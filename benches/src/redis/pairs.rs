//! Uncontended acquire and release; each task has its own key.

use std::sync::Arc;
use std::time::Duration;

use leasehold::store::Store;
use leasehold::{Key, Locker, Result};
use leasehold_redis::RedisStore;
use leasehold_redis::redis::{self, aio::MultiplexedConnection};

use super::raw::{self, Forms, Scripts};
use super::{LATENCY, peers};
use crate::measure::{self, float, or_few, ratio};
use crate::processor;
use crate::sides::{self, Amount, Side};
use crate::subjects::{self, Keys, through_locker};
use leasehold_testkit::redis::Server;

const LEAST: &str = "raw, `SET NX PX` + compare and delete";

/// Tasks, the pairs of each, and rounds.
const TASKS: [(usize, usize, usize); 4] = [(1, 64, 101), (16, 32, 41), (64, 16, 41), (256, 8, 21)];

/// How many pairs `INFO commandstats` counts.
const STATED: usize = or_few(10_000, 10);

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
    for (tasks, pairs, rounds) in TASKS {
        sides::rows(&sides, Amount { tasks, pairs, rounds }).await?;
    }
    println!();
    Ok(())
}

/// Measures keys that are used once.
pub(crate) async fn fresh(server: &Server) -> Result<()> {
    println!("## Acquire and release of a key that is used once (`fresh`)\n");
    println!("Each key is a random number.\n");
    let link = raw::connect(&server.url()).await?;
    let least = Scripts::load(&mut link.clone(), Forms::Least).await?;
    let by_hand = Side::new(LEAST, move |task, pairs| {
        let (scripts, mut link) = (least.clone(), link.clone());
        async move {
            for _ in 0..pairs {
                scripts.pair(&mut link, &Keys::Fresh.of(task)).await?;
            }
            Ok(())
        }
    });
    let store = Arc::new(RedisStore::connect(&server.url()).await?);
    let sides = [vec![by_hand], subjects::sides(&store, Keys::Fresh)].concat();
    sides::head();
    for (tasks, pairs, rounds) in TASKS {
        sides::rows(&sides, Amount { tasks, pairs, rounds }).await?;
    }
    println!();
    Ok(())
}

/// Measures what a pair costs the server.
pub(crate) async fn processor(server: &Server) -> Result<()> {
    let mut link = raw::connect(&server.url()).await?;
    let least = Scripts::load(&mut link, Forms::Least).await?;
    let mut sides = vec![by_hand(LEAST, least, link.clone())];
    sides.extend(same_scripts(&server.url()).await?);
    processor::run(server, 40_000, &[1, 64], &sides).await?;
    println!(
        "By `INFO commandstats`, without the parsing of requests and the writing of replies, with one task:\n"
    );
    println!("| | µs per pair | as a multiple of the first |");
    println!("|---|---|---|");
    let mut first = None;
    for side in &sides {
        raw::send(&mut link, redis::cmd("CONFIG").arg("RESETSTAT")).await?;
        side.time(1, STATED).await?;
        let outer: &[_] = if side.name == LEAST { &["set", "evalsha"] } else { &["evalsha"] };
        let micros = raw::statistics(&mut link, outer, "usec").await?;
        let each = Duration::from_micros(micros).div_f64(float(STATED));
        let multiple = ratio(each, *first.get_or_insert(each));
        println!("| {} | {} | {multiple:.2} |", side.name, measure::micros(each));
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
        by_hand(LEAST, least, link),
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
