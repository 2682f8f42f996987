//! The sides: each locks keys that are numbers.

use std::any::Any;
use std::collections::HashMap;
use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use dashmap::DashMap;
use hashbrown::HashTable;
use key_lock::KeyLock;
use keyed_lock::{r#async as keyed_tasks, sync as keyed_threads};
use leasehold_core::BoxFuture;
use leasehold_local::locks::{Guard, LocalLocks, LocksConfig, Options};
use lockable::{LockPool, Lockable};
use tokio::sync::OwnedMutexGuard;

use super::contended::Race;

/// What the sides are.
pub(crate) const SIDES: &str = "\
- *by hand*: 64 shards of a `std::sync::Mutex` around the set of the locked keys; a lock inserts its key, a release removes it. Waiters \
share a `Condvar` for each shard. Its guard borrows a map that lives for ever; that of *by hand, owned* keeps its shard alive by an `Arc`, \
like the guard of `LocalLocks`.
- *`LocalLocks`*: locks that never go stale. *Barging*: newcomers overtake. *With a time-out*: locks that \
go stale after 30 s, as by default, so each reads the clock.
- *`dashmap`*: holds the vacant `Entry` of the key, and with it the key's shard; it inserts nothing. It cannot hold two keys.
- *`tokio` per key*: a `tokio::sync::Mutex` for each key, in 64 shards of a map that keeps it for ever.
- *`lockable`*, *`key-lock`*, *`keyed-lock`*: the crates' locks without values. They take several keys one after the other, here in \
key order.
";

/// A way to lock by key from threads. It lives as long as the program.
pub(crate) trait Locks: Sync + 'static {
    type Guard: 'static;
    /// Whether one thread can hold several keys.
    const MANY: bool = true;

    fn lock(&'static self, key: u64) -> Self::Guard;

    /// Takes sorted keys and releases them.
    fn four(&'static self, keys: [u64; 4]) {
        drop(keys.map(|key| self.lock(key)));
    }
}

/// A way to lock by key from tasks.
pub(crate) trait TaskLocks: Sync + 'static {
    type Guard: Send + 'static;

    fn lock(&'static self, key: u64) -> impl Future<Output = Self::Guard> + Send;
}

/// One side.
pub(crate) struct Subject {
    pub(crate) name: &'static str,
    /// Locks and unlocks the keys one after the other.
    pub(crate) pairs: Pairs<u64>,
    /// The same with four keys at a time.
    pub(crate) fours: Option<Pairs<[u64; 4]>>,
    /// Locks and unlocks one key until the race is over.
    pub(crate) thread: Contend,
    pub(crate) task: Option<ContendLater>,
    /// Locks so many keys until what it returns is dropped.
    pub(crate) hold: Option<Hold>,
    /// Locks so many keys, and waits for each of them as a task does, until what it returns is dropped.
    pub(crate) wait: Option<Hold>,
}

type Pairs<T> = Box<dyn Fn(&[T]) + Sync>;
type Contend = Box<dyn Fn(&Race, usize) + Sync>;
type ContendLater = Box<dyn Fn(Arc<Race>, usize) -> BoxFuture<'static, ()> + Sync>;
type Hold = Box<dyn Fn(u64) -> Box<dyn Any> + Sync>;

/// The key that all contend for.
pub(crate) const CONTENDED: u64 = 7;

/// All sides, the hand-written one first, each with nothing in it.
pub(crate) fn all() -> Vec<Subject> {
    let ours = |config: LocksConfig, options: Options| {
        let locks = LocalLocks::with_config(config).expect("it is in range");
        Ours { locks, options: options.retry_forever() }
    };
    let (fair, barging) = (LocksConfig::new(), LocksConfig::new().barging(true));
    vec![
        Subject::threads("by hand", ByHand::default()),
        Subject::threads("by hand, owned", ByHandOwned::default()),
        Subject::both("`LocalLocks`", ours(fair.clone(), Options::new().never_stale())),
        Subject::both("`LocalLocks`, barging", ours(barging, Options::new().never_stale())),
        Subject::both("`LocalLocks` with a time-out", ours(fair, Options::new())),
        Subject::threads("`dashmap`", DashMap::<u64, ()>::new()),
        Subject::both("`tokio` per key", PerKey::default()),
        Subject::both("`lockable`", LockPool::<u64>::new()),
        Subject::both("`key-lock`", KeyLock::<u64>::new()),
        Subject::both("`keyed-lock`", Keyed::default()),
    ]
}

impl Subject {
    fn threads<L: Locks>(name: &'static str, locks: L) -> Self {
        Self::of_threads(name, Box::leak(Box::new(locks)))
    }

    fn both<L: Locks + TaskLocks>(name: &'static str, locks: L) -> Self {
        let locks: &'static L = Box::leak(Box::new(locks));
        let contend = move |race: Arc<Race>, number: usize| -> BoxFuture<'static, ()> {
            Box::pin(async move {
                race.begin();
                while race.goes_on() {
                    let guard = TaskLocks::lock(locks, CONTENDED).await;
                    race.turn(number);
                    drop(guard);
                }
            })
        };
        let wait = move |keys| -> Box<dyn Any> {
            let begin = |key| {
                let mut future: BoxFuture<'static, _> = Box::pin(TaskLocks::lock(locks, key));
                let polled = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                (future, polled)
            };
            let hold = |key| match begin(key).1 {
                Poll::Ready(guard) => guard,
                Poll::Pending => panic!("the key is free"),
            };
            let held: Vec<_> = (0..keys).map(hold).collect();
            let pending: Vec<_> = (0..keys).map(|key| begin(key).0).collect();
            Box::new((pending, held))
        };
        let (task, wait) = (Some(Box::new(contend) as _), Some(Box::new(wait) as _));
        Self { task, wait, ..Self::of_threads(name, locks) }
    }

    fn of_threads<L: Locks>(name: &'static str, locks: &'static L) -> Self {
        let contend = move |race: &Race, number: usize| {
            race.begin();
            while race.goes_on() {
                let guard = locks.lock(CONTENDED);
                race.turn(number);
                drop(guard);
            }
        };
        let fours = move |sets: &[[u64; 4]]| sets.iter().for_each(|keys| locks.four(*keys));
        let hold = move |keys| -> Box<dyn Any> {
            Box::new((0..keys).map(|key| locks.lock(key)).collect::<Vec<_>>())
        };
        Self {
            name,
            pairs: Box::new(move |keys| keys.iter().for_each(|key| drop(locks.lock(*key)))),
            fours: L::MANY.then(|| Box::new(fours) as _),
            thread: Box::new(contend),
            task: None,
            hold: L::MANY.then(|| Box::new(hold) as _),
            wait: None,
        }
    }
}

