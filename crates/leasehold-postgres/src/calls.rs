//! The statements about one lease, with their values, and how their replies are read.

pub(crate) mod acquire;
pub(crate) mod release;
pub(crate) mod renew;
