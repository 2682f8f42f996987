//! Cloud Spanner's emulator: the store in both formats against the driver's own transactions, successions, and old claim rows of
//! spindle's table.

mod claims;
mod free;
mod raw;
mod succession;

use std::sync::Arc;

use leasehold::store::Store as _;
use leasehold::{Error, Result, SpannerStore, SpindleStore};
use leasehold_testkit::spanner::Emulator;

use crate::measure;
use crate::sides::{Amount, Side, head, rows};
use crate::subjects::{self, Keys};

/// Measures these parts, or all.
pub(crate) async fn run(parts: &[&str]) -> Result<()> {
    println!("# Cloud Spanner's emulator\n");
    measure::print_machine(&[(
        "google-cloud-spanner (the driver)",
        measure::version("google-cloud-spanner"),
    )]);
    let wanted = |part| parts.is_empty() || parts.contains(&part);
    if wanted("pairs") {
        pairs().await?;
    }
    if wanted("fresh") {
        fresh().await?;
    }
    if wanted("free") {
        free::run().await?;
    }
    if wanted("succession") {
        succession::run().await?;
    }
    if wanted("claims") {
        claims::run().await?;
    }
    Ok(())
}

async fn pairs() -> Result<()> {
    println!("## Acquire and release of an uncontended key (`pairs`)\n");
    println!(
        "The first two rows are pairs of the driver's read-write transactions: each reads the rows of a key with Spanner's clock, locks \
         them, and commits mutations of them. Each of the first four rows has a table of its own. One task, for the emulator runs one \
         transaction at a time.\n"
    );
    let emulator = Emulator::start().await.map_err(failed)?;
    let spindle = SpindleStore::connect(&emulator.spindle_url().replace("=1s", "=60s")).await?;
    let mut sides = each_on_a_table(&emulator, Keys::Known).await?;
    sides.insert(1, raw::least(&emulator).await?);
    let of_spindle = subjects::sides(&Arc::new(spindle), Keys::Known);
    sides.extend(of_spindle.into_iter().map(|mut side| {
        side.name += ", spindle's table";
        side
    }));
    head();
    rows(&sides, Amount { tasks: 1, pairs: 100, rounds: 9 }).await?;
    println!();
    Ok(())
}

async fn fresh() -> Result<()> {
    println!("## Keys used once (`fresh`)\n");
    println!(
        "As above. Each table grows by a row with each pair, and the emulator reads the whole table.\n"
    );
    let emulator = Emulator::start().await.map_err(failed)?;
    let sides = each_on_a_table(&emulator, Keys::Fresh).await?;
    head();
    rows(&sides, Amount { tasks: 1, pairs: 100, rounds: 9 }).await?;
    println!();
    Ok(())
}

/// The driver, the store and a `Locker`, each on a table of its own: the emulator reads the whole table, with rows that were deleted.
async fn each_on_a_table(emulator: &Emulator, keys: Keys) -> Result<Vec<Side>> {
    let mut sides = vec![raw::whole(emulator, keys).await?];
    for (at, table) in ["of_store", "of_locker"].into_iter().enumerate() {
        let store = native(emulator, table).await?;
        sides.push(subjects::sides(&store, keys).swap_remove(at));
    }
    Ok(sides)
}

/// The store, on a new table of this name.
async fn native(emulator: &Emulator, table: &str) -> Result<Arc<SpannerStore>> {
    let store = SpannerStore::connect(&format!("{}&table={table}", emulator.url())).await?;
    store.prepare().await?;
    Ok(Arc::new(store))
}

/// Converts a failure of the test tools.
fn failed(failure: leasehold_conformance::Failure) -> Error {
    Error::unexpected(format!("an emulator of the benchmark failed ({failure})"))
}
