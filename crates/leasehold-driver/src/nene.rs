//! The table of the PHP library Nene DistributedLock, which its clients and ours share: one row for each lock, with the
//! holder's name and the end of its term in whole seconds of UTC.
//!
//! A PHP client reads a row and overwrites it without a look at what has changed since, by its own host's clock. So a
//! lease ends for its holder before its row does, and a row is taken over only some time after its end. After taking a row
//! over, the client re-reads it.

mod config;
mod listing;
mod rows;
mod rules;
mod server;
mod table;

pub use config::NeneConfig;
pub use rows::{Found, NeneRow, NeneRows, OVERWRITTEN, Page, Statements, Value, lacks_privilege};
pub use server::{NeneServer, NeneServerConfig};
pub use table::NeneTable;

/// Format, rules, privileges and hazards of the store in the PHP library's table.
#[doc = include_str!("../NENE.md")]
pub mod manual {}
