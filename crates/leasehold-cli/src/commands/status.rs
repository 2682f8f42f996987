//! `leasehold status`.

use serde::Serialize;

use super::session::on;
use crate::args::StatusArgs;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output;
use crate::record::{RecordJson, Width, table};
use crate::store::Choice;

#[derive(Debug, Serialize)]
struct Status<'a> {
    key: &'a str,
    held: bool,
    records: Vec<RecordJson<'a>>,
}

/// Shows the holders of keys; the exit code states whether one of them is held.
pub(crate) async fn status(args: StatusArgs, store: &Choice, json: bool) -> Result<Exit, Failure> {
    let StatusArgs { keys, wide } = args;
    let look = async |locks: &leasehold::Locker| {
        let mut found = Vec::new();
        for key in &keys {
            found.push(locks.status(key).await?);
        }
        Ok(found)
    };
    let found = on(store.open_existing(), look).await?;
    let is_held = found.iter().any(|records| !records.is_empty());
    for (key, records) in keys.iter().zip(&found) {
        if json {
            output::json(&Status {
                key: key.as_str(),
                held: !records.is_empty(),
                records: records.iter().map(RecordJson::from).collect(),
            })?;
        } else if records.is_empty() {
            output::line(&format!("{key:?} is free"))?;
        }
    }
    if is_held && !json {
        output::line(&table(&found.concat(), Width::of_stdout(wide)))?;
    }
    Ok(if is_held { Exit::SUCCESS } else { Exit::NOT_HELD })
}
