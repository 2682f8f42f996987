//! The store on real servers.

mod foreign;
mod mongo_lock;
mod sides;
