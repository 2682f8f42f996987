//! Tables that are found by name from anywhere in the process.

use std::any::{Any, TypeId};
use std::sync::{Arc, Weak};

use super::config::LocksConfig;
use super::error::LockError;
use super::local_locks::LocalLocks;
use super::registry::{Known, TableName, named};
use super::table::{LockKey, Table};

impl<K: LockKey> LocalLocks<K> {
    /// The table of this name, which any part of the process can open; made now if there is none.
    ///
    /// The names of different key types are apart. The table lives as long as one of its handles or guards.
    ///
    /// ```
    /// use leasehold_local::locks::{LocalLocks, Options};
    ///
    /// let here: LocalLocks<u64> = LocalLocks::named("orders")?;
    /// let there: LocalLocks<u64> = LocalLocks::named("orders")?;
    /// let guard = here.try_acquire(7, &Options::new())?;
    /// assert!(there.try_acquire(7, &Options::new()).is_err());
    /// # Ok::<(), leasehold_local::locks::LockError>(())
    /// ```
    ///
    /// # Errors
    /// [`LockError::Invalid`] if it is open with another configuration.
    pub fn named(name: &str) -> Result<Self, LockError> {
        Self::named_with(name, LocksConfig::new(), |_| ())
    }

    /// The table of this name; made now by `config` if there is none, and then `on_init` is called with it once.
    ///
    /// `on_init` runs before anybody else gets the table, so it must not open a table by name itself.
    ///
    /// # Errors
    /// [`LockError::Invalid`] if a value of `config` is out of its range, or if the table is open with another
    /// configuration; the message names the difference.
    pub fn named_with(
        name: &str,
        config: LocksConfig,
        on_init: impl FnOnce(&Self),
    ) -> Result<Self, LockError> {
        config.check()?;
        let asked = config;
        // Declared before the registry is locked, because their drop locks it too, should `on_init` panic.
        let (table, locks);
        let mut all = named();
        let key = (TypeId::of::<K>(), name.to_owned());
        let open = all.get(&key).and_then(|known| Some((known.table.upgrade()?, known)));
        if let Some((Ok(table), known)) = open.map(|(table, known)| (table.downcast(), known)) {
            let (handle, config) = (known.handle.upgrade(), known.config.clone());
            if let Some(difference) = config.difference(&asked) {
                // The last user may have gone meanwhile, and its end needs the registry.
                drop(all);
                return Err(LockError::Invalid(
                    format!(
                        "the table {name:?} is open with another configuration: {difference}; open it with the same"
                    )
                    .into(),
                ));
            }
            let locks = match handle.map(Arc::downcast) {
                Some(Ok(handle)) => Self(handle),
                _ => Self::of_table(&table, config),
            };
            all.insert(key, Known::of(&locks));
            drop(all);
            return Ok(locks);
        }
        table = Arc::new(Table::new(&asked, Some(TableName(key.clone()))));
        locks = Self::of_table(&table, asked);
        on_init(&locks);
        all.insert(key, Known::of(&locks));
        drop(all);
        Ok(locks)
    }

    /// The name by which the table is found.
    pub fn name(&self) -> Option<&str> {
        self.table().name.as_ref().map(|name| name.0.1.as_str())
    }
}

impl Known {
    fn of<K: LockKey>(locks: &LocalLocks<K>) -> Self {
        let table: Weak<dyn Any + Send + Sync> = Arc::downgrade(locks.table()) as _;
        let handle: Weak<dyn Any + Send + Sync> = Arc::downgrade(&locks.0) as _;
        Self { table, handle, config: locks.0.config.clone() }
    }
}
