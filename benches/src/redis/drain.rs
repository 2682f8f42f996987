//! Many processes that wait for one key, and take it one after the other.

use std::process::Stdio;
use std::time::Duration;

use leasehold::{Error, Locker, Result, Wait};
use leasehold_redis::RedisStore;
use tokio::process::Command;

use super::raw;
use crate::measure::{now, or_few};

const KEY: &str = "k";
/// What the processes send.
const SCRIPTS: &[&str] = &["evalsha", "eval"];

/// Waits for the key, holds it for a moment and ends.
pub(crate) async fn child(url: &str) -> Result<()> {
    let locks = Locker::new(RedisStore::connect(url).await?);
    let guard = locks.lock(KEY).wait(Wait::Forever).await?;
    guard.release().await?;
    Ok(())
}

/// Measures with 20 to 200 processes.
pub(crate) async fn run() -> Result<()> {
    println!("## Many processes drain one key\n");
    println!(
        "Each waits for the key, holds it for one exchange, and ends. Scripts of all processes per hand-over, those that \
         watch the connections included.\n"
    );
    println!("| processes | scripts per hand-over | a hand-over, ms |");
    println!("|---|---|---|");
    for count in [or_few(20, 2), or_few(50, 3), or_few(200, 4)] {
        row(count).await?;
    }
    println!();
    Ok(())
}

async fn row(count: u32) -> Result<()> {
    let server = super::start().await?;
    let mut link = raw::connect(&server.url()).await?;
    let locks = Locker::new(RedisStore::connect(&server.url()).await?);
    let guard = locks.lock(KEY).await?;
    let this = std::env::current_exe().map_err(failed)?;
    let mut processes = Vec::new();
    for _ in 0..count {
        let mut command = Command::new(&this);
        command.args(["child", "drain", &server.url()]).stdin(Stdio::null()).kill_on_drop(true);
        processes.push(command.spawn().map_err(failed)?);
    }
    while server.subscribers(&format!("lh:lock:{{{KEY}}}:{KEY}")).await != u64::from(count) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let before = raw::calls(&mut link, SCRIPTS).await?;
    let released = now();
    guard.release().await?;
    for mut process in processes {
        if !process.wait().await.map_err(failed)?.success() {
            return Err(Error::unexpected("a process of the benchmark did not get the key"));
        }
    }
    let took = (now() - released).as_secs_f64() * 1e3 / f64::from(count);
    let scripts = raw::calls(&mut link, SCRIPTS).await? - before;
    let each = f64::from(u32::try_from(scripts).unwrap_or(u32::MAX)) / f64::from(count);
    println!("| {count} | {each:.1} | {took:.1} |");
    Ok(())
}

fn failed(error: std::io::Error) -> Error {
    Error::unexpected("a process of the benchmark failed").with_source(error)
}
