//! Leases in a collection of MongoDB, in the documents of the Go library mongo-lock.
