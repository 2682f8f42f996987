//! What Leasehold's crates with a runtime share: clocks on tokio's timers, and the parser of store URLs.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod clock;
mod url;

pub use clock::{SystemClock, TokioClock};
pub use url::StoreUrl;
