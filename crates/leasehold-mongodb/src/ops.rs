//! One file for each operation.

mod acquire;
mod evict;
mod list;
mod release;
mod renew;

use std::collections::HashSet;
use std::future::Future;

use futures_util::future::join_all;
use leasehold_core::{Error, Key, Result};
use leasehold_driver::outliving;

/// An error about the document of a key.
pub(crate) fn of_key(error: Error, key: &Key) -> Error {
    let message = format!("the document of {key:?} is damaged: {error}");
    Error::corrupt(message).with_effect(error.effect())
}

/// Carries out requests that name these keys: all at once, or one after the other if a key is named twice.
async fn carry_out<'a, T, F>(
    mut keys: impl Iterator<Item = &'a Key>,
    requests: impl Iterator<Item = F>,
) -> Vec<Result<T>>
where
    T: Send + 'static,
    F: Future<Output = Result<T>> + Send + 'static,
{
    let mut named = HashSet::new();
    if keys.all(|key| named.insert(key)) {
        return join_all(requests.map(outliving)).await;
    }
    let mut outcomes = Vec::new();
    for request in requests {
        outcomes.push(outliving(request).await);
    }
    outcomes
}
