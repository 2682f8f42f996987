//! Measures Leasehold side by side with the same work done by hand. Plain output, Markdown tables.
//!
//! Run it with `cargo xtask bench`, `cargo xtask bench command`, `local`, `redis`, `redlock`, `sqlite`, `mariadb`, `postgres`,
//! `mongodb` or `spanner`; and any of them on a slow disk with `cargo xtask bench slow-disk …`.
//! Figures are comparable within one run only: quote them as ratios.

mod command;
mod handover;
mod local;
mod measure;
mod mongodb;
mod processor;
mod redis;
mod redlock;
mod renewal;
mod several;
mod sides;
mod slow_disk;
mod spanner;
mod sql;
mod subjects;
mod uncontended;
mod waiting;

use leasehold::{Error, Result};

#[tokio::main]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => {
            println!("# Leasehold benchmarks\n");
            measure::print_machine(&[("SQLite", rusqlite::version())]);
            uncontended::run().await?;
            handover::run().await
        }
        ["command"] => command::run().await,
        ["local", ref parts @ ..] => local::run(parts).await,
        ["redis", ref parts @ ..] => redis::run(parts).await,
        ["mariadb", ref parts @ ..] => sql::mariadb(parts).await,
        ["mongodb", ref parts @ ..] => mongodb::run(parts).await,
        ["postgres", ref parts @ ..] => sql::postgres(parts).await,
        ["spanner", ref parts @ ..] => spanner::run(parts).await,
        ["sqlite", ref parts @ ..] => sql::sqlite(parts).await,
        ["slow-disk", ref others @ ..] => slow_disk::run(others),
        ["redlock"] => redlock::run().await,
        ["child", "memory", side, state] => local::child(side, state),
        ["child", "drain", url] => redis::child(url).await,
        ["child", "mongodb", url] => mongodb::child(url).await,
        ["child", way, path, role] => sql::processes::child(way, path, role).await,
        _ => Err(Error::invalid_input(
            "give nothing for the embedded stores; command; slow-disk and then any of the following for a disk that takes 2 ms longer to sync; local, with pairs, handover, memory or sweep for a part of it; redis, with pairs, fresh, processor, handover, drain, waiting, renewal or holders for a part of it; \
             redlock; sqlite, with pairs, fresh, keys or processes for a part of it; mariadb or postgres, with pairs, fresh, keys, processor, peers, handover (postgres), renewal, \
             purge or size for a part of it; spanner, with pairs, fresh, free, succession or claims for a part of it; or mongodb, with pairs, fresh, processor, standalone, three, refusal, handover, waiting, renewal, keys, \
             stall, holders or size for a part of it",
        )),
    }
}