/// `LocalLocks`, and how it is asked.
struct Ours {
    locks: LocalLocks<u64>,
    options: Options,
}

impl Locks for Ours {
    type Guard = Guard<u64>;

    fn lock(&'static self, key: u64) -> Guard<u64> {
        self.locks.acquire_blocking(key, &self.options).expect("it waits for its turn")
    }

    fn four(&'static self, keys: [u64; 4]) {
        drop(self.locks.acquire_blocking(keys, &self.options).expect("it waits for its turn"));
    }
}

impl TaskLocks for Ours {
    type Guard = Guard<u64>;

    async fn lock(&'static self, key: u64) -> Guard<u64> {
        self.locks.acquire(key, &self.options).await.expect("it waits for its turn")
    }
}

const SHARDS: usize = 64;

/// Shards of anything, each on cache lines of its own.
struct Shards<T> {
    shards: [Padded<T>; SHARDS],
    hasher: RandomState,
}

#[derive(Default)]
#[repr(align(128))]
struct Padded<T>(T);

impl<T: Default> Default for Shards<T> {
    fn default() -> Self {
        Self { shards: std::array::from_fn(|_| Padded::default()), hasher: RandomState::new() }
    }
}

impl<T> Shards<T> {
    fn of(&self, key: u64) -> (&T, u64) {
        let hash = self.hasher.hash_one(key);
        let index = usize::try_from(hash >> 32).unwrap_or(0) % SHARDS;
        (&self.shards[index].0, hash)
    }
}

fn enter<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What one would write by hand.
#[derive(Default)]
struct ByHand(Shards<HandShard>);

#[derive(Default)]
struct Locked {
    keys: HashTable<(u64, u64)>,
    waiters: usize,
}

type HandShard = (Mutex<Locked>, Condvar);

fn take(shard: &HandShard, key: u64, hash: u64) {
    let mut locked = enter(&shard.0);
    loop {
        let Locked { keys, waiters } = &mut *locked;
        match keys.entry(hash, |(other, _)| *other == key, |(_, hash)| *hash) {
            hashbrown::hash_table::Entry::Vacant(free) => {
                free.insert((key, hash));
                return;
            }
            hashbrown::hash_table::Entry::Occupied(_) => *waiters += 1,
        }
        locked = shard.1.wait(locked).unwrap_or_else(PoisonError::into_inner);
        locked.waiters -= 1;
    }
}

