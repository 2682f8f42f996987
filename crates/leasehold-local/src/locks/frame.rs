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
    static FRAMES: RefCell<Vec<Arc<dyn Any + Send + Sync>>> = RefCell::new(Vec::new());
}

/// Leaves the scope that it entered.
pub(super) struct Frame(());

impl Frame {
    pub(super) fn enter<K: LockKey>(nest: &Arc<Nest<K>>) -> Self {
        let nest: Arc<dyn Any + Send + Sync> = nest.clone();
        FRAMES.with(|frames| frames.borrow_mut().push(nest));
        Self(())
    }

    /// Polls a future inside a scope.
    pub(super) fn poll<K: LockKey, F: Future>(
        nest: &Arc<Nest<K>>,
        future: Pin<&mut F>,
        context: &mut Context<'_>,
    ) -> Poll<F::Output> {
        let _inside = Self::enter(nest);
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

/// True if a scope of this table runs on the thread.
pub(super) fn is_in_scope<K: LockKey>(table: &Table<K>) -> bool {
    any(table, |_| true)
}

/// True if a scope that runs on the thread holds a key of `claims`, or any key if they are the whole table.
pub(super) fn holds<K: LockKey>(table: &Table<K>, claims: &Claims<K>) -> bool {
    any(table, |nest| nest.holds_any(claims))
}

fn any<K: LockKey>(table: &Table<K>, is: impl Fn(&Nest<K>) -> bool) -> bool {
    FRAMES.with(|frames| {
        let frames = frames.borrow();
        let nests = frames.iter().filter_map(|frame| frame.downcast_ref::<Nest<K>>());
        nests.filter(|nest| nest.is_of(table)).any(is)
    })
}
