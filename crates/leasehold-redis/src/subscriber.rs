//! The channels that a server notifies: changed one at a time, and restored after a connection was lost.

use std::sync::{Arc, Weak};
use std::time::Duration;

use leasehold_core::Result;
use tokio::runtime::Handle;

use crate::connection::{Connections, Inner};
use crate::trace;

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

impl Connections {
    /// Subscribes to these channels and waits for the server's confirmation.
    pub(crate) async fn listen(&self, channels: &[String]) -> Result<()> {
        self.exchange(async |connected| {
            let _turn = self.0.ordering.lock().await;
            connected.subscribe("SSUBSCRIBE", &self.0.listeners.heard(channels)).await
        })
        .await
    }

    /// Removes the listener of this number from these channels. Unsubscribes in the background from those without
    /// a listener.
    pub(crate) fn leave(&self, number: u64, channels: &[String]) {
        let unheard = self.0.listeners.leave(number, channels);
        if !unheard.is_empty() {
            self.stop_listening(unheard);
        }
    }

    fn stop_listening(&self, channels: Vec<String>) {
        // Without a runtime the connection has ended too.
        let Ok(runtime) = Handle::try_current() else { return };
        let this = self.clone();
        runtime.spawn(async move {
            let _turn = this.0.ordering.lock().await;
            let left = this.0.listeners.unheard(channels);
            let current = this.0.current();
            if let (false, Some(mut connected)) = (left.is_empty(), current) {
                // If it fails, hints arrive that nobody reads.
                let told = connected.subscribe("SUNSUBSCRIBE", &left);
                drop(tokio::time::timeout(this.0.options.timeout, told).await);
            }
        });
    }

    /// In the background, while anyone waits to be woken: connects and subscribes again to what was lost.
    pub(crate) fn heal(&self, lost: Vec<String>) {
        self.0.lost().extend(lost);
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(heal(Arc::downgrade(&self.0)));
        }
    }
}

async fn heal(inner: Weak<Inner>) {
    let mut pause = FIRST_PAUSE;
    loop {
        let Some(this) = inner.upgrade().map(Connections) else { return };
        let is_well = this.0.current().is_some() && this.0.lost().is_empty();
        if is_well || this.listeners().is_empty() {
            return;
        }
        // The task that holds it looks again afterwards.
        let Ok(_turn) = Arc::clone(&this.0.healing).try_lock_owned() else { return };
        let lost: Vec<_> = this.0.lost().drain().collect();
        match this.listen(&lost).await {
            // Anything may have happened meanwhile.
            Ok(()) => this.listeners().hint_at(&lost),
            Err(error) => {
                trace::no_wakeups(&error);
                this.0.lost().extend(lost);
                this.0.alarm();
            }
        }
        drop(this);
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}
