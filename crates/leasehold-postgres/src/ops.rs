//! One file for each operation: what it sends, and how it reads the reply.

pub(crate) mod acquire;
pub(crate) mod evict;
pub(crate) mod list;
pub(crate) mod release;
pub(crate) mod renew;
