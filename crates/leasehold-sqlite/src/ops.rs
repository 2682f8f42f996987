//! One file for each operation: load what is named, let the core decide, write what it changed.

mod acquire;
mod evict;
mod list;
mod release;
mod renew;
