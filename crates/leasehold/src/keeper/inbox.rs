use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leasehold_core::BoxFuture;
use tokio::sync::Notify;

use super::Releasing;

/// Work for the Keeper that somebody else left behind.
#[derive(Default)]
pub(super) struct Inbox {
    post: Mutex<Post>,
    unfinished: Arc<Unfinished>,
}

#[derive(Default)]
struct Post {
    calls: Vec<(Unfinishing, BoxFuture<'static, Option<Releasing>>)>,
    releases: Vec<(Unfinishing, Releasing)>,
}

#[derive(Default)]
struct Unfinished {
    count: Mutex<usize>,
    none: Notify,
}

/// One piece of work that is not finished; dropped when it is.
pub(super) struct Unfinishing(Arc<Unfinished>);

/// What was in the inbox.
pub(super) type Calls = Vec<(Unfinishing, BoxFuture<'static, Option<Releasing>>)>;
pub(super) type Releases = Vec<(Unfinishing, Releasing)>;

impl Inbox {
    pub(super) fn push_call(&self, call: BoxFuture<'static, Option<Releasing>>) {
        let unfinished = Unfinishing::one(&self.unfinished);
        self.post().calls.push((unfinished, call));
    }

    pub(super) fn push_release(&self, releasing: Releasing) {
        let unfinished = Unfinishing::one(&self.unfinished);
        self.post().releases.push((unfinished, releasing));
    }

    pub(super) fn take(&self) -> (Calls, Releases) {
        let mut post = self.post();
        (std::mem::take(&mut post.calls), std::mem::take(&mut post.releases))
    }

    pub(super) fn is_empty(&self) -> bool {
        let post = self.post();
        post.calls.is_empty() && post.releases.is_empty()
    }

    /// Ends when no work is left, neither here nor in progress.
    pub(super) async fn drained(&self) {
        loop {
            let none = self.unfinished.none.notified();
            tokio::pin!(none);
            none.as_mut().enable();
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
