//! Connections that stall while the server and new connections are healthy.

use std::future::IntoFuture as _;
use std::time::Duration;

use futures_util::future::join_all;
use leasehold::{Event, Guard, Locker};
use leasehold_conformance::{Fault, Proxy};
use leasehold_testkit::in_time;

/// Leases of this term outlive the connections that they were acquired on, which are dead from one moment to the next:
/// those that are renewed together, and those that are renewed apart. They are also released and acquired again at once,
/// although the store's time-out is longer than this test waits.
pub(crate) async fn leases_outlive_dead_connections(url: &str, proxy: &Proxy, ttl: Duration) {
    let mut held = Vec::new();
    for apart in [false, true] {
        let locks = Locker::connect(url).await.unwrap();
        // As many connections as there may be.
        let warm = (0..8).map(|n| locks.lock(format!("warm{n}")).shared().into_future());
        for guard in join_all(warm).await {
            guard.unwrap().release().await.unwrap();
        }
        for n in 0..4 {
            let name = format!("{apart} {n}");
            let request = locks.lock(name.clone()).ttl(ttl);
            let guard = if apart { request.shared() } else { request }.await.unwrap();
            held.push((locks.clone(), name, guard));
        }
    }
    renewed(held.iter().map(|(_, _, guard)| guard), 1).await;
    proxy.set_present(Fault::BlackHole);
    renewed(held.iter().map(|(_, _, guard)| guard), 2).await;
    for (locks, name, guard) in held {
        in_time(guard.release()).await.unwrap();
        let again = in_time(locks.lock(name).into_future()).await.unwrap();
        in_time(again.release()).await.unwrap();
    }
}

/// Waits until each was renewed so often.
pub(crate) async fn renewed<'a>(guards: impl IntoIterator<Item = &'a Guard>, times: usize) {
    let each = guards.into_iter().map(async |guard| {
        let (mut events, mut left) = (guard.events(), times);
        while left > 0 {
            match in_time(events.next()).await {
                Some(Event::Renewed { .. }) => left -= 1,
                Some(Event::Failed(_)) => {}
                other => panic!("{:?}: {other:?}", guard.lease()),
            }
        }
    });
    join_all(each).await;
}
