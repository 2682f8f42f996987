//! Leases in a collection of MongoDB, in the documents of the Go library mongo-lock, so that its clients exclude ours and are
//! excluded.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod change;
mod change_stream;
mod commands;
mod config;
mod document;
mod error;
mod health;
mod inner;
mod mongo_lock;
mod ops;
mod pipeline;
mod record;
mod schema;
mod server;
mod store;
mod wakeups;

pub use config::MongodbConfig;
pub use mongo_lock::{LockChanges, LockStatus, StatusFilter};
/// The driver.
pub use mongodb;
pub use store::MongodbStore;
