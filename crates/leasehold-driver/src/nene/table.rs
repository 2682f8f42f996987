use std::collections::HashSet;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use leasehold_core::term::micros_up;
use leasehold_core::{
    AcquireReply, AcquireRequest, Capabilities, Clock, Effect, Error, EvictReply, EvictRequest,
    EvictScope, Feature, Granted, Health, Key, LeaseId, ListReply, ListRequest, LostReason, Mode,
    Record, RecordTerm, RefusalReason, Refused, ReleaseEntry, ReleaseOutcome, ReleaseReply,
    ReleaseRequest, Remaining, RenewEntry, RenewOutcome, RenewReply, RenewRequest, Request, Result,
    Store, Wakeups,
};
use tokio::sync::Semaphore;

use super::config::NeneConfig;
use super::rows::Value::{self, Integer, Text};
use super::rows::{NeneRow, NeneRows, Page, Statements};
use super::rules::{Margin, seconds, since, until};
use crate::{Deadline, outliving};

/// How often an operation begins again because somebody else changed the row meanwhile.
const TRIES: usize = 10;
/// How many entries of a request are under way at once: more would wait for connections until their time limit.
const AT_ONCE: usize = 32;
/// The longest name, and the longest owner, in bytes.
const MAX_BYTES: usize = 255;

const REASONS: &[(Feature, &str)] = &[
    (Feature::Shared, "the PHP library's table has exclusive locks only"),
    (Feature::ManyKeys, "the PHP library's table has one row for each lock"),
    (Feature::Never, "a row of the PHP library's table has an end"),
    (Feature::Keep, "a row of the PHP library's table is held or not there"),
    (Feature::Tokens, "the PHP library's table has no room for them"),
    (Feature::Terms, "the PHP library's table has whole seconds"),
];

/// A store in the table of the PHP library.
pub struct NeneTable<R>(Arc<Inner<R>>);

pub(super) struct Inner<R> {
    pub(super) rows: R,
    statements: Statements,
    timeout: Duration,
    pub(super) margin: Margin,
    settle: Duration,
    clock: Arc<dyn Clock>,
}

impl<R: NeneRows> NeneTable<R> {
    /// The store of these rows. `timeout` is the time limit of an operation.
    pub fn new(rows: R, statements: Statements, timeout: Duration, config: NeneConfig) -> Self {
        let NeneConfig { skew, settle, clock, .. } = config;
        Self(Arc::new(Inner { rows, statements, timeout, margin: Margin::of(skew), settle, clock }))
    }

    /// Carries out a request that is admitted, to its end even if its caller goes (C15).
    async fn run<Q, T, F>(
        &self,
        operation: &'static str,
        request: &Q,
        work: impl FnOnce(Arc<Inner<R>>, Q) -> F,
    ) -> Result<T>
    where
        Q: Request + Clone,
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let work = async { outliving(work(Arc::clone(&self.0), request.clone())).await };
        self.capabilities().carry_out(operation, request, || work).await
    }
}

impl<R: NeneRows> Store for NeneTable<R> {
    fn capabilities(&self) -> Capabilities {
        let mut can = Capabilities::none(R::NAME);
        can.reports_expired = true;
        can.min_term = Duration::from_secs(1);
        can.max_key_bytes = MAX_BYTES;
        can.text_ids = true;
        can.margin = self.0.margin.between_holder_and_others();
        can.reasons = REASONS;
        can
    }

    async fn check(&self) -> Result<Health> {
        self.capabilities().carry_out("check", &(), || self.0.rows.check()).await
    }

