//! Subscriptions.

use leasehold_core::{Key, Result, Wakeups};
use leasehold_driver::Listener;

use crate::inner::Inner;

impl Inner {
    /// Hints for `keys`, from the moment that this ends.
    pub(crate) async fn subscribe(&self, keys: &[Key]) -> Result<Wakeups> {
        let channels = keys.iter().map(|key| Ok(self.names.of(key)?.metadata().to_owned()));
        let channels: Vec<_> = channels.collect::<Result<_>>()?;
        let (left, left_channels) = (self.servers.clone(), channels.clone());
        let leave = move |subscription| left.leave(subscription, &left_channels);
        let (listeners, wakeups) = Listener::subscribe(keys, leave);
        self.servers.listen(channels.into_iter().zip(listeners).collect()).await?;
        Ok(wakeups)
    }
}
