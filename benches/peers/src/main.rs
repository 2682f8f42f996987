//! Runs acquires and releases of `distributed-lock` on a server: `leasehold-peers postgres|mysql URL`. For each line `TASKS PAIRS`
//! of its input it prints how many nanoseconds so many tasks took for so many pairs each, every task with a key of its
//! own.

use std::error::Error;
use std::io::{self, BufRead as _, Write as _};
use std::sync::Arc;
use std::time::Instant;

use distributed_lock_core::traits::{DistributedLock as _, LockHandle as _, LockProvider};
use distributed_lock_mysql::MySqlLockProvider;
use distributed_lock_postgres::PostgresLockProvider;
use sqlx::mysql::MySqlPoolOptions;
use sqlx::postgres::PgPoolOptions;
use tokio::task::JoinSet;

type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// As many connections as the pool of plain statements has.
const POOL: u32 = 64;

#[tokio::main]
async fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["postgres", url] => {
            let pool = PgPoolOptions::new().max_connections(POOL).connect(url).await?;
            serve(PostgresLockProvider::builder().pool(pool).build().await?).await
        }
        ["mysql", url] => {
            let pool = MySqlPoolOptions::new().max_connections(POOL).connect(url).await?;
            serve(MySqlLockProvider::builder().pool(pool).build().await?).await
        }
        _ => Err("give postgres or mysql, and a URL".into()),
    }
}

async fn serve<P: LockProvider + 'static>(provider: P) -> Outcome {
    let provider = Arc::new(provider);
    for line in io::stdin().lock().lines() {
        let line = line?;
        let (tasks, pairs) = line.split_once(' ').ok_or("give TASKS PAIRS")?;
        let (tasks, pairs): (usize, usize) = (tasks.parse()?, pairs.parse()?);
        let start = Instant::now();
        let mut set = JoinSet::new();
        for task in 0..tasks {
            let provider = Arc::clone(&provider);
            set.spawn(async move {
                let lock = provider.create_lock(&format!("k{task}"));
                for _ in 0..pairs {
                    let handle = lock.try_acquire().await?;
                    handle.ok_or("a free lock was not acquired")?.release().await?;
                }
                Outcome::Ok(())
            });
        }
        while let Some(done) = set.join_next().await {
            done??;
        }
        println!("{}", start.elapsed().as_nanos());
        io::stdout().flush()?;
    }
    Ok(())
}
