//! The statements with their values, and how their replies are read.

pub(crate) mod acquire;
pub(crate) mod evict;
pub(crate) mod list;
pub(crate) mod release;
pub(crate) mod renew;
