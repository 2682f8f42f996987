//! What the tests of this store share.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use leasehold_core::{
    AcquireReply, AcquireRequest, BoxFuture, Claims, Clock, Granted, Key, LeaseId, ManualClock,
    Mode, Refused, ReleaseEntry, ReleaseOutcome, ReleaseRequest, RenewEntry, RenewRequest, Result,
    Store, Ttl,
};
use leasehold_sqlite::{SqliteConfig, SqliteStore};
use rusqlite::Connection;
use tempfile::TempDir;

pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// A directory of mode 0700, the path of a database in it, and a clock that stands still.
pub(crate) struct Workplace {
    pub(crate) directory: TempDir,
    pub(crate) path: PathBuf,
    pub(crate) clock: ManualClock,
}

impl Workplace {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("locks.db");
        Self { directory, path, clock: ManualClock::new() }
    }

    pub(crate) fn config(&self) -> SqliteConfig {
        SqliteConfig::file(&self.path).clock(Arc::new(self.clock.clone()))
    }

    pub(crate) async fn open(&self) -> SqliteStore {
        self.config().connect().await.unwrap()
    }

    /// The same file past the store.
    pub(crate) fn raw(&self) -> Connection {
        Connection::open(&self.path).unwrap()
    }

    /// Changes the file past the store.
    pub(crate) fn change(&self, statements: &str) {
        self.raw().execute_batch(statements).unwrap();
    }

    pub(crate) fn beside(&self, suffix: &str) -> PathBuf {
        let mut path = self.path.clone().into_os_string();
        path.push(suffix);
        path.into()
    }
}

/// Counts the transactions of the store's thread, and lets it hang in one: where an operation looks whether its limit has
/// passed.
#[derive(Debug)]
pub(crate) struct Hanging {
    clock: ManualClock,
    /// How many reads of the clock are left until it hangs.
    left: AtomicUsize,
    transactions: AtomicUsize,
    hangs: mpsc::Sender<()>,
    resumed: (mpsc::Sender<()>, Mutex<mpsc::Receiver<()>>),
}

impl Hanging {
    /// The clock, and a channel that tells when it hangs.
    pub(crate) fn new(clock: &ManualClock) -> (Arc<Self>, mpsc::Receiver<()>) {
        let ((hangs, hung), (sender, receiver)) = (mpsc::channel(), mpsc::channel());
        let (clock, resumed) = (clock.clone(), (sender, Mutex::new(receiver)));
        let (left, transactions) = (AtomicUsize::new(usize::MAX), AtomicUsize::new(0));
        (Arc::new(Self { clock, left, transactions, hangs, resumed }), hung)
    }

    /// Lets the next operation hang.
    pub(crate) fn hang(&self) {
        // It reads the clock to see how long it may wait for the lock, then to decide by it, and then here.
        self.left.store(3, Ordering::SeqCst);
    }

    pub(crate) fn resume(&self) {
        self.resumed.0.send(()).unwrap();
    }

    pub(crate) fn transactions(&self) -> usize {
        self.transactions.load(Ordering::SeqCst)
    }
}

impl Clock for Hanging {
    fn now(&self) -> Duration {
        let now = self.clock.now();
        if std::thread::current().name() == Some("leasehold-sqlite")
            && self.left.fetch_sub(1, Ordering::SeqCst) == 1
        {
            self.hangs.send(()).unwrap();
            self.resumed.1.lock().unwrap().recv().unwrap();
        }
        now
    }

    fn wall_micros(&self) -> u64 {
        if std::thread::current().name() == Some("leasehold-sqlite") {
            self.transactions.fetch_add(1, Ordering::SeqCst);
        }
        self.clock.wall_micros()
    }

    fn sleep_until(&self, at: Duration) -> BoxFuture<'static, ()> {
        self.clock.sleep_until(at)
    }
}

pub(crate) fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

pub(crate) fn id(name: &str) -> LeaseId {
    LeaseId::foreign(name.as_bytes()).unwrap()
}

pub(crate) fn request(id: &str, key: &str) -> AcquireRequest {
    let claims = Claims::one(self::key(key), Mode::Exclusive);
    AcquireRequest::new(self::id(id), claims, Ttl::new(30 * SECOND).unwrap())
}

pub(crate) async fn acquire(store: &SqliteStore, id: &str, key: &str) -> Result<AcquireReply> {
    store.acquire(&request(id, key)).await
}

pub(crate) async fn grant(store: &SqliteStore, id: &str, key: &str) -> Granted {
    match acquire(store, id, key).await.unwrap() {
        AcquireReply::Granted(granted) => granted,
        AcquireReply::Refused(refused) => panic!("refused: {refused:?}"),
    }
}

pub(crate) async fn refuse(store: &SqliteStore, id: &str, key: &str) -> Refused {
    match acquire(store, id, key).await.unwrap() {
        AcquireReply::Refused(refused) => refused,
        AcquireReply::Granted(granted) => panic!("granted: {granted:?}"),
    }
}

pub(crate) async fn release(store: &SqliteStore, id: &str, key: &str) -> ReleaseOutcome {
    let request = ReleaseRequest::new(vec![ReleaseEntry::new(self::id(id), [self::key(key)])]);
    store.release(&request).await.unwrap().leases.remove(0)
}

pub(crate) async fn renew_to_never(store: &SqliteStore, id: &str, key: &str) {
    let claims = Claims::one(self::key(key), Mode::Exclusive);
    let request = RenewRequest::new(vec![RenewEntry::extend(self::id(id), claims, Ttl::NEVER)]);
    store.renew(&request).await.unwrap();
}

/// How many times others than `raw` changed the file.
pub(crate) fn data_version(raw: &Connection) -> i64 {
    raw.pragma_query_value(None, "data_version", |row| row.get(0)).unwrap()
}

pub(crate) fn count(raw: &Connection, table: &str) -> i64 {
    raw.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap()
}

/// The file for this process, which [`again`] started for one test.
pub(crate) fn role() -> Option<PathBuf> {
    std::env::var_os("LEASEHOLD_TEST_PATH").map(PathBuf::from)
}

/// This one test in another process; `wrapper` is a command that starts it.
pub(crate) fn again(test: &str, wrapper: &[&str], path: &Path) -> Command {
    let mut parts: Vec<&OsStr> = wrapper.iter().map(OsStr::new).collect();
    let program = std::env::current_exe().unwrap();
    parts.push(program.as_os_str());
    let mut command = Command::new(parts[0]);
    command.args(&parts[1..]).args([&format!("processes::{test}"), "--exact", "--nocapture"]);
    command.env("LEASEHOLD_TEST_PATH", path);
    command
}

/// As [`again`], and succeeds only if the test does there.
pub(crate) fn passes_again(test: &str, wrapper: &[&str], path: &Path) {
    let output = again(test, wrapper, path).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{wrapper:?}\n{out}\n{err}");
    assert!(out.contains("1 passed"), "{wrapper:?} ran no test:\n{out}\n{err}");
}
