//! Operations of several exchanges with a server that is slow.

use std::time::Duration;

use futures_util::future::{FutureExt as _, join_all};
use leasehold_conformance::{Fault, Proxy};
use leasehold_core::{Effect, EvictRequest, EvictTarget, Mode, Store, Ttl};

use crate::requests::{acquire, granted, id, key, release, released, renew, renewed};
use crate::{LONG, fails_within};

/// Each exchange takes less than the limit, and two take more: one to look, and one to write.
pub async fn an_operation_of_two_exchanges_ends_in_time(
    store: &impl Store,
    proxy: &Proxy,
    limit: Duration,
) {
    // As many connections as there are operations.
    let held = ["a", "b", "c", "d"].map(|name| acquire(name, "ours", Mode::Exclusive));
    for acquired in join_all(held.iter().map(|request| store.acquire(request))).await {
        granted(acquired);
    }
    proxy.set(Fault::Delay(limit * 2 / 5));
    let new = acquire("new", "ours", Mode::Exclusive);
    let renewal = renew("a", "ours", Mode::Exclusive, Ttl::new(2 * LONG).unwrap());
    let end = release("b", "ours");
    let target = EvictTarget::new(key("c"), Some(id("ours")));
    let evict = EvictRequest::exactly(vec![target], None);
    let operations = [
        fails_within(limit, store.acquire(&new)).boxed(),
        fails_within(limit, renewed(store, &renewal)).boxed(),
        fails_within(limit, released(store, &end)).boxed(),
        fails_within(limit, store.evict(&evict)).boxed(),
    ];
    let errors = join_all(operations).await;
    // On a busy machine one may end before its write.
    assert!(errors.iter().any(|error| error.effect() == Effect::Unknown), "{errors:?}");
}
