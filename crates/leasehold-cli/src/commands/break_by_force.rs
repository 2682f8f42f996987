//! `leasehold break`.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use leasehold::Locker;
use leasehold::inspect::{EvictRequest, EvictTarget, Filter, ListReply, Record};
use serde::Serialize;

use super::session::on;
use crate::args::BreakArgs;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output;
use crate::record::RecordJson;
use crate::store::Choice;

/// The most leases that one request may name.
const BATCH: usize = 1_000;

#[derive(Debug, Serialize)]
struct Broken<'a> {
    key: &'a str,
    removed: Vec<RecordJson<'a>>,
}

/// Ends exactly the live leases that it finds on one key.
pub(crate) async fn end_by_force(
    args: BreakArgs,
    store: &Choice,
    json: bool,
) -> Result<Exit, Failure> {
    let BreakArgs { key, lease, reason } = args;
    let mut filter = Filter::default().with_key(key.clone());
    if let Some(lease) = lease {
        filter = filter.with_lease(lease);
    }
    let evict = async |locks: &Locker| {
        let ListReply { records, mut unreadable, .. } = locks.list(filter).await?;
        // What cannot be read may be the lease that is meant.
        if records.is_empty() && !unreadable.is_empty() {
            return Err(unreadable.swap_remove(0).error.into());
        }
        let mut removed: Vec<Record> = Vec::new();
        for batch in leases(records).chunks(BATCH) {
            let targets = batch.iter().map(EvictTarget::of).collect();
            let evicted = locks.evict(&EvictRequest::exactly(targets, reason.clone())).await?;
            // A holder that released meanwhile was not broken.
            let is_gone = |record: &&Record| {
                let is_it = |gone: &EvictTarget| gone.key == record.key && gone.id == record.id;
                evicted.removed.iter().any(is_it)
            };
            removed.extend(batch.iter().filter(is_gone).cloned());
        }
        Ok(removed)
    };
    let removed = on(store.open_existing(), evict).await?;
    if json {
        let removed = removed.iter().map(RecordJson::from).collect();
        output::json(&Broken { key: key.as_str(), removed })?;
        return Ok(Exit::SUCCESS);
    }
    if removed.is_empty() {
        output::line(&format!("nothing was broken: no such lease holds {key:?}"))?;
    }
    for record in &removed {
        output::line(&format!("broken: {key:?}, held by {}", record.who()))?;
    }
    Ok(Exit::SUCCESS)
}

/// One record for each lease: on a quorum every node lists one. If the nodes disagree on its token, only the id
/// identifies it.
fn leases(records: Vec<Record>) -> Vec<Record> {
    let mut leases: Vec<Record> = Vec::new();
    let mut seen = BTreeMap::new();
    for mut record in records {
        record.node = None;
        match seen.entry((record.key.clone(), record.id.clone())) {
            Entry::Vacant(entry) => {
                entry.insert(leases.len());
                leases.push(record);
            }
            Entry::Occupied(entry) => {
                let known = &mut leases[*entry.get()];
                known.token = known.token.filter(|token| Some(*token) == record.token);
            }
        }
    }
    leases
}

#[cfg(test)]
mod tests {
    use leasehold::inspect::RecordTerm;
    use leasehold::{FencingToken, Key, LeaseId, Mode};

    use super::*;

    fn record(node: &str, id: &str, token: u64) -> Record {
        let term = RecordTerm::Expired(None);
        let mut record = Record::new(Key::new("job").unwrap(), Mode::Exclusive, term);
        record.id = Some(LeaseId::foreign(id.as_bytes()).unwrap());
        record.token = FencingToken::new(token).ok();
        record.node = Some(node.into());
        record
    }

    #[test]
    fn a_lease_is_named_once_and_with_its_token_if_the_nodes_agree() {
        let found = leases(vec![
            record("a", "one", 5),
            record("a", "other", 1),
            record("b", "one", 5),
            record("c", "one", 5),
            record("b", "other", 2),
            record("c", "other", 1),
        ]);
        let named: Vec<_> = found
            .iter()
            .map(|record| (record.id.as_ref().unwrap().to_string(), record.token))
            .collect();
        let agreed = FencingToken::new(5).ok();
        assert_eq!(named, [("one".to_owned(), agreed), ("other".to_owned(), None)]);
        assert!(found.iter().all(|record| record.node.is_none()));
    }
}
