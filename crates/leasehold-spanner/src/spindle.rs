//! spindle's table: a lock is a row, and whoever adds the claim row of its token may replace the token.

mod claims;
mod config;
mod health;
mod purge;
mod rules;
mod statements;
mod take;
mod turns;
mod writer;

use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use google_cloud_spanner::result::Row;
use leasehold_core::{
    AcquireReply, AcquireRequest, Capabilities, Cursor, Error, EvictReply, EvictRequest,
    EvictScope, Feature, Health, Key, LeaseId, ListReply, ListRequest, Now, Page, Record,
    ReleaseOutcome, ReleaseReply, ReleaseRequest, RenewOutcome, RenewReply, RenewRequest, Result,
    Store, Unreadable, Wakeups, each_or_worst,
};
use leasehold_driver::SystemClock;
use leasehold_driver::batches::{Batches, Sizes};

use self::claims::Met;
pub use self::config::SpindleConfig;
use self::rules::{Decided, Lock, LockRow, MARGIN};
use self::statements::{PART, Statements};
use self::turns::Turns;
use crate::client::{Client, Decision, Found, Times};
use crate::columns::{column, instant, now};
use crate::sender::Sender;
use crate::store::NAME;
use crate::table::TableName;

/// After how many new tokens of this process a batch of old claim rows is removed.
const PURGE_EVERY: usize = 64;

/// How many rows a page of a listing reads.
const LOOK_AT: usize = 1_000;

const REASONS: &[(Feature, &str)] = &[
    (Feature::Shared, "spindle's table has exclusive locks only"),
    (Feature::ManyKeys, "spindle's table has one row for each lock"),
    (Feature::Never, "a lock of spindle ends when nobody sends heartbeats"),
    (Feature::Raise, "a token is the time of a commit"),
    (Feature::Terms, "the longest is the option duration, that of spindle's clients"),
];

/// A store in the table of the Go library spindle v2. Cheap to clone; clones share the connections.
///
/// Each operation is one read-write transaction. The first acquire of a name in a process reads once more.
///
/// # Cancel safety
/// The future of any operation may be dropped: what was sent is carried out all the same, and no other caller is affected.
#[derive(Clone)]
pub struct SpindleStore {
    inner: Arc<Inner>,
    turns: Batches<Turns>,
}

struct Inner {
    client: Arc<Client>,
    statements: Arc<Statements>,
    config: SpindleConfig,
    met: Mutex<Met>,
    clock: SystemClock,
    /// Where the next purge continues.
    purged_to: Mutex<String>,
    /// Names around which there is no other lock.
    surveyed: Mutex<HashSet<Key>>,
    /// How many tokens this process has written, from a random number on.
    granted: AtomicUsize,
}

impl SpindleConfig {
    /// Connects.
    ///
    /// # Errors
    /// `InvalidInput` for a wrong setting; `Unavailable` or `Denied` if the database cannot be reached or the credentials are
    /// refused.
    ///
    /// # Cancel safety
    /// May be dropped; nothing stays open.
    pub async fn connect(self) -> Result<SpindleStore> {
        self.open().await.map_err(|e| e.with_context(NAME, "connect"))
    }

    async fn open(self) -> Result<SpindleStore> {
        self.check()?;
        let statements = Arc::new(self.statements()?);
        let client = Arc::new(self.spanner.open().await?);
        let random = LeaseId::mint()?.to_bytes().first().copied();
        let sizes = Sizes {
            most: 1,
            lanes: self.spanner.places(),
            many: 0,
            are_mixed: false,
            share_a_disk: false,
        };
        let inner = Arc::new(Inner {
            client,
            statements,
            config: self,
            met: Mutex::default(),
            clock: SystemClock::new(),
            purged_to: Mutex::default(),
            surveyed: Mutex::default(),
            granted: AtomicUsize::new(random.unwrap_or_default().into()),
        });
        let turns = Turns(Arc::clone(&inner));
        let turns = Batches::new(Arc::new(turns), sizes, inner.client.timeout);
        Ok(SpindleStore { inner, turns })
    }
}

impl SpindleStore {
    /// Connects to the database that `url` names; see [`SpindleConfig::parse`].
    ///
    /// # Errors
    /// As [`SpindleConfig::parse`] and [`SpindleConfig::connect`].
    ///
    /// # Cancel safety
    /// May be dropped; nothing stays open.
    pub async fn connect(url: &str) -> Result<Self> {
        SpindleConfig::parse(url).map_err(|e| e.with_context(NAME, "connect"))?.connect().await
    }
}

