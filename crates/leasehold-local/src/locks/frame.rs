//! Which scopes run on the calling thread. A task's scope is entered at each poll, and so follows it through `.await`.

use std::any::Any;
use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::keys::Claims;
use super::nest::Nest;
use super::table::{LockKey, Table};

super::sync::thread_local! {
    // Not a constant: loom's threads need it made anew.
    #[allow(clippy::missing_const_for_thread_local)]
    static FRAMES: RefCell<Vec<Entered>> = RefCell::new(Vec::new());
}

/// A nest, and which of its scopes was entered.
type Entered = (Arc<dyn Any + Send + Sync>, u64);

/// Leaves the scope that it entered.
pub(super) struct Frame(());

impl Frame {
    pub(super) fn enter<K: LockKey>(nest: &Arc<Nest<K>>, scope: u64) -> Self {
        let nest: Arc<dyn Any + Send + Sync> = nest.clone();
        FRAMES.with(|frames| frames.borrow_mut().push((nest, scope)));
        Self(())
    }

    /// Polls a future inside a scope.
    pub(super) fn poll<K: LockKey, F: Future>(
        nest: &Arc<Nest<K>>,
        scope: u64,
        future: Pin<&mut F>,
        context: &mut Context<'_>,
    ) -> Poll<F::Output> {
        let _inside = Self::enter(nest, scope);
        future.poll(context)
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        // Dropped outside the borrow, because it may be the last of its scope.
        let left = FRAMES.with(|frames| frames.borrow_mut().pop());
        drop(left);
    }
}

/// The innermost scope of this table that runs on the thread.
pub(super) fn innermost<K: LockKey>(table: &Table<K>) -> Option<(Arc<Nest<K>>, u64)> {
    FRAMES.with(|frames| {
        frames.borrow().iter().rev().find_map(|(nest, scope)| {
            let nest = nest.clone().downcast::<Nest<K>>().ok()?;
            nest.is_of(table).then_some((nest, *scope))
        })
    })
}

/// True if a scope that runs on the thread holds a key of `claims`, or any key if they are the whole table.
pub(super) fn holds<K: LockKey>(table: &Table<K>, claims: &Claims<K>) -> bool {
    FRAMES.with(|frames| {
        let frames = frames.borrow();
        let nests = frames.iter().filter_map(|(nest, _)| nest.downcast_ref::<Nest<K>>());
        nests.filter(|nest| nest.is_of(table)).any(|nest| nest.holds_any(claims))
    })
}
