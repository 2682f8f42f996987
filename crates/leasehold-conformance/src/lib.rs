//! The conformance suite of Leasehold's store seam: what judges whether a
//! [`Store`](leasehold_core::Store) keeps the contract.
//!
//! It has more than two hundred cases, named by the clauses of the contract (`c03_same_id_returns_the_same_token`),
//! and three programmes that look for what no case foresaw: an [`oracle`] that compares random requests with
//! the pure rules, a [`history`] of contending clients, and a counter that loses what is not done under the
//! lock. Everything runs on the store itself; the cases run again through `AnyStore`, once for all its forms.
//!
//! # Using it
//! A store's crate has a test without a harness, and names this crate among its `dev-dependencies`:
//!
//! ```toml
//! [[test]]
//! name = "conformance"
//! harness = false
//! ```
//!
//! The test, `tests/conformance.rs`, states how to open the store and how to look past it, and leaves the rest
//! to [`main`]:
//!
//! ```no_run
//! use std::process::ExitCode;
//!
//! use leasehold_conformance::{Backing, Observation, Result, Row, Subject, Time};
//! use leasehold_core::ManualClock;
//! # mod my_store {
//! #     use leasehold_core::{Key, LeaseId, ManualClock, Mode, Store};
//! #     pub struct MyDatabase;
//! #     pub struct MyRow { pub key: Key, pub id: LeaseId, pub live: bool }
//! #     impl MyDatabase {
//! #         pub async fn temporary(_: ManualClock) -> Result<Self, std::io::Error> { todo() }
//! #         pub async fn connect(&self) -> Result<super::MyStore, std::io::Error> { todo() }
//! #         pub async fn select_all(&self) -> Result<Vec<MyRow>, std::io::Error> { todo() }
//! #         pub async fn select_counters(&self) -> Result<Vec<(Key, u64)>, std::io::Error> { todo() }
//! #     }
//! #     fn todo<T>() -> Result<T, std::io::Error> { Err(std::io::Error::other("not run")) }
//! # }
//! # use my_store::MyDatabase;
//! # type MyStore = leasehold_core::AnyStore;
//!
//! struct MySubject;
//!
//! struct MyState {
//!     database: MyDatabase,
//!     clock: ManualClock,
//! }
//!
//! impl Subject for MySubject {
//!     type Backing = MyState;
//!
//!     fn name(&self) -> &'static str {
//!         "mine"
//!     }
//!
//!     // An empty state of its own for each case.
//!     async fn open(&self) -> Result<MyState> {
//!         let clock = ManualClock::new();
//!         Ok(MyState { database: MyDatabase::temporary(clock.clone()).await?, clock })
//!     }
//! }
//!
//! impl Backing for MyState {
//!     type Store = MyStore;
//!
//!     async fn client(&self) -> Result<MyStore> {
//!         Ok(self.database.connect().await?)
//!     }
//!
//!     fn time(&self) -> Time {
//!         Time::Manual(self.clock.clone())
//!     }
//!
//!     // Past the store: raw rows by raw statements.
//!     async fn observe(&self) -> Result<Observation> {
//!         let rows = self.database.select_all().await?.into_iter().map(|row| {
//!             Row::new(row.key, Some(row.id), leasehold_core::Mode::Exclusive, row.live)
//!         });
//!         Ok(Observation::new(rows.collect(), self.database.select_counters().await?))
//!     }
//! }
//!
//! fn main() -> ExitCode {
//!     leasehold_conformance::main(MySubject)
//! }
//! ```
//!
//! [Adding a store](https://github.com/leasehold/leasehold/blob/main/docs/adding-a-store.md) writes a whole store and runs it. [`Capabilities`](leasehold_core::Capabilities)
//! state what a store cannot do, and [`Subject::reports`] what it does not report; a store whose clock cannot be
//! moved has [`Time::Real`].
//!
//! # Stores behind a network
//! Their tests start real servers with [`Process`], which end with the test however that ends, and keep them in a [`Pool`]
//! from one case to the next. They let them read a [`ServerClock`] instead of the machine's, and stand a [`Proxy`] before
//! them, which delays, cuts, swallows and counts: with [`Backing::network`] the suite tries the faults of a network, and
//! counts exchanges (C1).
//!
//! # How a case ends
//! Passed; failed; *not applicable*, when the store reports that it cannot do this and was seen to refuse it; *cannot
//! here*, when the subject cannot be put to it by its nature; or *ignored*, when something that it needs is missing.
//! At the end the counts are printed, and each name that did not pass with its reason.
//!
//! # Environment
//! - `LEASEHOLD_REQUIRE`: names of stores, separated by commas; for them *ignored* is a failure.
//! - `LEASEHOLD_REPORT`: a directory; a run of everything leaves a file `<store>.json` there.
//! - `LEASEHOLD_SEED`: the seed of the oracle and the history, a number or `random`; 1 if it is not set.
//! - `LEASEHOLD_ORACLE_OPERATIONS`: how many operations the oracle compares, instead of what the subject states.
//!
//! # What it finds
//! The tests of this crate plant one bug at a time into a store that has none, about sixty in all, and name
//! the case that must fail for each. The checker of histories is tested with histories that break each of its
//! rules. A run in which nothing contended, or in which a kind of reply never came up, is a failure.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod attempt;
mod case;
mod cases;
mod client;
mod contend;
mod counter;
mod dropped;
mod ended;
mod erased;
mod failure;
mod fixture;
mod free_port;
mod harness;
pub mod history;
pub mod oracle;
mod pool;
mod process;
mod proxy;
mod random;
mod real_time;
mod report;
mod server_clock;
mod subject;
mod suite;

pub use dropped::dropped_after;
pub use ended::Ended;
pub use failure::{Failure, Result};
pub use free_port::free_port;
pub use harness::main;
pub use pool::{Pool, Pooled};
pub use process::{Process, unprivileged};
pub use proxy::{Fault, Proxy};
pub use report::Report;
pub use server_clock::ServerClock;
pub use subject::{
    Backing, Exchanges, Forgets, Network, Observation, Reports, Restarted, Row, Subject, Time,
    WallStep,
};
pub use suite::Suite;
