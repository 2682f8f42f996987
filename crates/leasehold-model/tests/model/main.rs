//! Models of the quorum and of a lease on one store, searched state by state.
//!
//! The nodes are the code's own `Table`, and the code's own `tally` makes the quorum's decisions; only the
//! network, time and the bookkeeping of clients belong to the model. Each rule that the design needs has a
//! negative twin: the same model without that rule, in which a promise must be broken. docs/models.md states what is
//! modelled, and how far.
//!
//! ```sh
//! cargo test -p leasehold-model
//! LEASEHOLD_MODEL=large cargo test --release -p leasehold-model
//! LEASEHOLD_MODEL_TRACE=1 cargo test -p leasehold-model -- one-id
//! ```

mod acts;
mod answers;
mod asks;
mod breaker;
mod client;
mod leasing;
mod models;
mod node;
mod promises;
mod rules;
mod search;
mod world;

use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use libtest_mimic::{Arguments, Failed, Trial};

use crate::models::{Expected, Named, all};
use crate::search::{Found, search};

/// A search that takes longer has failed.
const LIMIT: Duration = Duration::from_secs(600);
const LIMIT_OF_LARGE: Duration = Duration::from_secs(4 * 3_600);

type Rows = Arc<Mutex<Vec<(usize, String)>>>;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let large = match std::env::var("LEASEHOLD_MODEL").as_deref() {
        Err(_) | Ok("" | "small") => false,
        Ok("large") => true,
        Ok(other) => {
            eprintln!("LEASEHOLD_MODEL is {other:?}; it must be small or large");
            return ExitCode::FAILURE;
        }
    };
    let limit = if large { LIMIT_OF_LARGE } else { LIMIT };
    let rows = Rows::default();
    let trials = all(large).into_iter().enumerate().map(|(nth, model)| {
        let rows = Arc::clone(&rows);
        Trial::test(model.name, move || {
            let found = search(&model, limit);
            let mut rows = rows.lock().unwrap_or_else(PoisonError::into_inner);
            rows.push((nth, row(&model, &found)));
            judge(&model, &found)
        })
    });
    let conclusion = libtest_mimic::run(&arguments, trials.collect());
    let mut rows = std::mem::take(&mut *rows.lock().unwrap_or_else(PoisonError::into_inner));
    if !rows.is_empty() {
        rows.sort_unstable();
        println!(
            "{:<32} {:>10} {:>6} {:>9} {:>8}  broken",
            "model", "states", "depth", "complete", "time"
        );
        rows.iter().for_each(|(_, row)| println!("{row}"));
    }
    conclusion.exit_code()
}

fn row(model: &Named, found: &Found) -> String {
    let broken = found.broken.as_ref().map_or_else(
        || "nothing".to_owned(),
        |(promise, steps)| format!("{promise} in {} steps", steps.len()),
    );
    format!(
        "{:<32} {:>10} {:>6} {:>9} {:>6.1} s  {broken}",
        model.name,
        found.states,
        found.depth,
        if found.complete { "yes" } else { "no" },
        found.took.as_secs_f64(),
    )
}

fn judge(model: &Named, found: &Found) -> Result<(), Failed> {
    let trace = |steps: &[String]| steps.join("\n  ");
    if let Some((_, steps)) = &found.broken {
        if std::env::var_os("LEASEHOLD_MODEL_TRACE").is_some() {
            println!("{}:\n  {}", model.name, trace(steps));
        }
    }
    match (&model.expected, &found.broken) {
        (Expected::Holds(_), Some((promise, steps))) => {
            Err(format!("broken: {promise}\n  {}", trace(steps)).into())
        }
        (Expected::Holds(_), None) if !found.complete => {
            Err(format!("not every state was seen within {:?}", found.took).into())
        }
        (Expected::Holds(events), None) => {
            let missing: Vec<_> = events.iter().filter(|e| !found.seen.contains(e)).collect();
            if missing.is_empty() {
                return Ok(());
            }
            Err(format!("it shows nothing, for these never happen: {missing:?}").into())
        }
        (Expected::Breaks(promise), Some((broken, _))) if promise == broken => Ok(()),
        (Expected::Breaks(promise), broken) => {
            let instead = broken.as_ref().map_or("nothing", |(promise, _)| promise);
            Err(format!("without the rule {promise:?} must break, not {instead:?}").into())
        }
    }
}
