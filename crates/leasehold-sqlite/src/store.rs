use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use leasehold_core::{
    AcquireReply, AcquireRequest, Capabilities, EvictReply, EvictRequest, Health, Key, ListReply,
    ListRequest, ReleaseReply, ReleaseRequest, RenewReply, RenewRequest, Result, Store, Wakeups,
};

use crate::config::{Location, NAME, SqliteConfig};
use crate::database::Database;
use crate::health;
use crate::inner::Inner;

/// A store in a SQLite database: a file that the processes of one host share, or memory. Clones share their
/// connection.
///
/// A file on a disk reaches L2; see the [`manual`](crate::manual). Every operation is one transaction on the
/// store's own thread, or shares one with those that arrived while another was on its way to the disk, and has the time
/// limit of [`SqliteConfig::timeout`]. An error of kind `Unavailable` with the
/// effect `NotApplied` means that others kept the database busy, or that the disk is full. With the default clock
/// the store must be used in a tokio runtime with its timer enabled.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold_core::Result<()> {
/// use leasehold_core::{
///     AcquireReply, AcquireRequest, Claims, Key, LeaseId, Mode, ReleaseEntry, ReleaseRequest, Store,
///     Ttl,
/// };
/// use leasehold_sqlite::SqliteStore;
/// use std::time::Duration;
///
/// let store = SqliteStore::in_memory().await?;
/// let (id, job) = (LeaseId::mint()?, Key::new("job")?);
/// let claims = Claims::one(job.clone(), Mode::Exclusive);
/// let ttl = Ttl::new(Duration::from_secs(30))?;
/// let first = store.acquire(&AcquireRequest::new(id.clone(), claims.clone(), ttl)).await?;
/// assert!(matches!(first, AcquireReply::Granted(_)));
/// let second = store.acquire(&AcquireRequest::new(LeaseId::mint()?, claims, ttl)).await?;
/// assert!(matches!(second, AcquireReply::Refused(_)));
/// store.release(&ReleaseRequest::new(vec![ReleaseEntry::new(id, [job])])).await?;
/// # Ok(()) }
/// ```
///
/// # Cancel safety
/// Nothing is sent before a future is first polled. An operation that was sent runs to its end if its future is
/// dropped, and does not disturb others (C15).
#[derive(Clone)]
pub struct SqliteStore(Arc<Inner>);

impl SqliteConfig {
    /// Opens the database, and creates the file and its tables if they do not exist. Safe while other threads and
    /// processes do the same.
    ///
    /// # Errors
    /// `InvalidInput` if an option or the path is wrong; `Incompatible` if the file is not a lock database, is of
    /// a newer version, or must not be where it is; `Denied` if this user may not write it; `Corrupt` if it is
    /// damaged; `Unavailable` if others kept it busy for the whole time limit or the disk is full; `Unsupported`
    /// for a file on a system other than Linux.
    ///
    /// # Cancel safety
    /// If the future is dropped, the database is opened and closed again; the file may have been created.
    pub async fn connect(self) -> Result<SqliteStore> {
        self.check().map_err(|e| e.with_context(NAME, "connect"))?;
        Ok(SqliteStore(Arc::new(Inner::start(self).await?)))
    }
}

impl SqliteStore {
    /// Opens the database at `path` and creates it if it does not exist. A relative path is resolved against the
    /// current directory now. [`SqliteConfig`] has options.
    ///
    /// # Errors
    /// As [`SqliteConfig::connect`].
    ///
    /// # Cancel safety
    /// As [`SqliteConfig::connect`].
    pub async fn open(path: impl Into<PathBuf>) -> Result<Self> {
        SqliteConfig::file(path).connect().await
    }

    /// Creates a database in memory that only this store can see and that ends with it.
    ///
    /// # Errors
    /// As [`SqliteConfig::connect`].
    ///
    /// # Cancel safety
    /// May be dropped at any time.
    pub async fn in_memory() -> Result<Self> {
        SqliteConfig::memory().connect().await
    }

    /// Opens the database of a URL: `sqlite:PATH` or `sqlite::memory:`, with the options of
    /// [`SqliteConfig::parse`].
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold_core::Result<()> {
    /// use leasehold_sqlite::SqliteStore;
    ///
    /// let store = SqliteStore::connect("sqlite::memory:?timeout=1s").await?;
    /// # store.close_database().await;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`SqliteConfig::parse`] and [`SqliteConfig::connect`].
    ///
    /// # Cancel safety
    /// As [`SqliteConfig::connect`].
    pub async fn connect(url: &str) -> Result<Self> {
        SqliteConfig::parse(url).map_err(|e| e.with_context(NAME, "connect"))?.connect().await
    }

    /// Drops this handle. If it is the last one, waits until everything sent is done and the database is closed;
    /// merely dropping the last handle does the same without waiting.
    ///
    /// # Cancel safety
    /// May be dropped at any time; the database is closed all the same.
    pub async fn close_database(self) {
        if let Some(inner) = Arc::into_inner(self.0) {
            inner.close().await;
        }
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SqliteStore({})", self.0.location)
    }
}

impl Store for SqliteStore {
    fn capabilities(&self) -> Capabilities {
        let mut can = Capabilities::all(NAME);
        can.notifications = matches!(self.0.location, Location::File(_));
        can
    }

    async fn check(&self) -> Result<Health> {
        let memory = format!("sqlite::memory:{:p}", Arc::as_ptr(&self.0));
        let checked = self.0.run(move |database, limit| health::check(database, limit, &memory));
        self.capabilities().carry_out("check", &(), || checked).await
    }

    async fn prepare(&self) -> Result<()> {
        self.capabilities().carry_out("prepare", &(), || self.0.run(Database::prepare)).await
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireReply> {
        self.capabilities().carry_out("acquire", request, || self.0.acquire(request)).await
    }

    async fn renew(&self, request: &RenewRequest) -> Result<RenewReply> {
        self.capabilities().carry_out("renew", request, || self.0.renew(request)).await
    }

    async fn release(&self, request: &ReleaseRequest) -> Result<ReleaseReply> {
        self.capabilities().carry_out("release", request, || self.0.release(request)).await
    }

    async fn list(&self, request: &ListRequest) -> Result<ListReply> {
        self.capabilities().carry_out("list", request, || self.0.list(request)).await
    }

    async fn evict(&self, request: &EvictRequest) -> Result<EvictReply> {
        self.capabilities().carry_out("evict", request, || self.0.evict(request)).await
    }

    /// Hints from a thread that watches the file as long as anybody waits; none in memory.
    async fn subscribe(&self, keys: &[Key]) -> Result<Wakeups> {
        if let Some(wakeups) = self.0.watch.listen(keys, None) {
            return Ok(wakeups);
        }
        let view = self.0.run(|database, _| database.view());
        let view = self.capabilities().carry_out("subscribe", &(), || view).await?;
        let wakeups = view.and_then(|view| self.0.watch.listen(keys, Some(view)));
        Ok(wakeups.unwrap_or_else(Wakeups::none))
    }

    /// Waits until everything sent is done, then closes the file: the last process to close it removes its log. The next
    /// request opens it again.
    async fn close(&self) {
        self.0.disconnect().await;
    }
}