    async fn prepare(&self) -> Result<()> {
        self.capabilities()
            .carry_out("prepare", &(), || self.0.rows.prepare(&self.0.statements.create))
            .await
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireReply> {
        self.run("acquire", request, |inner, request| async move { inner.acquire(&request).await })
            .await
    }

    async fn renew(&self, request: &RenewRequest) -> Result<RenewReply> {
        self.run("renew", request, |inner, request| async move {
            let keys = request.leases().iter().map(|lease| &lease.claims().first().key);
            let until = inner.deadline();
            let renewals = request.leases().iter().map(|lease| inner.renew(until, lease));
            Ok(RenewReply::new(each(keys, renewals, RenewOutcome::Failed).await))
        })
        .await
    }

    async fn release(&self, request: &ReleaseRequest) -> Result<ReleaseReply> {
        self.run("release", request, |inner, request| async move {
            let keys = request.leases().iter().map(|lease| &lease.keys()[0]);
            let until = inner.deadline();
            let releases = request.leases().iter().map(|lease| inner.release(until, lease));
            Ok(ReleaseReply::new(each(keys, releases, ReleaseOutcome::Failed).await))
        })
        .await
    }

    async fn list(&self, request: &ListRequest) -> Result<ListReply> {
        self.capabilities().carry_out("list", request, || self.0.list(request)).await
    }

    async fn evict(&self, request: &EvictRequest) -> Result<EvictReply> {
        self.run("evict", request, |inner, request| async move {
            match request.scope() {
                EvictScope::Exactly { targets, .. } => inner.evict(targets, request.limit()).await,
                EvictScope::Expired(filter) => inner.purge(filter, request.limit()).await,
            }
        })
        .await
    }

    async fn subscribe(&self, _: &[Key]) -> Result<Wakeups> {
        Ok(Wakeups::none())
    }

    async fn close(&self) {
        self.0.rows.close().await;
    }
}

impl<R: NeneRows> Inner<R> {
    /// When an operation that begins now must have ended.
    pub(super) fn deadline(&self) -> Deadline {
        Deadline::after(self.timeout)
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireReply> {
        let key = &request.claims().first().key;
        let owner = owner(request.id());
        let term = request.term().duration().map_or(i64::MAX, micros);
        let until = self.deadline();
        for _ in 0..TRIES {
            let (now, row) = self.look(until, key.as_str()).await?;
            let mut new = NeneRow {
                resource: key.as_str().to_owned(),
                owner: owner.clone(),
                expires_at: self.margin.expires_at(now, term),
                acquired_at: seconds(now),
            };
            let Some(row) = row else {
                if self.insert(until, &new).await? {
                    return Ok(self.granted(&new, now, true));
                }
                continue;
            };
            let is_own = row.owner == owner;
            let is_held = is_own && !self.margin.left(&row, now).is_zero();
            if !is_own && !self.margin.until_free(&row, now).is_zero() {
                return Ok(AcquireReply::Refused(self.refused(key, &row, now)));
            }
            new.resource.clone_from(&row.resource);
            if is_held {
                new.expires_at = new.expires_at.max(row.expires_at);
            }
            let before = is_held.then(|| self.margin.end(&row));
            if new != row && !self.replace(until, &row, &new, before).await? {
                continue;
            }
            if is_held {
                return Ok(self.granted(&new, now, false));
            }
            return Ok(match self.taken_by_another(until, key, &new).await? {
                None => self.granted(&new, now, true),
                Some(refused) => AcquireReply::Refused(refused),
            });
        }
        Ok(AcquireReply::Refused(Refused::new(key.clone(), RefusalReason::Busy, None)))
    }

    /// After a row was taken over, whether a client that had read it before has overwritten it.
    async fn taken_by_another(
        &self,
        until: Deadline,
        key: &Key,
        taken: &NeneRow,
    ) -> Result<Option<Refused>> {
        self.clock.sleep_until(self.clock.now() + self.settle).await;
        let looked = self.look(until.later(self.settle), key.as_str()).await;
        let (now, row) = looked.map_err(|e| e.with_effect(Effect::Unknown))?;
        Ok(match row {
            Some(row) if row.owner == taken.owner => None,
            Some(row) => Some(self.refused(key, &row, now)),
            None => Some(Refused::new(key.clone(), RefusalReason::Busy, None)),
        })
    }

    /// What remains was seen at `now`, before the row was written.
    fn granted(&self, row: &NeneRow, now: i64, fresh: bool) -> AcquireReply {
        let left = Remaining::For(self.margin.left(row, now));
        AcquireReply::Granted(Granted::new(None, left, fresh))
    }

    fn refused(&self, key: &Key, row: &NeneRow, now: i64) -> Refused {
        let holder = self.record(row, now).ok().map(Box::new);
        let after = self.margin.until_free(row, now);
        Refused::new(key.clone(), RefusalReason::Held(holder), Some(after))
    }

    async fn renew(&self, until: Deadline, lease: &RenewEntry) -> Result<RenewOutcome> {
        let key = &lease.claims().first().key;
        let owner = owner(lease.id());
        let to = lease.term().duration().map_or(i64::MAX, micros);
        for _ in 0..TRIES {
            let (now, row) = self.look(until, key.as_str()).await?;
            let Some(row) = row.filter(|row| row.owner == owner) else {
                return Ok(RenewOutcome::Lost(Some(LostReason::Gone)));
            };
            if self.margin.left(&row, now).is_zero() {
                return Ok(RenewOutcome::Lost(Some(LostReason::Expired)));
            }
            let mut new = row.clone();
            new.expires_at = row.expires_at.max(self.margin.expires_at(now, to));
            // A lease that ended while this waited is not revived (C6).
            let before = Some(self.margin.end(&row));
            if new == row || self.replace(until, &row, &new, before).await? {
                return Ok(RenewOutcome::Held(Remaining::For(self.margin.left(&new, now))));
            }
        }
        Err(self.busy())
    }

    async fn release(&self, until: Deadline, lease: &ReleaseEntry) -> Result<ReleaseOutcome> {
        let (resource, owner) = (lease.keys()[0].as_str(), owner(lease.id()));
        let removed = self.remove(until, resource, |row| row.owner == owner).await?;
        Ok(match removed {
            None => ReleaseOutcome::NotHeld,
            Some((now, row)) if self.margin.left(&row, now).is_zero() => ReleaseOutcome::Expired,
            Some(_) => ReleaseOutcome::Released,
        })
    }

    /// Removes the row of a resource, if it is as wanted. Returns it, and the server's clock when it was read.
    pub(super) async fn remove(
        &self,
        until: Deadline,
        resource: &str,
        is_wanted: impl Fn(&NeneRow) -> bool,
    ) -> Result<Option<(i64, NeneRow)>> {
        for _ in 0..TRIES {
            let (now, row) = self.look(until, resource).await?;
            let Some(row) = row.filter(&is_wanted) else { return Ok(None) };
            if self.delete(until, &row).await? {
                return Ok(Some((now, row)));
            }
        }
        Err(self.busy())
    }

    /// The lease of a row, until the end that the row states, as PHP reports it. If its holder is a client of ours, it stops
    /// earlier.
    pub(super) fn record(&self, row: &NeneRow, now: i64) -> Result<Record> {
        let key = Key::new(&row.resource).map_err(|e| {
            let resource = &row.resource;
            let message = format!(
                "the row of {resource:?} is no lock of ours ({e}); only SQL removes the row"
            );
            Error::incompatible(message).with_source(e)
        })?;
        let term = match until(row.expires_at, now) {
            Duration::ZERO => RecordTerm::Expired(Some(since(row.expires_at, now))),
            left => RecordTerm::Live(Remaining::For(left)),
        };
        let mut record = Record::new(key, Mode::Exclusive, term);
        record.id = id(row);
        record.age = Some(since(row.acquired_at, now));
        Ok(record)
    }

    fn busy(&self) -> Error {
        let name = R::NAME;
        let message = format!("{name}: others changed the row again and again; try again");
        Error::unavailable(Effect::NotApplied, message)
    }

    /// Reads the server's clock, in microseconds since 1970-01-01 UTC, and the row of a resource. The row's own resource
    /// differs where the collation of the table does not tell the two apart.
    pub(super) async fn look(
        &self,
        until: Deadline,
        resource: &str,
    ) -> Result<(i64, Option<NeneRow>)> {
        let look = &self.statements.look;
        let Page { now, rows } =
            self.rows.read(until, look, vec![Text(resource.to_owned())]).await?;
        let row = rows.into_iter().next().transpose().map_err(|damaged| damaged.error)?;
        Ok((now, row))
    }

    /// At most `most` rows after a resource, in the table's order.
    pub(super) async fn page(&self, until: Deadline, after: &str, most: usize) -> Result<Page> {
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let values = vec![Text(after.to_owned()), Integer(most)];
        self.rows.read(until, &self.statements.page, values).await
    }

    /// Adds a row, unless there is one of its resource.
    async fn insert(&self, until: Deadline, row: &NeneRow) -> Result<bool> {
        let mut values = as_seen(row);
        values.push(Integer(row.acquired_at));
        self.rows.write(until, &self.statements.insert, values).await
    }

    /// Puts a row in the place of one that is still as it was seen, unless the clock has reached `before` by then: when
    /// nobody else can change the row any more.
    async fn replace(
        &self,
        until: Deadline,
        seen: &NeneRow,
        by: &NeneRow,
        before: Option<i64>,
    ) -> Result<bool> {
        let (owner, before) = (Text(by.owner.clone()), Integer(before.unwrap_or(i64::MAX)));
        let mut values = vec![owner, Integer(by.expires_at), Integer(by.acquired_at)];
        values.extend(as_seen(seen));
        values.push(before);
        self.rows.write(until, &self.statements.replace, values).await
    }

    /// Removes a row that is still as it was seen.
    pub(super) async fn delete(&self, until: Deadline, seen: &NeneRow) -> Result<bool> {
        self.rows.write(until, &self.statements.delete, as_seen(seen)).await
    }
}

/// What identifies the state of a row.
fn as_seen(row: &NeneRow) -> Vec<Value> {
    vec![Text(row.resource.clone()), Text(row.owner.clone()), Integer(row.expires_at)]
}

/// Acts on all entries, many at once, or on one after the other if a key is named twice. `failed` makes an outcome of a
/// failure.
async fn each<'k, T>(
    mut keys: impl Iterator<Item = &'k Key>,
    acts: impl Iterator<Item = impl Future<Output = Result<T>>>,
    failed: fn(Error) -> T,
) -> Vec<T> {
    let mut named = HashSet::new();
    let at_once = if keys.all(|key| named.insert(key)) { AT_ONCE } else { 1 };
    // In their order.
    let permits = Semaphore::new(at_once);
    let act = async |act| {
        let _permit = permits.acquire().await;
        Result::unwrap_or_else(act.await, failed)
    };
    join_all(acts.map(act)).await
}

/// The id of a lease as the table keeps it: admitted ids are text.
fn owner(id: &LeaseId) -> String {
    String::from_utf8_lossy(&id.to_bytes()).into_owned()
}

pub(super) fn id(row: &NeneRow) -> Option<LeaseId> {
    LeaseId::foreign(row.owner.as_bytes()).ok()
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(micros_up(duration)).unwrap_or(i64::MAX)
}

impl<R: NeneRows> fmt::Debug for NeneTable<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NeneTable({})", R::NAME)
    }
}

impl<R> Clone for NeneTable<R> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}
