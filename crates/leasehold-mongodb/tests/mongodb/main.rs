//! The store on real servers.

mod mongo_lock;
