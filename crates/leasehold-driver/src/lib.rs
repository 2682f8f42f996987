//! What Leasehold's crates with a runtime share: clocks on tokio's timers, and store URLs.

mod clock;
mod url;

pub use clock::{SystemClock, TokioClock};
pub use url::StoreUrl;
