//! Which channels a server tells us of: changed one after the other, and told anew when a connection was lost.

use std::sync::{Arc, Weak};
use std::time::Duration;

use leasehold_core::Result;
use tokio::runtime::Handle;

use crate::connection::{Connections, Inner};
use crate::trace;

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

impl Connections {
    /// Tells the server to tell us of these channels, and waits until it does.
    pub(crate) async fn listen(&self, channels: &[String]) -> Result<()> {
        self.exchange(async |connected| {
            let _turn = self.0.ordering.lock().await;
            connected.subscribe("SSUBSCRIBE", &self.0.listeners.heard(channels)).await
        })
        .await
    }

    /// The listener of this number hears of these channels no more. Of those that nobody listens to any more the server
    /// is told in the background.
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
                // If it fails, hints come that nobody reads.
                let told = connected.subscribe("SUNSUBSCRIBE", &left);
                drop(tokio::time::timeout(this.0.options.timeout, told).await);
            }
        });
    }

    /// In the background, as long as somebody waits to be woken: connects, and listens again to what is lost.
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
        // Whoever has the turn looks again after it.
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
