//! Hints from a change stream.

use leasehold_core::{Key, Result, Wakeups};

/// Who waits for which key.
#[derive(Debug, Default)]
pub(crate) struct Watch;

impl Watch {
    pub(crate) async fn subscribe(&self, _: &[Key]) -> Result<Wakeups> {
        Ok(Wakeups::none())
    }
}
