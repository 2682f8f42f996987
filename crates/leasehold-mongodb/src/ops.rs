//! One file for each operation.

mod acquire;
mod evict;
mod list;
mod release;
mod renew;

use leasehold_core::{Error, Key};

/// An error about the document of a key.
pub(crate) fn of_key(error: Error, key: &Key) -> Error {
    let message = format!("the document of {key:?} is damaged: {error}");
    Error::corrupt(message).with_effect(error.effect())
}
