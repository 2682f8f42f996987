//! Subscriptions.

use std::sync::atomic::{AtomicU64, Ordering};

use leasehold_core::{Key, Result, Wakeups};
use leasehold_driver::Hinter;

use crate::inner::Inner;
use crate::listeners::Listener;

impl Inner {
    /// Hints for `keys`, from the moment that this ends.
    pub(crate) async fn subscribe(&self, keys: &[Key]) -> Result<Wakeups> {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        let channels = keys.iter().map(|key| Ok(self.names.of(key)?.channel()));
        let channels: Vec<_> = channels.collect::<Result<_>>()?;
        let (left, left_channels) = (self.servers.clone(), channels.clone());
        let (hinter, wakeups) = Hinter::new(move || left.leave(number, &left_channels));
        let listener = |key: &Key| Listener { number, key: key.clone(), hinter: hinter.clone() };
        let listeners = channels.into_iter().zip(keys.iter().map(listener));
        self.servers.listen(listeners.collect()).await?;
        Ok(wakeups)
    }
}
