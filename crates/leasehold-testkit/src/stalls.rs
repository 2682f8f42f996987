//! Connections that stall.

use std::time::Duration;

use futures_util::FutureExt as _;
use leasehold_conformance::{Fault, Proxy};
use leasehold_core::{Mode, ReleaseOutcome, Store};

use crate::requests::{acquire, granted, only, release};
use crate::{in_time, until};

/// An acquire is late on a connection that stalls: what others ask for goes past it, and its own release does not. The
/// store has a time-out of 6 s.
pub async fn an_acquire_that_is_late_is_not_passed_by_its_release(
    store: &impl Store,
    proxy: &Proxy,
) {
    granted(store.acquire(&acquire("warm", "w", Mode::Exclusive)).await);
    proxy.once(Fault::Delay(Duration::from_millis(2_500)));
    let before = proxy.exchanges();
    let (asks, ends) = (acquire("k", "a", Mode::Exclusive), release("k", "a"));
    let mut late = store.acquire(&asks).boxed();
    assert!((&mut late).now_or_never().is_none());
    until(async || proxy.exchanges() > before).await;
    let mut released = store.release(&ends).boxed();
    assert!((&mut released).now_or_never().is_none());
    granted(in_time(store.acquire(&acquire("other", "b", Mode::Exclusive))).await);
    assert!((&mut late).now_or_never().is_none(), "the other one waited for it");
    granted(in_time(late).await);
    let outcome = only(in_time(released).await.unwrap().leases);
    assert!(matches!(outcome, ReleaseOutcome::Released), "{outcome:?}");
    granted(in_time(store.acquire(&acquire("k", "c", Mode::Exclusive))).await);
}
