//! `leasehold init`.

use leasehold::Locker;
use serde::Serialize;

use super::session::on;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output;
use crate::store::Choice;

#[derive(Debug, Serialize)]
struct Prepared {
    store: &'static str,
    level: String,
    schema: Option<u32>,
    hazards: Vec<String>,
}

/// Creates what the store needs, and reports its level.
pub(crate) async fn init(store: &Choice, json: bool) -> Result<Exit, Failure> {
    let prepare = async |locks: &Locker| {
        locks.prepare().await?;
        Ok((locks.check().await?, locks.capabilities().name))
    };
    let (health, name) = on(store.open(), prepare).await?;
    let prepared = Prepared {
        store: name,
        level: super::doctor::level(&health),
        schema: health.schema,
        hazards: health.hazards,
    };
    if json {
        output::json(&prepared)?;
    } else {
        output::line(&format!("the store {} is ready: {}", prepared.store, prepared.level))?;
        for hazard in prepared.hazards {
            output::line(&format!("hazard: {hazard}"))?;
        }
    }
    Ok(Exit::SUCCESS)
}

/// Prints the statements that [`init`] would run.
pub(crate) fn print_schema(store: &Choice, json: bool) -> Result<Exit, Failure> {
    let sql = Locker::schema_sql(&store.url()?)?;
    if json {
        output::json(&serde_json::json!({ "sql": sql }))?;
    } else {
        output::line(sql.trim_end())?;
    }
    Ok(Exit::SUCCESS)
}
