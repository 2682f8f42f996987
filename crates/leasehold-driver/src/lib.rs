//! What Leasehold's crates with a runtime share: clocks on tokio's timers, the parser of store URLs, the combiner of
//! requests, and hints for waiters.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod clock;
mod combiner;
#[cfg(any(feature = "legacy", feature = "sql"))]
mod deadline;
mod hints;
#[cfg(feature = "legacy")]
pub mod legacy;
mod patience;
#[cfg(feature = "sql")]
pub mod sql;
mod url;

pub use clock::{SystemClock, TokioClock, is_beside_paused_time};
pub use combiner::{Combine, Combiner, Turn};
#[cfg(any(feature = "legacy", feature = "sql"))]
pub use deadline::Deadline;
pub use hints::Hinter;
pub use patience::patience;
pub use url::{Place, StoreUrl};
