//! The vocabulary, the store seam and the pure rules of Leasehold.
//!
//! This crate reads no clock, does no I/O and needs no runtime. It is what a store depends on, in the tree or
//! outside it. Users of locks want the crate `leasehold`.
//!
//! - Vocabulary: [`Key`], [`Mode`], [`Claims`], [`LeaseId`], [`Lease`], [`GroupName`], [`Note`], [`Ttl`],
//!   [`Remaining`], [`FencingToken`], [`Record`], [`Filter`].
//! - The seam: [`Store`], its requests ([`AcquireRequest`], [`RenewRequest`], [`ReleaseRequest`], [`ListRequest`],
//!   [`EvictRequest`]) and their replies; [`AnyStore`]; [`Capabilities`], [`Health`], [`Wakeups`]; [`Error`] with its
//!   [`Effect`].
//! - The pure core: [`table`] decides every request, [`tally`] what a quorum of stores answers, [`term`] how long
//!   a holder may rely on its lease, [`Wait`] and [`Backoff`] when to try again.
//! - [`Clock`], with [`ManualClock`] for tests.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod any_store;
mod backoff;
mod capabilities;
mod claim;
mod clock;
/// Every clause that code and rustdoc cite: C1 to C15 of stores, F1 to F15 of the front end.
#[doc = include_str!("../CONTRACT.md")]
pub mod contract {}
mod error;
mod filter;
mod group_name;
mod health;
mod invalid_value;
mod key;
mod lease;
mod lease_id;
mod lost_reason;
mod manual_clock;
mod mode;
mod note;
mod reason;
mod record;
mod remaining;
mod reply;
mod request;
#[cfg(feature = "serde")]
mod serialized;
mod store;
pub mod table;
pub mod tally;
pub mod term;
mod text;
mod token;
mod ttl;
mod wait;
mod wakeups;

// Only for the other crates of the workspace, whose pauses need jitter too.
#[doc(hidden)]
pub use backoff::Random;

pub use any_store::AnyStore;
pub use backoff::{Backoff, Exponential, Fixed, Jitter, Uniform};
pub use capabilities::{Capabilities, Feature};
pub use claim::{Claim, Claims};
pub use clock::{BoxFuture, Clock, Now};
pub use error::{
    Effect, Error, ErrorKind, NodeOutcome, NodeReport, NodeReports, Result, WaitCause, WaitReport,
};
pub use filter::{Expired, Filter};
pub use group_name::GroupName;
pub use health::{Health, Level};
pub use invalid_value::InvalidValue;
pub use key::Key;
pub use lease::Lease;
pub use lease_id::LeaseId;
pub use lost_reason::LostReason;
pub use manual_clock::ManualClock;
pub use mode::Mode;
pub use note::Note;
pub use reason::Reason;
pub use record::{Record, RecordTerm};
pub use remaining::Remaining;
pub use reply::{
    AcquireReply, EvictReply, Granted, ListReply, Page, RefusalReason, Refused, ReleaseOutcome,
    ReleaseReply, RenewOutcome, RenewReply, Unreadable, each_or_worst, worst,
};
pub use request::{
    AcquireRequest, Cursor, EvictRequest, EvictScope, EvictTarget, ListRequest, MAX_ENTRIES,
    ReleaseEntry, ReleaseRequest, RenewEntry, RenewRequest, Request,
};
pub use store::Store;
pub use table::Table;
pub use token::FencingToken;
pub use ttl::Ttl;
pub use wait::Wait;
pub use wakeups::Wakeups;
