//! `leasehold break`.

use std::fmt;
use std::io::{self, BufRead as _, IsTerminal as _, Write as _};
use std::time::Duration;

use leasehold::inspect::{Filter, ListReply, Record};
use leasehold::store::{Clock as _, SystemClock};
use leasehold::{Key, Locker, Remaining};
use serde::Serialize;

use super::session::on;
use crate::args::BreakArgs;
use crate::eviction;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::holder::Holding;
use crate::output;
use crate::record::{RecordJson, duration, leases, longest_term};
use crate::store::Choice;

#[derive(Debug, Serialize)]
struct Broken<'a> {
    key: &'a str,
    removed: Vec<RecordJson<'a>>,
}

/// Ends exactly the live leases that it finds on the keys.
pub(crate) async fn end_by_force(
    args: BreakArgs,
    store: &Choice,
    json: bool,
) -> Result<Exit, Failure> {
    let BreakArgs { mut keys, glob, yes, wait, lease, reason } = args;
    let is_terminal = io::stdin().is_terminal() && io::stderr().is_terminal();
    if !yes && !is_terminal && (keys.len() > 1 || glob.is_some()) {
        return Err(Failure::usage(
            "several keys may be meant, and there is no terminal to ask on; give --yes",
        ));
    }
    let mut filter = match glob {
        Some(glob) => Filter::default().with_glob(&glob)?,
        None => Filter::default().with_keys(keys.clone()),
    };
    if let Some(lease) = lease {
        filter = filter.with_lease(lease);
    }
    let evict = async |locks: &Locker| {
        let ListReply { records, mut unreadable, .. } = locks.list(filter).await?;
        // What cannot be read may be the lease that is meant.
        if records.is_empty() && !unreadable.is_empty() {
            return Err(unreadable.swap_remove(0).error.into());
        }
        let found = leases(records);
        if is_terminal && !yes && !found.is_empty() && !is_wanted(&found)? {
            return Ok(None);
        }
        if wait && found.iter().any(|record| !record.kept && longest_term(record).is_none()) {
            return Err(Failure::usage(
                "nobody knows when the holder of one of these leases has ended: its term has no end, or the store does not know \
                 its length; break it without --wait",
            ));
        }
        let removed = eviction::evict(&found, reason.as_ref(), locks).await?;
        let broken_at = SystemClock::new().now();
        show(&mut keys, &removed, json)?;
        if wait {
            wait_for_ends(&removed, broken_at).await;
        }
        Ok(Some(removed.is_empty()))
    };
    Ok(match on(store.open_existing(), evict).await? {
        Some(false) => Exit::SUCCESS,
        Some(true) => Exit::NOT_HELD,
        None => Exit::NOT_ACQUIRED,
    })
}

/// Shows what was broken.
fn show(keys: &mut Vec<Key>, removed: &[Record], json: bool) -> Result<(), Failure> {
    for record in removed {
        if !keys.contains(&record.key) {
            keys.push(record.key.clone());
        }
    }
    for key in &*keys {
        let removed: Vec<_> = removed.iter().filter(|record| record.key == *key).collect();
        if json {
            let removed = removed.into_iter().map(RecordJson::from).collect();
            output::json(&Broken { key: key.as_str(), removed })?;
            continue;
        }
        if removed.is_empty() {
            output::line(&format!("nothing was broken: no such lease holds {key:?}"))?;
        }
        for record in removed {
            output::line(&format!("broken: {key:?}, {}{}", Holding::of(record), RunsOn(record)))?;
        }
    }
    if keys.is_empty() && !json {
        output::line("nothing was broken: no such lease is held")?;
    }
    Ok(())
}

/// Waits until the terms are over that the leases had when they were broken.
async fn wait_for_ends(removed: &[Record], broken_at: Duration) {
    let broken = removed.iter().filter(|record| !record.kept);
    let longest = broken.filter_map(longest_term).max().unwrap_or_default();
    SystemClock::new().sleep_until(broken_at.saturating_add(longest)).await;
}

/// Asks whether these leases must end.
fn is_wanted(found: &[Record]) -> Result<bool, Failure> {
    let ask = || {
        let mut terminal = io::stderr().lock();
        for record in found {
            writeln!(terminal, "{:?} is {}", record.key, Holding::of(record))?;
        }
        write!(terminal, "break {}? [y/N] ", if found.len() == 1 { "it" } else { "them all" })?;
        terminal.flush()?;
        let mut answer = String::new();
        io::stdin().lock().read_line(&mut answer)?;
        Ok(["y", "yes"].contains(&answer.trim().to_lowercase().as_str()))
    };
    ask().map_err(|error: io::Error| Failure::of_system("the terminal cannot be asked", &error))
}

/// How long the holder of a broken lease may run on.
struct RunsOn<'a>(&'a Record);

impl fmt::Display for RunsOn<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(record) = self;
        if record.kept {
            return Ok(());
        }
        f.write_str("; its holder runs on until its next renewal")?;
        let Remaining::For(left) = record.remaining() else { return Ok(()) };
        // Without a renewal it is at most a third of its term old; if it is older, it is not known when it was renewed.
        if let Some(since) = record.renewed.or(record.age.filter(|age| *age < left)) {
            let next = (left.saturating_add(since) / 3).saturating_sub(since);
            write!(f, ", within about {}", duration(next.min(left)))?;
        }
        let longest = longest_term(record).unwrap_or(left);
        write!(f, ", and for up to {} if it cannot reach the store", duration(longest))
    }
}
