//! Operations of a store whose server does not answer.

use std::fmt::Debug;
use std::future::Future;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt as _, join_all};
use leasehold_core::{
    Claims, Error, EvictRequest, Filter, ListRequest, Mode, RenewEntry, RenewRequest, Result,
    Store, Ttl,
};

use crate::requests::{acquire, evict, id, key};
use crate::{LONG, fails_within};

/// The failure of each kind of operation, which must come in time. All begin at once.
pub async fn fail_in_time(store: &impl Store, limit: Duration) -> Vec<(&'static str, Error)> {
    async fn one<T: Debug>(
        name: &'static str,
        limit: Duration,
        operation: impl Future<Output = Result<T>>,
    ) -> (&'static str, Error) {
        (name, fails_within(limit, operation).await)
    }
    let ttl = Ttl::new(LONG).unwrap();
    let renewal = |names: &[&str], mode| {
        let lease = |name: &&str| RenewEntry::extend(id("a"), Claims::one(key(name), mode), ttl);
        RenewRequest::new(names.iter().map(lease).collect())
    };
    // The second waits for the answer to the first.
    let [first, second] = ["a", "b"].map(|lease| acquire("x", lease, Mode::Exclusive));
    let shared = acquire("s", "a", Mode::SHARED);
    let (batch, apart) =
        (renewal(&["k1", "k2", "k3"], Mode::Exclusive), renewal(&["s1"], Mode::SHARED));
    let evict = evict("e", "a");
    let purge = EvictRequest::expired(Filter::default());
    let list = ListRequest::new(Filter::default());
    let keys = [key("k")];
    let subscribes = async { store.subscribe(&keys).await.map(drop) };
    let mut operations: Vec<BoxFuture<'_, _>> = vec![
        one("acquire", limit, store.acquire(&first)).boxed(),
        one("acquire in the queue", limit, store.acquire(&second)).boxed(),
        one("renew together", limit, store.renew(&batch)).boxed(),
        one("acquire apart", limit, store.acquire(&shared)).boxed(),
        one("renew apart", limit, store.renew(&apart)).boxed(),
        one("evict", limit, store.evict(&evict)).boxed(),
        one("purge", limit, store.evict(&purge)).boxed(),
        one("list", limit, store.list(&list)).boxed(),
    ];
    if store.capabilities().notifications {
        operations.push(one("subscribe", limit, subscribes).boxed());
    }
    join_all(operations).await
}
