use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use super::sync::Padded;
use super::table::Table;

/// Keeps the table alive. Each shard has one, so that guards of different keys do not count references on the same
/// cache line.
pub(super) struct Anchor<K>(Arc<Padded<Arc<Table<K>>>>);

impl<K> Anchor<K> {
    pub(super) fn new(table: &Arc<Table<K>>) -> Self {
        Self(Arc::new(Padded(table.clone())))
    }

    pub(super) fn table(&self) -> &Arc<Table<K>> {
        &self.0.0
    }
}

impl<K> Clone for Anchor<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K> Deref for Anchor<K> {
    type Target = Table<K>;

    fn deref(&self) -> &Table<K> {
        &self.0.0
    }
}

impl<K> fmt::Debug for Anchor<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
