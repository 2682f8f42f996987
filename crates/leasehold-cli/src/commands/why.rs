//! `leasehold why`.

use leasehold::Key;
use leasehold::inspect::Record;
use nix::unistd::gethostname;
use serde::Serialize;

use super::session::on;
use crate::args::WhyArgs;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::holder::Holding;
use crate::output;
use crate::process::Watched;
use crate::record::{RecordJson, duration, leases, mode};
use crate::store::Choice;

#[derive(Debug, Serialize)]
struct Why<'a> {
    key: &'a str,
    held: bool,
    holders: Vec<Holder<'a>>,
}

#[derive(Debug, Serialize)]
struct Holder<'a> {
    #[serde(flatten)]
    record: RecordJson<'a>,
    process: Option<&'static str>,
}

/// Shows all that is known of the holders of keys; the exit code states whether one of them is held.
pub(crate) async fn why(args: WhyArgs, store: &Choice, json: bool) -> Result<Exit, Failure> {
    let look = async |locks: &leasehold::Locker| {
        let mut found = Vec::new();
        for key in &args.keys {
            found.push((key, leases(locks.status(key).await?)));
        }
        Ok(found)
    };
    let found = on(store.open_existing(), look).await?;
    let host = gethostname().ok().and_then(|name| name.into_string().ok());
    for (key, records) in &found {
        let is_here = |record: &Record| host.is_some() && record.note.host() == host.as_deref();
        let process = |record: &Record| record.note.pid().filter(|_| is_here(record)).map(state);
        match json {
            true => {
                let holder = |record| Holder { process: process(record), record: record.into() };
                let holders = records.iter().map(holder).collect();
                output::json(&Why { key: key.as_str(), held: !records.is_empty(), holders })?;
            }
            false => show(key, records, process)?,
        }
    }
    let is_held = found.iter().any(|(_, records)| !records.is_empty());
    Ok(if is_held { Exit::SUCCESS } else { Exit::NOT_HELD })
}

/// Whether a process of this machine is there.
fn state(pid: u32) -> &'static str {
    match Watched::find(pid) {
        Ok(_) => "running",
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => "gone",
        Err(_) => "unknown",
    }
}

fn show(
    key: &Key,
    records: &[Record],
    process: impl Fn(&Record) -> Option<&'static str>,
) -> Result<(), Failure> {
    if records.is_empty() {
        output::line(&format!("{key:?} is free"))?;
    }
    for record in records {
        output::line(&format!("{key:?} is {}", Holding::of(record)))?;
        let rows = [
            ("mode", Some(mode(record).to_owned())),
            ("lease", record.id.as_ref().map(ToString::to_string)),
            ("token", record.token.map(|token| token.to_string())),
            ("group", record.group.as_ref().map(ToString::to_string)),
            ("renewed", record.renewed.map(|ago| format!("{} ago", duration(ago)))),
            ("process", process(record).map(|state| format!("{state}, on this machine"))),
        ];
        for (name, value) in rows {
            if let Some(value) = value {
                output::line(&format!("  {:9}{value}", format!("{name}:")))?;
            }
        }
    }
    Ok(())
}
