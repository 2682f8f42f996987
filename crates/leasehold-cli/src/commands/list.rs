//! `leasehold list`.

use std::io::{self, IsTerminal as _};
use std::time::Duration;

use leasehold::inspect::{Filter, ListReply, Record, Unreadable};
use leasehold::{Key, LeaseId, Locker};

use super::session::on;
use crate::args::ListArgs;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output;
use crate::record::{RecordJson, Width, table};
use crate::report::{Event, Reporter};
use crate::store::Choice;

/// Clears the terminal: the cursor goes to its first line, and what is below is erased.
const CLEAR: &str = "\u{1b}[H\u{1b}[J";

/// Lists leases by key, once or at each change.
pub(crate) async fn list(
    args: ListArgs,
    store: &Choice,
    json: bool,
    reporter: &Reporter,
) -> Result<Exit, Failure> {
    let ListArgs { filter, wide, watch } = args;
    let filter = filter.filter()?;
    let list = async |locks: &Locker| match watch {
        None => {
            let (records, unreadable) = listed(locks, &filter).await?;
            reporter.report_unreadable(unreadable);
            if records.is_empty() && !json && io::stdout().is_terminal() {
                return output::line("nothing is held").map(drop);
            }
            show(&records, wide, json).map(drop)
        }
        Some(pause) => watch_all(locks, &filter, wide, json, pause, reporter).await,
    };
    on(store.open_existing(), list).await?;
    Ok(Exit::SUCCESS)
}

/// Shows the list again and again until the reader has gone: on a terminal after each pause, elsewhere when another lease is in it.
async fn watch_all(
    locks: &Locker,
    filter: &Filter,
    wide: bool,
    json: bool,
    pause: Duration,
    reporter: &Reporter,
) -> Result<(), Failure> {
    let is_screen = !json && io::stdout().is_terminal();
    let mut shown: Option<Vec<(Key, Option<LeaseId>, bool)>> = None;
    let (mut left_out, mut is_told) = (Vec::new(), false);
    loop {
        let (records, unreadable) = match listed(locks, filter).await {
            Ok(listed) => listed,
            Err(error) if error.is_retryable() => {
                if !std::mem::replace(&mut is_told, true) {
                    reporter.report(&Event::StoreAwaited { failure: &error.into() });
                }
                tokio::time::sleep(pause).await;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        is_told = false;
        let now: Vec<_> =
            records.iter().map(|one| (one.key.clone(), one.id.clone(), one.kept)).collect();
        if is_screen || shown.as_ref() != Some(&now) {
            let title = if records.is_empty() { "nothing is held" } else { "" };
            let is_read = match (is_screen, json) {
                (true, _) if records.is_empty() => output::line(&format!("{CLEAR}{title}"))?,
                (true, _) => {
                    let table = table(&records, Width::of_stdout(wide));
                    output::line(&format!("{CLEAR}{table}"))?
                }
                (false, true) => {
                    output::json(&records.iter().map(RecordJson::from).collect::<Vec<_>>())?
                }
                (false, false) if records.is_empty() => output::line(title)?,
                (false, false) => show(&records, wide, false)?,
            };
            if !is_read {
                return Ok(());
            }
            shown = Some(now);
        }
        let names: Vec<_> = unreadable.iter().map(|one| one.name.clone()).collect();
        if is_screen || names != left_out {
            reporter.report_unreadable(unreadable);
            left_out = names;
        }
        tokio::time::sleep(pause).await;
    }
}

async fn listed(
    locks: &Locker,
    filter: &Filter,
) -> leasehold::Result<(Vec<Record>, Vec<Unreadable>)> {
    let ListReply { mut records, unreadable, .. } = locks.list(filter.clone()).await?;
    let place = |record: &Record| {
        (
            record.key.clone(),
            record.token,
            record.id.as_ref().map(ToString::to_string),
            record.node.clone(),
        )
    };
    records.sort_by_cached_key(place);
    Ok((records, unreadable))
}

/// Returns false if the reader has gone.
fn show(records: &[Record], wide: bool, json: bool) -> Result<bool, Failure> {
    if json {
        for record in records {
            if !output::json(&RecordJson::from(record))? {
                return Ok(false);
            }
        }
        return Ok(true);
    }
    if records.is_empty() {
        return Ok(true);
    }
    output::line(&table(records, Width::of_stdout(wide)))
}
