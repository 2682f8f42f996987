//! `leasehold status`.

use serde::Serialize;

use super::session::on;
use crate::args::StatusArgs;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output;
use crate::record::{RecordJson, table};
use crate::store::Choice;

#[derive(Debug, Serialize)]
struct Status<'a> {
    key: &'a str,
    held: bool,
    records: Vec<RecordJson<'a>>,
}

/// Shows the holders of one key.
pub(crate) async fn status(args: StatusArgs, store: &Choice, json: bool) -> Result<Exit, Failure> {
    let key = args.key;
    let records = on(store.open_existing(), async |locks| Ok(locks.status(&key).await?)).await?;
    if json {
        output::json(&Status {
            key: key.as_str(),
            held: !records.is_empty(),
            records: records.iter().map(RecordJson::from).collect(),
        })?;
    } else if records.is_empty() {
        output::line(&format!("{key:?} is free"))?;
    } else {
        output::line(&table(&records))?;
    }
    Ok(Exit::SUCCESS)
}
