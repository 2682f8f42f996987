//! The records in a server, as listings and purges read them.

use leasehold_core::{Cursor, ErrorKind, Filter, Key, Record, Result};

use crate::inner::Inner;
use crate::page::Position;
use crate::{scripts, trace};

/// How many keys of the server one step of a scan reads.
const STEP: u64 = 500;
/// How many steps one listing or purge takes before it returns what it has.
pub(crate) const STEPS: usize = 128;

impl Inner {
    /// The records of the named keys, in the order of keys and ids.
    pub(crate) async fn look_up(&self, keys: &[Key]) -> Result<Vec<Record>> {
        let mut keys = keys.to_vec();
        keys.sort_unstable();
        keys.dedup();
        let found = self
            .chunks(&keys, |key| self.names([key]), |keys| self.look_up_some(keys), Err)
            .await?;
        let mut records = Vec::new();
        for of_key in found {
            records.extend(of_key?);
        }
        records.sort_by_cached_key(Cursor::after);
        Ok(records)
    }

    async fn look_up_some(&self, keys: Vec<&Key>) -> Result<Vec<Result<Vec<Record>>>> {
        let names = self.names(keys.iter().copied())?;
        self.reader().listed(&keys, self.run(&scripts::LIST, &names, &[]).await?)
    }

    /// One step of a scan: its position, where it continues, and its records in the order of keys and ids.
    pub(crate) async fn scan(
        &self,
        at: Position,
        filter: &Filter,
    ) -> Result<(Position, Option<Position>, Vec<Record>)> {
        let names = &self.names;
        let pattern = names.pattern(filter.key_prefix());
        let prefix = names.prefix().to_owned();
        let arguments = |from: u64| vec![from.into(), pattern.into(), STEP.into(), prefix.into()];
        let (reply, at) = self.servers.scan(at, arguments).await?;
        let (next, found) = self.reader().scanned(|name| names.key(name), reply)?;
        let mut records = Vec::new();
        for (key, of_key) in found {
            match of_key {
                Ok(of_key) => records.extend(of_key),
                // It may have been listed neither where it was nor where it is moved to.
                Err(error) if error.kind() == ErrorKind::Unavailable => return Err(error),
                // One damaged key hides no other.
                Err(error) => trace::not_listed(&key, &error),
            }
        }
        records.sort_by_cached_key(Cursor::after);
        let next = self.servers.after(at.clone(), next);
        Ok((at, next, records))
    }
}
