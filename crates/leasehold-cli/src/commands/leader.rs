//! `leasehold leader`.

use leasehold::{LeadershipEvent, Record};
use serde::Serialize;

use crate::args::LeaderArgs;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output;
use crate::record::{RecordJson, duration, left};
use crate::store::Choice;

#[derive(Debug, Serialize)]
struct Led<'a> {
    name: &'a str,
    leader: Option<RecordJson<'a>>,
}

/// Shows the leader, once or at each change.
pub(crate) async fn leader(args: LeaderArgs, store: &Choice, json: bool) -> Result<Exit, Failure> {
    let LeaderArgs { name, watch } = args;
    let name = name.as_str();
    // An observer may come before the first candidate.
    let locks = if watch { store.open().await? } else { store.open_existing().await? };
    let election = locks.election(name);
    if !watch {
        show(name, election.leader().await?.as_ref(), json)?;
        return Ok(Exit::SUCCESS);
    }
    let mut transitions = election.observe()?;
    while let Some(transition) = transitions.next().await {
        let is_read = match transition {
            LeadershipEvent::Changed(leader) => show(name, leader.as_deref(), json)?,
            LeadershipEvent::Failed(error) => return Err(error.into()),
            // An observer is not a candidate.
            _ => true,
        };
        if !is_read {
            break;
        }
    }
    Ok(Exit::SUCCESS)
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
    let mut text = leader.who().to_string();
    if let Some(token) = leader.token {
        text += &format!(", token {token}");
    }
    if let Some(age) = leader.age {
        text += &format!(", for {}", duration(age));
    }
    text + &format!(", {} left", left(leader))
}
