use std::collections::BTreeSet;

use leasehold_core::{Key, Now, Result, Table};

use crate::database::Database;
use crate::limit::Limit;

/// Runs the core's decision in one immediate transaction (C2, C8).
pub(crate) fn decide<'a, T>(
    database: &Database,
    limit: Limit,
    keys: impl IntoIterator<Item = &'a Key>,
    apply: impl FnOnce(&mut Table, Now) -> Result<T>,
) -> Result<T> {
    let keys: BTreeSet<&Key> = keys.into_iter().collect();
    database.write(limit, |rows| {
        let before = rows.load(&keys)?;
        let mut table = before.clone();
        let reply = apply(&mut table, rows.now)?;
        rows.save(&keys, &before, &table)?;
        Ok(reply)
    })
}
