//! Measures Leasehold side by side with the same work done by hand. Plain output, Markdown tables.
//!
//! Run it with `cargo xtask bench`. Figures are comparable within one run only: quote them as ratios.

mod handover;
mod measure;
mod subjects;
mod uncontended;

use leasehold::Result;

#[tokio::main]
async fn main() -> Result<()> {
    println!("# Leasehold benchmarks\n");
    measure::print_machine();
    uncontended::run().await?;
    handover::run().await
}