impl Inner {
    /// Changes the row of a lock in a transaction.
    async fn change<T: Send + 'static>(
        &self,
        sender: &Sender,
        times: Times,
        key: &Key,
        decide: impl Fn(&Lock, &TableName, Now) -> Result<Decided<T>> + Send + Sync + 'static,
    ) -> Result<T> {
        let statement = self.statements.look(vec![key.as_str().to_owned()]);
        let (key, duration) = (key.clone(), self.config.duration);
        let statements = Arc::clone(&self.statements);
        let decide = move |found: &Found| {
            let lock = Lock::new(key.clone(), row_of(&found.rows)?, duration);
            let Decided { reply, changes, .. } =
                decide(&lock, &statements.table, instant(found.now))?;
            Ok(Decision { reply, changes })
        };
        Ok(self.client.transact(sender, times, statement, decide).await?.reply)
    }

    async fn list(&self, request: &ListRequest) -> Result<ListReply> {
        let filter = request.filter();
        let after = request.cursor().map(position).transpose()?;
        let until = self.client.deadline();
        let (statement, most) = match filter.keys() {
            Some(keys) => {
                let mut names: Vec<_> = keys.iter().map(|key| key.as_str().to_owned()).collect();
                names.sort_unstable();
                names.dedup();
                names.retain(|name| after.is_none_or(|after| name.as_str() > after));
                (self.statements.look_up(names), usize::MAX)
            }
            None => {
                let from = after.map_or_else(|| filter.key_prefix().to_owned(), behind);
                let most = LOOK_AT.max(request.limit() + 1);
                (self.statements.page(&from, filter.key_prefix(), most), most)
            }
        };
        let mut rows = self.client.read(statement, until).await?;
        rows.sort_by_cached_key(|row| column::<String>(row, "asked").ok());
        let mut page = Page::new(request, None);
        let cursor = |last: String| Cursor::new(behind(&last).into_bytes());
        for row in &rows {
            let name: String = column(row, "asked")?;
            match self.record(row) {
                Ok(record) => {
                    if page.add(name, record).is_break() {
                        return Ok(page.followed(cursor));
                    }
                }
                Err(error) => {
                    page.add_unreadable(Some(name.clone()), Unreadable::new(name, error));
                }
            }
        }
        let is_last = filter.keys().is_some() || behind_page(&rows, most)?.is_none();
        Ok(if is_last { page.last() } else { page.followed(cursor) })
    }

    fn record(&self, row: &Row) -> Result<Option<Record>> {
        let now = instant(now(row)?);
        let Some(lock) = LockRow::of(row)? else { return Ok(None) };
        let key = Key::new(&lock.name)?;
        Ok(lock.holder(self.config.duration)?.and_then(|holder| holder.record(&key, now)))
    }
}

/// The row of the one lock that was asked for.
fn row_of(rows: &[Row]) -> Result<Option<LockRow>> {
    let row = rows.first().map(LockRow::of);
    Ok(row.transpose()?.flatten())
}

/// The name of a cursor.
fn position(cursor: &Cursor) -> Result<&str> {
    let name = std::str::from_utf8(cursor.as_bytes()).ok().and_then(|c| c.strip_suffix('\0'));
    name.ok_or_else(|| Error::invalid_input("the cursor does not come from this store"))
}

/// The first name behind a page of at most so many rows; `None` if there are no more.
fn behind_page(rows: &[Row], most: usize) -> Result<Option<String>> {
    let Some(last) = rows.last() else { return Ok(None) };
    let looked = usize::try_from(column::<i64>(last, "looked")?).unwrap_or_default();
    let is_full = rows.len() == most || looked == PART;
    is_full.then(|| column::<String>(last, "asked").map(|last| behind(&last))).transpose()
}

/// The first name behind it.
fn behind(name: &str) -> String {
    format!("{name}\0")
}

fn of_another_generation(row: &str) -> Error {
    Error::incompatible(format!(
        "the table has the claim row {row:?}, which is of spindle v1 or of spindle-rs; their clients and those of spindle v2 do not \
         exclude each other: stop them, and delete the row"
    ))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for SpindleStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { client, statements, .. } = &*self.inner;
        write!(f, "SpindleStore({}, {})", client.server, statements.table.as_str())
    }
}

impl Store for SpindleStore {
    fn capabilities(&self) -> Capabilities {
        let mut can = Capabilities::none(NAME);
        can.keep = true;
        can.tokens = true;
        can.reports_expired = true;
        can.compares_tokens = true;
        can.checks_on_use = true;
        can.max_term = self.inner.config.duration;
        can.margin = MARGIN;
        can.reasons = REASONS;
        can
    }

    async fn check(&self) -> Result<Health> {
        self.capabilities().carry_out("check", &(), || self.inner.check()).await
    }

    async fn prepare(&self) -> Result<()> {
        self.capabilities().carry_out("prepare", &(), || self.inner.prepare()).await
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireReply> {
        let acquired = async { self.send([request.clone()]).await.remove(0) };
        self.capabilities().carry_out("acquire", request, || acquired).await
    }

    async fn renew(&self, request: &RenewRequest) -> Result<RenewReply> {
        let renewed = async {
            let outcomes = self.send(request.leases().iter().cloned()).await;
            each_or_worst(outcomes, RenewOutcome::Failed).map(RenewReply::new)
        };
        self.capabilities().carry_out("renew", request, || renewed).await
    }

    async fn release(&self, request: &ReleaseRequest) -> Result<ReleaseReply> {
        let released = async {
            let outcomes = self.send(request.leases().iter().cloned()).await;
            each_or_worst(outcomes, ReleaseOutcome::Failed).map(ReleaseReply::new)
        };
        self.capabilities().carry_out("release", request, || released).await
    }

    async fn list(&self, request: &ListRequest) -> Result<ListReply> {
        self.capabilities().carry_out("list", request, || self.inner.list(request)).await
    }

    async fn evict(&self, request: &EvictRequest) -> Result<EvictReply> {
        let evicted = async {
            match request.scope() {
                EvictScope::Exactly { targets, .. } => {
                    self.inner.evict(targets, request.limit()).await
                }
                EvictScope::Expired(filter) => self.inner.purge(filter, request.limit()).await,
            }
        };
        self.capabilities().carry_out("evict", request, || evicted).await
    }

    /// Spanner wakes nobody.
    async fn subscribe(&self, _: &[Key]) -> Result<Wakeups> {
        Ok(Wakeups::none())
    }
}
