//! How long a name has no leader: after a crash, and after a resignation.

use std::time::Duration;

use leasehold::{Locker, Result, Wait};
use leasehold_testkit::mongodb::replica_set::ReplicaSet;
use leasehold_testkit::spanner::Emulator;
use leasehold_testkit::sql::SqlTestServer as _;
use leasehold_testkit::{mysql, postgres, redis};

use super::failed;
use crate::measure::{now, or_few, percentile};

/// Of every leader.
const TTL: Duration = Duration::from_secs(1);

/// How often a leader ends in each way.
const ROUNDS: usize = or_few(15, 1);

/// Measures every store.
pub(crate) async fn run() -> Result<()> {
    println!("## Successions, with leases of 1 s (`succession`)\n");
    println!(
        "A leader ends right after it was elected, while another process's candidate waits; {ROUNDS} times in each way. A store that \
         wakes no waiters is asked after pauses that grow to 1 s.\n"
    );
    println!(
        "| store | a free lock, ms | after a crash, p50, s | p90 | worst | after a resignation, p50, ms | p90 | worst |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    let emulator = Emulator::start().await.map_err(failed)?;
    let (redis, postgres) = (redis::Server::start(&[]).await, postgres::Server::start(&[]).await);
    let (redis, postgres) = (redis.map_err(failed)?, postgres.map_err(failed)?);
    let (mysql, set) = (mysql::Server::start(&[]).await, ReplicaSet::start(1).await);
    let (mysql, set) = (mysql.map_err(failed)?, set.map_err(failed)?);
    let folder = tempfile::tempdir().expect("a folder for a file");
    for (name, url) in [
        ("Cloud Spanner's emulator", emulator.url()),
        ("the same, spindle's table, duration 1 s", emulator.spindle_url()),
        ("PostgreSQL", postgres.url()),
        ("MariaDB", mysql.url()),
        ("Redis", redis.store_url()),
        ("MongoDB", format!("{}&skew=0", set.url())),
        ("SQLite", format!("sqlite:{}", folder.path().join("locks").display())),
        ("local", "local:".to_owned()),
    ] {
        row(name, &url).await?;
    }
    println!();
    Ok(())
}

async fn row(name: &str, url: &str) -> Result<()> {
    let (one, other) =
        (Locker::connect_unchecked(url).await?, Locker::connect_unchecked(url).await?);
    one.prepare().await?;
    let (mut free, mut crashes, mut resignations) = (Vec::new(), Vec::new(), Vec::new());
    // The first pair connects.
    for round in 0..=ROUNDS {
        for dies in [true, false] {
            let begun = now();
            let leader = one.lock("chief").ttl(TTL).wait(Wait::No).await?;
            let elected = now();
            let next = other.election("chief").ttl(TTL).campaign();
            let end = async {
                // The candidate has found the leader.
                tokio::time::sleep(TTL / 5).await;
                if dies {
                    drop(leader.detach())
                } else {
                    drop(leader.release().await?)
                }
                Ok(now())
            };
            let (next, ended): (_, Result<_>) = tokio::join!(next, end);
            let (next, ended, led) = (next?, ended?, now());
            next.resign().await?;
            if round == 0 {
                continue;
            }
            free.push(elected - begun);
            if dies {
                crashes.push(led - elected);
            } else {
                resignations.push(led.saturating_sub(ended));
            }
        }
    }
    let ms = |times: &mut [Duration], percent| percentile(times, percent).as_secs_f64() * 1_000.0;
    let s = |times: &mut [Duration], percent| percentile(times, percent).as_secs_f64();
    println!(
        "| {name} | {:.1} | {:.2} | {:.2} | {:.2} | {:.1} | {:.1} | {:.1} |",
        ms(&mut free, 50),
        s(&mut crashes, 50),
        s(&mut crashes, 90),
        s(&mut crashes, 100),
        ms(&mut resignations, 50),
        ms(&mut resignations, 90),
        ms(&mut resignations, 100),
    );
    Ok(())
}
