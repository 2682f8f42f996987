//! Servers that are read-only: they answer reads, perhaps with what another server knows better.

use leasehold_core::{
    Effect, Error, ErrorKind, EvictRequest, EvictTarget, Filter, ListRequest, Mode, Store, Ttl,
};

use crate::LONG;
use crate::requests::{acquire, id, key, release, released, renew, renewed};

const OPERATIONS: [&str; 13] = [
    "acquire a new key",
    "acquire a free key",
    "acquire a held key",
    "acquire shared",
    "renew",
    "release",
    "look up",
    "look up a free key",
    "list",
    "purge",
    "evict",
    "check",
    "subscribe",
];

/// The failure of each operation as the first of its store, before which the key `k` was held by the lease `a`, and
/// the key `free` was released. All are `Unavailable`, and none has acted.
pub async fn first_failures<S: Store>(open: impl AsyncFn() -> S) -> Vec<(S, &'static str, Error)> {
    let of = |name| ListRequest::new(Filter::default().with_key(key(name)));
    let (known, unknown) = (of("k"), of("nobody's"));
    let all = ListRequest::new(Filter::default());
    let expired = EvictRequest::expired(Filter::default());
    let target = EvictTarget::new(key("k"), Some(id("a")));
    let exactly = EvictRequest::exactly(vec![target], None);
    let renewal = renew("k", "a", Mode::Exclusive, Ttl::new(LONG).unwrap());
    let mut failures = Vec::new();
    for name in OPERATIONS {
        let store = open().await;
        let can = store.capabilities();
        let answer = match name {
            "acquire shared" if !can.shared => continue,
            "subscribe" if !can.notifications => continue,
            "acquire a new key" => {
                store.acquire(&acquire("l", "b", Mode::Exclusive)).await.map(drop)
            }
            "acquire a free key" => {
                store.acquire(&acquire("free", "b", Mode::Exclusive)).await.map(drop)
            }
            "acquire a held key" => {
                store.acquire(&acquire("k", "b", Mode::Exclusive)).await.map(drop)
            }
            "acquire shared" => store.acquire(&acquire("l", "b", Mode::SHARED)).await.map(drop),
            "renew" => renewed(&store, &renewal).await.map(drop),
            "release" => released(&store, &release("k", "a")).await.map(drop),
            "look up" => store.list(&known).await.map(drop),
            "look up a free key" => store.list(&unknown).await.map(drop),
            "list" => store.list(&all).await.map(drop),
            "purge" => store.evict(&expired).await.map(drop),
            "evict" => store.evict(&exactly).await.map(drop),
            "check" => store.check().await.map(drop),
            _ => store.subscribe(&[key("k")]).await.map(drop),
        };
        let error = answer.expect_err(name);
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{name}: {error}");
        assert_eq!(error.effect(), Effect::NotApplied, "{name}: {error}");
        failures.push((store, name, error));
    }
    failures
}
