//! Servers that are read-only: they answer reads, perhaps with what another server knows better.

use futures_util::future::join_all;
use leasehold_core::{
    Effect, Error, ErrorKind, EvictRequest, Filter, ListRequest, Mode, Store, Ttl,
};
use tokio::time::timeout;

use crate::requests::{acquire, evict, key, release, released, renew, renewed};
use crate::{LONG, SECOND};

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
async fn first_failures<S: Store>(open: impl AsyncFn() -> S) -> Vec<(S, &'static str, Error)> {
    let of = |name| ListRequest::new(Filter::default().with_key(key(name)));
    let (known, unknown) = (of("k"), of("nobody's"));
    let all = ListRequest::new(Filter::default());
    let expired = EvictRequest::expired(Filter::default());
    let exactly = evict("k", "a");
    let renewal = renew("k", "a", Mode::Exclusive, Ttl::new(LONG).unwrap());
    let mut failures = Vec::new();
    for name in OPERATIONS {
        let store = open().await;
        let can = store.capabilities();
        let acquired = async |key, mode| store.acquire(&acquire(key, "b", mode)).await.map(drop);
        let answer = match name {
            "acquire shared" if !can.shared => continue,
            "subscribe" if !can.notifications => continue,
            "acquire a new key" => acquired("l", Mode::Exclusive).await,
            "acquire a free key" => acquired("free", Mode::Exclusive).await,
            "acquire a held key" => acquired("k", Mode::Exclusive).await,
            "acquire shared" => acquired("l", Mode::SHARED).await,
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

/// Each operation fails, as the first of its store, with the words `first`. The store is then in doubt, and its check
/// fails with the words `again`.
pub async fn answers_nothing<S: Store>(open: impl AsyncFn() -> S, first: &str, again: &str) {
    let failures = first_failures(open).await;
    let checks = join_all(failures.iter().map(|(store, _, _)| store.check())).await;
    for ((_, name, error), check) in failures.iter().zip(checks) {
        assert!(error.to_string().contains(first), "{name}: {error}");
        let error = check.unwrap_err();
        assert!(error.to_string().contains(again), "{name}: {error}");
    }
}

/// Twenty clients ask for 2.5 s, and all requests fail with these words.
pub async fn never_acts(store: &impl Store, words: &str) {
    let asks = async |n: usize| -> () {
        loop {
            let request = acquire(&format!("k{n}"), "a", Mode::SHARED);
            let error = store.acquire(&request).await.unwrap_err();
            assert_eq!(error.effect(), Effect::NotApplied, "{error}");
            assert!(error.to_string().contains(words), "{error}");
        }
    };
    timeout(SECOND * 5 / 2, join_all((0..20).map(asks))).await.unwrap_err();
}
