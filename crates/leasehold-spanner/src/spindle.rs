//! spindle's table: a lock is a row, and whoever adds the claim row of its token may replace the token.

mod claims;
mod config;
mod health;
mod purge;
mod rules;
mod statements;
mod turns;
mod writer;

use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use google_cloud_gax::error::rpc::Code;
use google_cloud_spanner::result::Row;
use leasehold_core::{
    AcquireReply, AcquireRequest, Capabilities, Clock as _, Cursor, Effect, Error, EvictReply,
    EvictRequest, EvictScope, Feature, FencingToken, Health, Key, LeaseId, ListReply, ListRequest,
    Now, Page, Record, RefusalReason, Refused, ReleaseOutcome, ReleaseReply, ReleaseRequest,
    RenewOutcome, RenewReply, RenewRequest, Result, Store, Table, Unreadable, Wakeups,
    each_or_worst,
};
use leasehold_driver::batches::{Batches, Sizes};
use leasehold_driver::{Deadline, SystemClock};

use self::claims::Met;
pub use self::config::SpindleConfig;
use self::rules::{Decided, Lock, LockRow, MARGIN};
use self::statements::{PART, Statements};
use self::turns::Turns;
use crate::client::{Client, Committed, Decision, Found, Times};
use crate::columns::{column, instant, now};
use crate::error;
use crate::sender::Sender;
use crate::store::NAME;
use crate::table::TableName;

/// How many names a process remembers to have looked around.
const SURVEYED: usize = 10_000;

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

/// What became of a request for a lock.
enum Tried {
    Decided(AcquireReply, bool),
    /// There is no row, and nobody has looked around it inside the transaction.
    New,
    /// Somebody else has this claim row.
    Claimed(String),
}

impl Inner {
    async fn acquire(
        self: &Arc<Self>,
        request: &AcquireRequest,
        times: Times,
    ) -> Result<AcquireReply> {
        let refusals = &self.client.refusals;
        let refused = match refusals.concern(request) {
            true => self.look(request, times.begin).await?,
            false => None,
        };
        let reply = match refused {
            Some(refused) => refused,
            None => self.try_to_take(request, times).await?,
        };
        refusals.note(request, &reply);
        Ok(reply)
    }

    /// The refusal, if the lock is held.
    async fn look(
        &self,
        request: &AcquireRequest,
        until: Deadline,
    ) -> Result<Option<AcquireReply>> {
        let key = &request.claims().first().key;
        let statement = self.statements.look_up(vec![key.as_str().to_owned()]);
        let found = self.client.look(statement, until).await?;
        let lock = Lock::new(key.clone(), row_of(&found.rows)?, self.config.duration);
        let acquire = |rules: &mut Table| rules.acquire(request, instant(found.now));
        let decided = lock.decide(&self.statements.table, instant(found.now), None, acquire)?;
        Ok(match decided.reply {
            refused @ AcquireReply::Refused(_) if decided.changes.is_empty() => Some(refused),
            _ => None,
        })
    }

    async fn try_to_take(
        self: &Arc<Self>,
        request: &AcquireRequest,
        times: Times,
    ) -> Result<AcquireReply> {
        let key = &request.claims().first().key;
        let mut is_new = self.survey(key, times.begin).await?;
        loop {
            let claimed = Arc::new(Mutex::default());
            let claim = match self.try_once(request, times, is_new, &claimed).await {
                Ok(Tried::Decided(reply, is_granted)) => {
                    lock(&self.met).forget(key);
                    if is_new {
                        self.note_surveyed(key);
                    }
                    if is_granted {
                        self.purge_sometimes(key);
                    }
                    return Ok(reply);
                }
                Ok(Tried::New) => {
                    is_new = true;
                    continue;
                }
                Ok(Tried::Claimed(claim)) => claim,
                Err(error) if error::has_code(&error, Code::AlreadyExists) => {
                    let Some(claim) = lock(&claimed).take() else {
                        // Somebody else added the lock.
                        is_new = false;
                        continue;
                    };
                    claim
                }
                Err(error) => return Err(error),
            };
            let left = self.respect(key, &claim);
            if !left.is_zero() {
                let refused = Refused::new(key.clone(), RefusalReason::Held(None), Some(left));
                return Ok(AcquireReply::Refused(refused));
            }
        }
    }

    /// How long a claim of another client is respected.
    fn patience(&self) -> Duration {
        self.config.duration + MARGIN
    }

    /// How long this one still is.
    fn respect(&self, key: &Key, claim: &str) -> Duration {
        lock(&self.met).respect(key, claim, self.patience(), self.clock.now())
    }

