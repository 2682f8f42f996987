//! `leasehold leader`.

use leasehold::inspect::Record;
use leasehold::{LeadershipEvent, Locker};
use serde::Serialize;

use super::session::on;
use crate::args::LeaderArgs;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::holder::Holder;
use crate::output;
use crate::record::{RecordJson, duration, left};
use crate::report::{Event, Reporter};
use crate::store::Choice;

#[derive(Debug, Serialize)]
struct Led<'a> {
    name: &'a str,
    leader: Option<RecordJson<'a>>,
}

/// Shows the leader, once or at each change.
pub(crate) async fn leader(
    args: LeaderArgs,
    store: &Choice,
    json: bool,
    reporter: &Reporter,
) -> Result<Exit, Failure> {
    let LeaderArgs { name, watch } = args;
    let name = name.as_str();
    if !watch {
        let leader = async |locks: &Locker| Ok(locks.election(name).leader().await?);
        show(name, on(store.open_existing(), leader).await?.as_ref(), json)?;
        return Ok(Exit::SUCCESS);
    }
    // An observer may come before the first candidate.
    on(store.open(), async |locks| show_all(locks, name, json, reporter).await).await?;
    Ok(Exit::SUCCESS)
}

/// Shows the leader at each change, until the reader has gone.
async fn show_all(
    locks: &Locker,
    name: &str,
    json: bool,
    reporter: &Reporter,
) -> Result<(), Failure> {
    let mut transitions = locks.election(name).observe()?;
    while let Some(transition) = transitions.next().await {
        let is_read = match transition {
            LeadershipEvent::Changed(leader) => show(name, leader.as_deref(), json)?,
            LeadershipEvent::Unknown(error) => {
                reporter.report(&Event::LeaderUnknown { name, error: &error });
                true
            }
            LeadershipEvent::Failed(error) => return Err(error.into()),
            // An observer is not a candidate.
            _ => true,
        };
        if !is_read {
            break;
        }
    }
    Ok(())
}

/// Returns false if the reader has gone.
fn show(name: &str, leader: Option<&Record>, json: bool) -> Result<bool, Failure> {
    if json {
        return output::json(&Led { name, leader: leader.map(RecordJson::from) });
    }
    match leader {
        Some(leader) => output::line(&format!("{name:?} is led by {}", described(leader))),
        None => output::line(&format!("nobody leads {name:?}")),
    }
}

fn described(leader: &Record) -> String {
    let mut text = Holder(leader).to_string();
    if let Some(token) = leader.token {
        text += &format!(", token {token}");
    }
    if let Some(age) = leader.age {
        text += &format!(", for {}", duration(age));
    }
    text + &format!(", {} left", left(leader))
}
