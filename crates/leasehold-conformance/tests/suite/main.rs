//! The suite itself: what it finds, and the tools that tests of stores start with.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking, in their helpers too")]

mod document;
mod endings;
mod planted;
mod process;
mod proxy;
mod proxy_http2;
