//! What the stores in SQL servers share: how requests travel together, how rows are read, and the steps of a purge. The
//! statements, and what a server's errors mean, are each store's own.

mod doubt;
mod entry;
mod lane;
mod leases;
mod old;
mod page;
mod position;
mod purge;
mod server;
mod stored;

pub use doubt::Doubt;
pub use entry::{Done, Entry, EntryKind, mode_conflict};
pub use leases::SqlLeases;
pub use old::{Old, Purge};
pub use position::Position;
pub use server::{SqlServer, locked, outliving};
pub use stored::Stored;
