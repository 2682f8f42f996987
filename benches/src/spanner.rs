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
use crate::sides::{Amount, head, rows};
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
         them, and commits mutations of them. One task, for the emulator runs one transaction at a time.\n"
    );
    let emulator = Emulator::start().await.map_err(failed)?;
    let native = SpannerStore::connect(&emulator.url()).await?;
    native.prepare().await?;
    let spindle = SpindleStore::connect(&emulator.spindle_url().replace("=1s", "=60s")).await?;
    let mut sides = vec![raw::whole(&emulator).await?, raw::least(&emulator).await?];
    let native = Arc::new(native);
    sides.extend(subjects::sides(&native, Keys::Known));
    sides.extend(subjects::sides(&native, Keys::Fresh).into_iter().map(|mut side| {
        side.name += ", keys used once";
        side
    }));
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

/// Converts a failure of the test tools.
fn failed(failure: leasehold_conformance::Failure) -> Error {
    Error::unexpected(format!("an emulator of the benchmark failed ({failure})"))
}
