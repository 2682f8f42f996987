//! MongoDB in tests.

pub mod mongo_lock;
