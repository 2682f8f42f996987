//! The requests to a store. A store borrows them, so that a retry sends the same one.

mod acquire;
mod admission;
mod evict;
mod list;
mod release;
mod renew;
#[cfg(test)]
mod tests;

pub use acquire::AcquireRequest;
pub use admission::{MAX_ENTRIES, Request};
pub use evict::{EvictRequest, EvictScope, EvictTarget};
pub use list::{Cursor, ListRequest};
pub use release::{ReleaseEntry, ReleaseRequest};
pub use renew::{RenewEntry, RenewRequest};