fn give_back(shard: &HandShard, key: u64, hash: u64) {
    let mut locked = enter(&shard.0);
    if let Ok(held) = locked.keys.find_entry(hash, |(other, _)| *other == key) {
        held.remove();
    }
    let waits = locked.waiters > 0;
    drop(locked);
    if waits {
        shard.1.notify_all();
    }
}

struct HandGuard(&'static HandShard, u64, u64);

impl Locks for ByHand {
    type Guard = HandGuard;

    fn lock(&'static self, key: u64) -> HandGuard {
        let (shard, hash) = self.0.of(key);
        take(shard, key, hash);
        HandGuard(shard, key, hash)
    }
}

impl Drop for HandGuard {
    fn drop(&mut self) {
        give_back(self.0, self.1, self.2);
    }
}

/// The same with guards that keep what they lock alive.
#[derive(Default)]
struct ByHandOwned(Shards<Arc<HandShard>>);

struct OwnedHandGuard(Arc<HandShard>, u64, u64);

impl Locks for ByHandOwned {
    type Guard = OwnedHandGuard;

    fn lock(&'static self, key: u64) -> OwnedHandGuard {
        let (shard, hash) = self.0.of(key);
        take(shard, key, hash);
        OwnedHandGuard(shard.clone(), key, hash)
    }
}

impl Drop for OwnedHandGuard {
    fn drop(&mut self) {
        give_back(&self.0, self.1, self.2);
    }
}

impl Locks for DashMap<u64, ()> {
    type Guard = dashmap::Entry<'static, u64, ()>;
    const MANY: bool = false;

    fn lock(&'static self, key: u64) -> Self::Guard {
        self.entry(key)
    }
}

/// A mutex of tokio for each key that was ever locked.
#[derive(Default)]
struct PerKey(Shards<Mutex<HashMap<u64, Arc<tokio::sync::Mutex<()>>>>>);

impl PerKey {
    fn of(&self, key: u64) -> Arc<tokio::sync::Mutex<()>> {
        enter(self.0.of(key).0).entry(key).or_default().clone()
    }
}

impl Locks for PerKey {
    type Guard = OwnedMutexGuard<()>;

    fn lock(&'static self, key: u64) -> Self::Guard {
        let mutex = self.of(key);
        mutex.clone().try_lock_owned().unwrap_or_else(|_| mutex.blocking_lock_owned())
    }
}

impl TaskLocks for PerKey {
    type Guard = OwnedMutexGuard<()>;

    async fn lock(&'static self, key: u64) -> Self::Guard {
        self.of(key).lock_owned().await
    }
}

impl Locks for LockPool<u64> {
    type Guard = <Self as Lockable<u64, ()>>::Guard<'static>;

    fn lock(&'static self, key: u64) -> Self::Guard {
        self.blocking_lock(key)
    }
}

impl TaskLocks for LockPool<u64> {
    type Guard = <Self as Lockable<u64, ()>>::Guard<'static>;

    async fn lock(&'static self, key: u64) -> Self::Guard {
        self.async_lock(key).await
    }
}

impl Locks for KeyLock<u64> {
    type Guard = OwnedMutexGuard<()>;

    fn lock(&'static self, key: u64) -> Self::Guard {
        self.blocking_lock(key)
    }
}

impl TaskLocks for KeyLock<u64> {
    type Guard = OwnedMutexGuard<()>;

    async fn lock(&'static self, key: u64) -> Self::Guard {
        Self::lock(self, key).await
    }
}

/// The crate has a type for threads and one for tasks.
struct Keyed {
    threads: keyed_threads::KeyedLock<u64>,
    tasks: keyed_tasks::KeyedLock<u64>,
}

impl Default for Keyed {
    fn default() -> Self {
        Self { threads: keyed_threads::KeyedLock::new(), tasks: keyed_tasks::KeyedLock::new() }
    }
}

impl Locks for Keyed {
    type Guard = keyed_threads::Guard<'static, u64>;

    fn lock(&'static self, key: u64) -> Self::Guard {
        self.threads.lock(key)
    }
}

impl TaskLocks for Keyed {
    type Guard = keyed_tasks::Guard<'static, u64>;

    async fn lock(&'static self, key: u64) -> Self::Guard {
        self.tasks.lock(key).await
    }
}
