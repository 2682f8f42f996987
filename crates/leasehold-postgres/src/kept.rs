//! What is kept of a caller's pool.

use std::sync::{Mutex, MutexGuard, PoisonError};

use deadpool_postgres::Object;
use tokio::sync::Semaphore;

/// The connections of a caller's pool that never go back to it, so that its other users cannot take them all.
#[derive(Debug)]
pub(crate) struct Kept {
    most: usize,
    idle: Mutex<Vec<Object>>,
    /// As many permits as are idle.
    count: Semaphore,
}

impl Kept {
    pub(crate) fn at_most(most: usize) -> Self {
        Self { most, idle: Mutex::default(), count: Semaphore::new(0) }
    }

    /// One, when it is idle.
    pub(crate) async fn take(&self) -> Option<Object> {
        self.count.acquire().await.ok()?.forget();
        self.idle().pop()
    }

    /// Gives one back; to the pool if there are enough here.
    pub(crate) fn give(&self, client: Object) {
        let mut idle = self.idle();
        if idle.len() < self.most {
            idle.push(client);
            self.count.add_permits(1);
        }
    }

    /// Closes those that are idle.
    pub(crate) fn clear(&self) {
        let idle = std::mem::take(&mut *self.idle());
        self.count.forget_permits(idle.len());
        idle.into_iter().for_each(|client| drop(Object::take(client)));
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Object>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
