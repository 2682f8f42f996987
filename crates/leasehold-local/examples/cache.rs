//! A small cache with transactions: each locks the keys that it reads and writes, and no others.
//!
//! ```sh
//! cargo run -p leasehold-local --example cache
//! ```

use std::collections::HashMap;
use std::sync::Mutex;

use leasehold_local::locks::{Keys, LocalLocks, LockError, Options, Scoped};

#[derive(Default)]
pub(crate) struct Cache {
    entries: Mutex<HashMap<String, i64>>,
    locks: LocalLocks<String>,
}

impl Cache {
    pub(crate) fn get(&self, key: &str) -> Option<i64> {
        self.entries.lock().expect("nobody panics").get(key).copied()
    }

    pub(crate) fn put(&self, key: &str, value: i64) {
        self.entries.lock().expect("nobody panics").insert(key.to_owned(), value);
    }

    /// Runs `f` while no other transaction with one of these keys runs. A task uses `with_locks`.
    pub(crate) fn transaction<R>(
        &self,
        keys: impl IntoIterator<Item = impl Into<String>>,
        f: impl FnOnce(&Self) -> R,
    ) -> Result<Scoped<R>, LockError> {
        let keys: Keys<String> = keys.into_iter().map(Into::into).collect();
        self.locks.with_locks_blocking(keys, &Options::new().retry_forever(), |_scope| f(self))
    }
}

/// Moves 1 from one account to the other; a thread each way, so that they compete for both keys.
pub(crate) fn both_ways(cache: &Cache, times: usize) {
    let transfer = |from, to| {
        let moved = cache.transaction([from, to], |cache| {
            let (left, right) = (cache.get(from).unwrap_or(0), cache.get(to).unwrap_or(0));
            std::thread::yield_now(); // without the locks, the other thread would come in between
            cache.put(from, left - 1);
            cache.put(to, right + 1);
        });
        assert!(!moved.expect("it waits for its turn").was_stale, "it took more than 30 s");
    };
    std::thread::scope(|threads| {
        threads.spawn(|| (0..times).for_each(|_| transfer("a", "b")));
        threads.spawn(|| (0..times).for_each(|_| transfer("b", "a")));
    });
}

fn main() {
    let cache = Cache::default();
    both_ways(&cache, 1_000);
    println!("a has {:?}, b has {:?}", cache.get("a"), cache.get("b"));
}
