//! Subscriptions.

use std::sync::atomic::{AtomicU64, Ordering};

use leasehold_core::{Key, Result, Wakeups};
use leasehold_driver::Hinter;

use crate::listeners::Listener;
use crate::servers::Servers;

/// Hints for `keys`, each with its channel, from the moment that this ends.
pub(crate) async fn subscribe(servers: &Servers, keys: Vec<(Key, String)>) -> Result<Wakeups> {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let number = LAST.fetch_add(1, Ordering::Relaxed);
    let channels: Vec<String> = keys.iter().map(|(_, channel)| channel.clone()).collect();
    let left = servers.clone();
    let (hinter, wakeups) = Hinter::new(move || left.leave(number, &channels));
    let listeners = keys
        .into_iter()
        .map(|(key, channel)| (channel, Listener { number, key, hinter: hinter.clone() }));
    servers.listen(listeners.collect()).await?;
    Ok(wakeups)
}
