//! One file for each operation: what it asks of the server, and how the answer is read.

mod acquire;
mod evict;
mod list;
mod release;
mod renew;
