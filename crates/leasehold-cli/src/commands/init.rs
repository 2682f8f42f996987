//! `leasehold init`.

use leasehold::Locker;
use serde::Serialize;

use super::doctor::{level, relies_on};
use super::session::on;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output;
use crate::store::{self, Choice};

#[derive(Debug, Serialize)]
struct Prepared {
    url: String,
    from: String,
    store: &'static str,
    level: String,
    relies_on: &'static str,
    schema: Option<u32>,
    hazards: Vec<String>,
}

/// Creates what the store needs, and reports which store it is and what it supports.
pub(crate) async fn init(store: &Choice, json: bool) -> Result<Exit, Failure> {
    let from = store.origin();
    let store = &store.resolved()?;
    let prepare = async |locks: &Locker| {
        locks.prepare().await?;
        Ok((locks.check().await?, locks.capabilities().name))
    };
    let (health, name) = on(store.open(), prepare).await?;
    let prepared = Prepared {
        url: store::shown(&store.url()?),
        from,
        store: name,
        level: level(&health),
        relies_on: relies_on(health.level),
        schema: health.schema,
        hazards: health.hazards,
    };
    if json {
        output::json(&prepared)?;
    } else {
        let Prepared { url, from, store, level, relies_on, hazards, .. } = prepared;
        output::line(&format!("the store {store} is ready: {url}, from {from}"))?;
        output::line(&format!("level:     {level}"))?;
        output::line(&format!("           {relies_on}"))?;
        for hazard in hazards {
            output::line(&format!("hazard:    {hazard}"))?;
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