    /// Tries to take a lock. `claimed` becomes the claim row that it needs.
    async fn try_once(
        &self,
        request: &AcquireRequest,
        times: Times,
        is_new: bool,
        claimed: &Arc<Mutex<Option<String>>>,
    ) -> Result<Tried> {
        let key = request.claims().first().key.clone();
        let statement = match is_new {
            true => self.statements.add(key.as_str()),
            false => self.statements.look(vec![key.as_str().to_owned()]),
        };
        let passed = lock(&self.met).passed(&key, self.patience(), self.clock.now());
        let (request, claimed) = (request.clone(), Arc::clone(claimed));
        let (statements, duration) = (Arc::clone(&self.statements), self.config.duration);
        let decide = move |found: &Found| {
            let row = row_of(&found.rows)?;
            if row.is_none() && !is_new {
                return Ok(Decision { reply: Tried::New, changes: Vec::new() });
            }
            if is_new {
                refuse_neighbour(&key, &found.rows)?;
            }
            let is_added = row.is_none();
            let now = instant(found.now);
            let of_key = Lock::new(key.clone(), row, duration);
            let claim = of_key.claim();
            let mut passed = passed.as_deref();
            if is_added {
                match claim_is_ours(&found.rows)? {
                    Some(true) => passed = Some(&claim),
                    Some(false) if passed != Some(&*claim) => {
                        let reply = Tried::Claimed(claim);
                        return Ok(Decision { reply, changes: Vec::new() });
                    }
                    _ => {}
                }
            }
            let acquire = |rules: &mut Table| rules.acquire(&request, now);
            let decided = of_key.decide(&statements.table, now, passed, acquire)?;
            *lock(&claimed) = (!is_added).then_some(claim);
            let Decided { reply, changes, is_granted } = decided;
            Ok(Decision { reply: Tried::Decided(reply, is_granted), changes })
        };
        let client = &self.client;
        let done = client.transact(&client.requests, times, statement, decide).await?;
        let Committed { mut reply, at } = done;
        if let Tried::Decided(AcquireReply::Granted(granted), true) = &mut reply {
            let at = at.and_then(|at| u64::try_from(at).ok()).ok_or_else(|| {
                Error::unexpected("Spanner did not say when it committed")
                    .with_effect(Effect::Unknown)
            })?;
            granted.token = Some(FencingToken::new(at)?);
        }
        Ok(reply)
    }

    /// Refuses a name that spindle's clients cannot use, or beside which another lock is; once for each name. Returns whether the
    /// lock has no row.
    async fn survey(&self, key: &Key, until: Deadline) -> Result<bool> {
        if lock(&self.surveyed).contains(key) {
            return Ok(false);
        }
        if key.as_str().contains(['\'', '\\']) {
            return Err(Error::unsupported(format!(
                "the key is {:?}; spindle puts names into its SQL as they are, so one in its table has no ' and no \\",
                key.as_str()
            )));
        }
        let statement = self.statements.survey(key.as_str());
        let rows = self.client.read(statement, until).await?;
        refuse_neighbour(key, &rows)?;
        let stranger = rows.first().map(|row| column::<Option<String>>(row, "stranger"));
        if let Some(stranger) = stranger.transpose()?.flatten() {
            return Err(of_another_generation(&stranger));
        }
        let is_new = row_of(&rows)?.is_none();
        if !is_new {
            self.note_surveyed(key);
        }
        Ok(is_new)
    }

    fn note_surveyed(&self, key: &Key) {
        let mut surveyed = lock(&self.surveyed);
        if surveyed.len() >= SURVEYED {
            surveyed.clear();
        }
        surveyed.insert(key.clone());
    }

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

/// Whether the claim row of a lock without a row is ours; `None` if there is none.
fn claim_is_ours(rows: &[Row]) -> Result<Option<bool>> {
    let is_ours = rows.first().map(|row| column::<Option<bool>>(row, "claim_is_ours"));
    Ok(is_ours.transpose()?.flatten())
}

fn refuse_neighbour(key: &Key, rows: &[Row]) -> Result<()> {
    let neighbour = rows.first().map(|row| column::<Option<String>>(row, "neighbour"));
    match neighbour.transpose()?.flatten() {
        None => Ok(()),
        Some(other) => Err(Error::unsupported(format!(
            "the table has the lock {other:?}, and the key is {:?}: one is the beginning of the other up to a _, and the leader of \
             the shorter one deletes the row of the longer; rename one of them",
            key.as_str()
        ))),
    }
}

fn of_another_generation(row: &str) -> Error {
    Error::incompatible(format!(
        "the table has the claim row {row:?}, which is of spindle v1 or of spindle-rs; their clients and those of spindle v2 do not \
         exclude each other: stop them, and delete the row"
    ))
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
