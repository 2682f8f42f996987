//! Renewal of many leases by one process.

use std::future::IntoFuture as _;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use leasehold::store::Store;
use leasehold::{Error, Event, Events, Guard, Key, Locker, Result};
use leasehold_conformance::Proxy;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::measure::{micros, now, or_few, percentile};
use crate::subjects::{TTL, through_store};

/// Leases of one `Locker`.
pub(crate) const LEASES: usize = or_few(10_000, 100);
/// Observed rounds.
pub(crate) const ROUNDS: usize = or_few(3, 1);

/// Acquires and releases a key, and states when each pair began and how long it took.
pub(crate) async fn pair_after_pair(store: impl Store, samples: Samples) -> Result<()> {
    let key = Key::new("another")?;
    loop {
        let start = now();
        through_store(&store, &key).await?;
        if samples.send((start, now() - start)).is_err() {
            return Ok(());
        }
    }
}

/// The columns of [`Held::round`].
pub(crate) const COLUMNS: &str =
    "exchanges | from the first to the last lease, ms | others p50, µs | others worst, µs |";

/// Where another client states when each of its operations began and how long it took.
pub(crate) type Samples = mpsc::UnboundedSender<(Duration, Duration)>;

/// Leases that a `Locker` renews through a proxy.
pub(crate) struct Held {
    proxy: Proxy,
    guards: Vec<Guard>,
    events: Vec<Events>,
}

impl Held {
    /// Leases on the server at this address, in the store that `open` finds behind the proxy.
    pub(crate) async fn open<S: Store>(
        server: SocketAddr,
        open: impl AsyncFnOnce(&Proxy) -> Result<S>,
    ) -> Result<Self> {
        let proxy = Proxy::before(server)
            .await
            .map_err(|e| Error::unexpected(format!("the proxy failed ({e})")))?;
        let locks = Locker::new(open(&proxy).await?);
        let mut guards = Vec::with_capacity(LEASES);
        for hundred in 0..LEASES / 100 {
            let mut taken = JoinSet::new();
            for n in 0..100 {
                let key = format!("lease-{hundred}-{n}");
                taken.spawn(locks.lock(key.as_str()).ttl(or_few(TTL, TTL / 10)).into_future());
            }
            guards.extend(taken.join_all().await.into_iter().collect::<Result<Vec<_>>>()?);
        }
        let events = guards.iter().map(Guard::events).collect();
        Ok(Self { proxy, guards, events })
    }

    /// Waits until all are renewed once, while another client operates, and describes it in [`COLUMNS`].
    pub(crate) async fn round<F: Future<Output: Send> + Send + 'static>(
        &mut self,
        other: impl FnOnce(Samples) -> F,
    ) -> String {
        let exchanges = self.proxy.exchanges();
        let (operations, mut samples) = mpsc::unbounded_channel();
        let mut others = JoinSet::new();
        others.spawn(other(operations));
        let mut first = None;
        let renewals = self.events.iter_mut().map(|of_one| async {
            while !matches!(of_one.next().await, Some(Event::Renewed { .. }) | None) {}
        });
        let mut renewals: FuturesUnordered<_> = renewals.collect();
        while renewals.next().await.is_some() {
            first.get_or_insert_with(now);
        }
        drop(renewals);
        let last = now();
        let first = first.unwrap_or(last);
        // It ends after a whole pair, and leaves no lease.
        samples.close();
        others.join_all().await;
        let mut during = Vec::new();
        while let Some((start, took)) = samples.recv().await {
            if start + took >= first && start <= last {
                during.push(took);
            }
        }
        format!(
            "{} | {:.0} | {} | {} |",
            self.proxy.exchanges() - exchanges,
            (last - first).as_secs_f64() * 1e3,
            micros(percentile(&mut during, 50)),
            micros(percentile(&mut during, 100)),
        )
    }

    /// Fails unless all are held.
    pub(crate) fn check(&self) -> Result<()> {
        self.guards.iter().try_for_each(Guard::ensure_held)
    }
}
