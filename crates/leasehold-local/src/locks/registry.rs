//! The names of the tables of this process.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};

use super::config::LocksConfig;
use super::per_process::PerProcess;

/// Not of the engine, so not of its `sync`: models use tables without a name.
static NAMED: PerProcess<Mutex<HashMap<Name, Known>>> = PerProcess::new();

/// The names of one key type are apart from those of others.
pub(super) type Name = (TypeId, String);

/// A table that has a name.
pub(super) struct Known {
    pub(super) table: Weak<dyn Any + Send + Sync>,
    pub(super) handle: Weak<dyn Any + Send + Sync>,
    pub(super) config: LocksConfig,
}

/// All names, locked.
pub(super) fn named() -> MutexGuard<'static, HashMap<Name, Known>> {
    NAMED.get().lock().unwrap_or_else(PoisonError::into_inner)
}

/// The name of a table. It is free again when the table ends.
#[derive(Debug)]
pub(super) struct TableName(pub(super) Name);

impl Drop for TableName {
    fn drop(&mut self) {
        let mut all = named();
        // Another table may have the name by now.
        if all.get(&self.0).is_some_and(|known| known.table.strong_count() == 0) {
            all.remove(&self.0);
        }
    }
}
