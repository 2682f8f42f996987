//! The records in a server, as listings and purges read them.

use leasehold_core::{Cursor, ErrorKind, Filter, Key, Record, Result, Unreadable};

use crate::connection::exchange::Request;
use crate::inner::Inner;
use crate::page::Position;
use crate::scripts;

/// How many keys of the server one step of a scan reads.
const STEP: u64 = 500;
/// How many steps one listing or purge takes before it returns what it has.
pub(crate) const STEPS: usize = 128;

impl Inner {
    /// The records of the named keys, in the order of keys and ids.
    pub(crate) async fn look_up(&self, keys: &[Key]) -> Result<Found> {
        let mut keys = keys.to_vec();
        keys.sort_unstable();
        keys.dedup();
        let found = self
            .chunks(&keys, |key| self.names([key]), |keys| self.look_up_some(keys), Err)
            .await?;
        // A key that is named, and may not be read, is no key of others.
        if let Some(Err(denied)) = found.iter().find(|of_key| is_denied(of_key)) {
            return Err(denied.clone());
        }
        let named = keys.iter().zip(found);
        Found::of(
            named.map(|(key, of_key)| of_key.map_err(|error| Unreadable::new(key.as_str(), error))),
        )
    }

    async fn look_up_some(&self, keys: Vec<&Key>) -> Result<Vec<Result<Vec<Record>>>> {
        let names = self.names(keys.iter().copied())?;
        self.reader().listed(&keys, self.run(&scripts::LIST, &names, &[], &Request::reads()).await?)
    }

    /// One step of a scan: its position, where it continues, and what it found.
    pub(crate) async fn scan(
        &self,
        at: Position,
        filter: &Filter,
    ) -> Result<(Position, Option<Position>, Found)> {
        let names = &self.names;
        let pattern = names.pattern(filter.key_prefix());
        let prefix = names.prefix().to_owned();
        let arguments = |from: u64| vec![from.into(), pattern.into(), STEP.into(), prefix.into()];
        let (reply, at) = self.servers.scan(at, arguments).await?;
        let (next, found) = self.reader().scanned(|name| names.key(name), reply)?;
        let mut found = Found::of(found)?;
        found.unreadable.retain(|one| filter.matches_name(&one.name));
        let next = self.servers.after(at.clone(), next);
        Ok((at, next, found))
    }
}

fn is_denied<T>(of_key: &Result<T>) -> bool {
    matches!(of_key, Err(error) if error.kind() == ErrorKind::Denied)
}

/// What some keys have.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// In the order of keys and ids.
    pub(crate) records: Vec<Record>,
    pub(crate) unreadable: Vec<Unreadable>,
}

impl Found {
    /// One damaged key hides no other.
    fn of(keys: impl IntoIterator<Item = Result<Vec<Record>, Unreadable>>) -> Result<Self> {
        let mut found = Self::default();
        for of_key in keys {
            match of_key {
                Ok(records) => found.records.extend(records),
                // It may have been listed neither where it was nor where it is moved to.
                Err(Unreadable { error, .. }) if error.kind() == ErrorKind::Unavailable => {
                    return Err(error);
                }
                Err(unreadable) => found.unreadable.push(unreadable),
            }
        }
        found.records.sort_by_cached_key(Cursor::after);
        Ok(found)
    }
}
