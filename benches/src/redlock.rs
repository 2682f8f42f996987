//! A quorum of Redis servers against the majority of them, and against other crates.

use std::time::Duration;

use leasehold::{Key, Locker, QuorumConfig, Result};
use leasehold_redis::RedisStore;
use leasehold_redis::redis::aio::MultiplexedConnection;
use tokio::task::JoinSet;

use crate::measure;
use crate::redis::raw::{self, Forms, Scripts};
use crate::redis::{self, peers};
use crate::sides::{self, Amount, Side};
use crate::subjects::through_locker;
use leasehold_testkit::redis::{DURABLE, Server};

/// Measures 3 and 5 nodes, all working and with one that hangs.
pub(crate) async fn run() -> Result<()> {
    println!("# Redlock\n");
    let server = redis::start().await?;
    measure::print_machine(&[
        ("Redis", &redis::version(&server).await?),
        ("redis (the driver)", measure::version("redis")),
        ("rslock", measure::version("rslock")),
        ("distributed-lock-redis", measure::version("distributed-lock-redis")),
        ("fred (its driver)", measure::version("fred")),
    ]);
    println!(
        "Uncontended acquire + release; each task has its own key. The first row is the limit: the store's own \
         scripts by raw calls to all nodes at once, until a majority has answered. All sides take turns; figures are \
         medians of all rounds, ratios are within a round. Every node writes durably (`appendfsync always`), as the \
         quorum requires of a node without a quarantine. `distributed-lock-redis` is left out where a node hangs: \
         with 5 nodes it was refused what it had just released, until that expired.\n"
    );
    println!("{}", peers::LACKS);
    for count in [3, 5] {
        let mut servers = vec![];
        for _ in 0..count {
            servers.push(Server::start(DURABLE).await.map_err(redis::failed)?);
        }
        let servers: Vec<&Server> = servers.iter().collect();
        println!("## {count} nodes\n");
        let sides = sides(&servers).await?;
        sides::head();
        for (tasks, pairs, rounds) in [(1, 8, 61), (16, 8, 31), (64, 4, 21)] {
            sides::rows(&sides, Amount { tasks, pairs, rounds }).await?;
        }
        println!("\n## {count} nodes, one of which hangs\n");
        servers[0].pause();
        sides::head();
        // With five nodes the last peer is refused what it has just released, until its own lock expires.
        let sides = &sides[..sides.len() - 1];
        for (tasks, pairs, rounds) in [(1, 4, 7), (16, 2, 7), (64, 2, 7)] {
            sides::rows(sides, Amount { tasks, pairs, rounds }).await?;
        }
        servers[0].resume();
        println!();
    }
    Ok(())
}

async fn sides(servers: &[&Server]) -> Result<Vec<Side>> {
    // A busy machine must not end the run.
    let mut config = QuorumConfig::new().node_timeout(Duration::from_secs(5));
    for (at, server) in servers.iter().enumerate() {
        config = config.node(format!("node-{at}"), RedisStore::connect(&server.store_url()).await?);
    }
    let locks = Locker::new(config.build()?);
    Ok(vec![
        majority(servers).await?,
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
        peers::rslock(servers),
        peers::distributed_lock(servers).await?,
    ])
}

/// The same scripts on all nodes, until a majority answers.
async fn majority(servers: &[&Server]) -> Result<Side> {
    let mut nodes: Vec<(MultiplexedConnection, Scripts)> = Vec::new();
    for server in servers {
        let mut link = raw::connect(&server.url()).await?;
        let scripts = Scripts::load(&mut link, Forms::Same).await?;
        nodes.push((link, scripts));
    }
    Ok(Side::new("raw, a majority", move |task, pairs| {
        let nodes = nodes.clone();
        async move {
            let key = format!("raw-{task}");
            for _ in 0..pairs {
                let id = leasehold::LeaseId::mint()?.to_string();
                for acquires in [true, false] {
                    let mut asked = JoinSet::new();
                    for (link, scripts) in &nodes {
                        let mut link = link.clone();
                        let command = if acquires {
                            scripts.acquire(&key, &id)
                        } else {
                            scripts.release(&key, &id)
                        };
                        asked.spawn(async move { raw::send(&mut link, &command).await });
                    }
                    for _ in 0..nodes.len() / 2 + 1 {
                        let answer = asked.join_next().await.expect("all nodes were asked");
                        answer.expect("a task of the benchmark does not panic")?;
                    }
                    asked.detach_all();
                }
            }
            Ok(())
        }
    }))
}
