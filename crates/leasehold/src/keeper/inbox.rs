use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leasehold_core::BoxFuture;
use tokio::sync::Notify;

use super::Releasing;
use crate::call::Orphaned;

/// Work for the Keeper that somebody else left behind.
#[derive(Default)]
pub(super) struct Inbox {
    post: Mutex<Post>,
    unfinished: Arc<Unfinished>,
}

#[derive(Default)]
struct Post {
    calls: Calls,
    releases: Releases,
    listening: Vec<BoxFuture<'static, ()>>,
}

pub(super) type Calls = Vec<(Unfinishing, Orphaned)>;
pub(super) type Releases = Vec<(Unfinishing, Releasing)>;

#[derive(Default)]
struct Unfinished {
    count: Mutex<usize>,
    none: Notify,
}

/// One piece of work that is not finished; dropped when it is.
pub(super) struct Unfinishing(Arc<Unfinished>);

impl Inbox {
    pub(super) fn push_call(&self, call: Orphaned) {
        let unfinished = Unfinishing::one(&self.unfinished);
        self.post().calls.push((unfinished, call));
    }

    pub(super) fn push_release(&self, releasing: Releasing) {
        let unfinished = Unfinishing::one(&self.unfinished);
        self.post().releases.push((unfinished, releasing));
    }

    /// Takes back what a task that ended had not finished.
    pub(super) fn take_back(&self, releases: &mut Releases) {
        self.post().releases.append(releases);
    }

    /// Leaves a request to be listened to whose answer nothing depends on.
    pub(super) fn listen(&self, listening: BoxFuture<'static, ()>) {
        self.post().listening.push(listening);
    }

    pub(super) fn take(&self) -> (Calls, Releases, Vec<BoxFuture<'static, ()>>) {
        let post = std::mem::take(&mut *self.post());
        (post.calls, post.releases, post.listening)
    }

    pub(super) fn is_empty(&self) -> bool {
        let post = self.post();
        post.calls.is_empty() && post.releases.is_empty()
    }

    /// Ends when no work is left, neither here nor in progress.
    pub(super) async fn drained(&self) {
        loop {
            // It hears of every end from now on.
            let none = self.unfinished.none.notified();
            if *self.unfinished.count() == 0 {
                return;
            }
            none.await;
        }
    }

    fn post(&self) -> MutexGuard<'_, Post> {
        self.post.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Unfinished {
    fn count(&self) -> MutexGuard<'_, usize> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Unfinishing {
    fn one(of: &Arc<Unfinished>) -> Self {
        *of.count() += 1;
        Self(Arc::clone(of))
    }
}

impl Drop for Unfinishing {
    fn drop(&mut self) {
        let mut count = self.0.count();
        *count -= 1;
        if *count == 0 {
            self.0.none.notify_waiters();
        }
    }
}
