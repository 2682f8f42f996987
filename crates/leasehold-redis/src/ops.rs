//! One file for each operation: what it sends to the server, and how it reads the reply.

mod acquire;
mod evict;
mod list;
mod release;
mod renew;
