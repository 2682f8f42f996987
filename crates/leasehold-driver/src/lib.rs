//! What Leasehold's crates with a runtime share: clocks on tokio's timers, the parser of store URLs, deadlines, requests
//! that outlive their callers, and hints for waiters.
//!
//! Internal: any release may change it, and each crate of Leasehold pins one version (`=`). Programs depend on `leasehold`,
//! stores on `leasehold-core`.

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod batches;
mod clock;
mod deadline;
mod hints;
mod listeners;
#[cfg(feature = "nene")]
pub mod nene;
mod outliving;
mod patience;
mod url;

pub use clock::{Halfway, SystemClock, TokioClock, is_beside_paused_time};
pub use deadline::Deadline;
pub use hints::Hinter;
pub use listeners::{Listener, Listeners};
pub use outliving::outliving;
pub use patience::patience;
pub use url::{Place, StoreUrl, is_loopback};
