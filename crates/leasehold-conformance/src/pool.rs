use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::Result;

/// Servers that are started once and used by one case after another: a server, or a set of servers with a common
/// clock. The user empties a server first. Clones share one pool.
pub struct Pool<S>(Arc<Mutex<Vec<S>>>);

/// A server from a [`Pool`]; dropping it returns the server.
pub struct Pooled<S> {
    server: Option<S>,
    pool: Pool<S>,
}

impl<S> Pool<S> {
    /// A pool without servers.
    pub fn new() -> Self {
        Self(Arc::default())
    }

    /// A free server, else the one that `start` starts.
    ///
    /// # Errors
    /// Those of `start`.
    pub async fn take(&self, start: impl Future<Output = Result<S>>) -> Result<Pooled<S>> {
        let idle = self.idle().pop();
        let server = match idle {
            Some(server) => server,
            None => start.await?,
        };
        Ok(Pooled { server: Some(server), pool: self.clone() })
    }

    fn idle(&self) -> MutexGuard<'_, Vec<S>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S> Default for Pool<S> {
    fn default() -> Self {
        Self::new()
    }
}

impl<S> Clone for Pool<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S> fmt::Debug for Pool<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("idle", &self.idle().len()).finish()
    }
}

impl<S> Deref for Pooled<S> {
    type Target = S;

    fn deref(&self) -> &S {
        self.server.as_ref().expect("it is given back when this is dropped")
    }
}

impl<S: fmt::Debug> fmt::Debug for Pooled<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<S> Drop for Pooled<S> {
    fn drop(&mut self) {
        let server = self.server.take();
        self.pool.idle().extend(server);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_returned_server_is_reused_before_another_is_started() {
        let pool = Pool::new();
        let first = pool.take(async { Ok(1) }).await.unwrap();
        let second = pool.take(async { Ok(2) }).await.unwrap();
        assert_eq!((*first, *second), (1, 2));
        drop(first);
        assert_eq!(*pool.take(async { Ok(3) }).await.unwrap(), 1);
    }
}
