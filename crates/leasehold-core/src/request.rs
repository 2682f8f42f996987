//! What a store is asked. Requests are borrowed by the store, so that a retry sends the same one.

mod acquire;
mod evict;
mod list;
mod release;
mod renew;

pub use acquire::AcquireRequest;
pub use evict::{EvictRequest, EvictScope, EvictTarget};
pub use list::{Cursor, ListRequest};
pub use release::{ReleaseEntry, ReleaseRequest};
pub use renew::{RenewEntry, RenewRequest};

use crate::{Capabilities, Claims, Error, Mode, Result, Ttl};

/// A request, or what it asks for, whose admissibility can be judged before any I/O; see
/// [`Capabilities::admit`](crate::Capabilities::admit).
pub trait Request: sealed::Sealed {
    #[doc(hidden)]
    fn check(&self, can: &Capabilities) -> Result<()>;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::AcquireRequest {}
    impl Sealed for super::RenewRequest {}
    impl Sealed for super::RenewEntry {}
    impl Sealed for super::ReleaseRequest {}
    impl Sealed for super::ReleaseEntry {}
    impl Sealed for super::ListRequest {}
    impl Sealed for super::EvictRequest {}
    impl Sealed for crate::Claims {}
    impl Sealed for crate::Ttl {}
}

/// The most entries of one `RenewRequest` or `ReleaseRequest`, and the most records of one `ListReply` or `EvictReply`.
pub const MAX_ENTRIES: usize = 1_000;

fn check_entries(what: &str, count: usize) -> Result<()> {
    if (1..=MAX_ENTRIES).contains(&count) {
        return Ok(());
    }
    Err(Error::invalid_input(format!(
        "a {what} names {count} leases; it must name 1 to {MAX_ENTRIES}"
    )))
}

fn check_limit(limit: usize) -> Result<()> {
    if (1..=MAX_ENTRIES).contains(&limit) {
        return Ok(());
    }
    Err(Error::invalid_input(format!("the limit is {limit}; it must be 1 to {MAX_ENTRIES}")))
}

impl Request for Claims {
    fn check(&self, can: &Capabilities) -> Result<()> {
        can.check_keys(self.keys(), self.len())?;
        for claim in self {
            match claim.mode {
                Mode::Shared { .. } if !can.shared => {
                    return Err(can.lacks("shared locks"));
                }
                Mode::Shared { max: Some(_) } if !can.shared_limit => {
                    return Err(can.lacks("limit on shared holders"));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

impl Request for Ttl {
    fn check(&self, can: &Capabilities) -> Result<()> {
        match self.duration() {
            Some(term) => can.check_term(term),
            None if can.never => Ok(()),
            None => Err(can.lacks("leases without end")),
        }
    }
}
