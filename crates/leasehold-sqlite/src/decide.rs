use std::collections::BTreeSet;

use leasehold_core::{Key, Now, Result, Table};

use crate::rows::Rows;

/// Lets the core decide about the rows of these keys, inside an immediate transaction (C2, C8).
pub(crate) fn decide<'a, T>(
    rows: &Rows<'_>,
    keys: impl IntoIterator<Item = &'a Key>,
    apply: impl FnOnce(&mut Table, Now) -> Result<T>,
) -> Result<T> {
    let keys: BTreeSet<&Key> = keys.into_iter().collect();
    let before = rows.load(&keys)?;
    let mut table = before.clone();
    let reply = apply(&mut table, rows.now)?;
    rows.save(&keys, &before, &table)?;
    Ok(reply)
}
