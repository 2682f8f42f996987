//! A store in a map, for exclusive locks of one key: the code of `docs/adding-a-store.md`.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold::store::term::micros_up;
use leasehold::store::{
    AcquireReply, AcquireRequest, Capabilities, Clock, Cursor, EvictReply, EvictRequest,
    EvictScope, EvictTarget, Expired, FencingToken, Filter, Granted, GroupName, Health, Key,
    LeaseId, Level, ListReply, ListRequest, LostReason, ManualClock, Mode, Note, Now, Record,
    RecordTerm, RefusalReason, Refused, ReleaseEntry, ReleaseOutcome, ReleaseReply, ReleaseRequest,
    Remaining, RenewEntry, RenewOutcome, RenewReply, RenewRequest, Result, Store, Wakeups,
};
use leasehold_conformance::{
    Backing, Forgets, Observation, Reports, Restarted, Result as Tried, Row, Subject, Time,
};

/// One row for each key that was ever granted.
type Rows = BTreeMap<Key, ToyRow>;

#[derive(Debug, Default)]
struct ToyRow {
    /// The highest token. It outlives every lease (C7).
    counter: u64,
    lease: Option<ToyLease>,
}

#[derive(Debug)]
struct ToyLease {
    id: LeaseId,
    token: FencingToken,
    group: Option<GroupName>,
    note: Note,
    /// On the clock of terms, in whole microseconds.
    until: Duration,
    /// On the wall clock, in microseconds.
    granted: u64,
    renewed: Option<u64>,
}

impl ToyLease {
    /// At exactly its term a lease is over (C6).
    fn is_live(&self, now: Now) -> bool {
        now.boot < self.until
    }

    fn rest(&self, now: Now) -> Duration {
        self.until.saturating_sub(now.boot)
    }

    /// Never shortens (C6).
    fn extend(&mut self, until: Duration, now: Now) {
        self.until = self.until.max(until);
        self.renewed = Some(now.wall_micros);
    }
}

/// When a term that begins now ends. It is rounded up: no lease ends sooner than requested.
fn end(now: Now, term: Duration) -> Duration {
    Duration::from_micros(micros_up(now.boot + term))
}

fn acquire(rows: &mut Rows, request: &AcquireRequest, now: Now) -> Result<AcquireReply> {
    let key = &request.claims().first().key;
    let until = end(now, request.term().duration().expect("admitted terms are finite"));
    let row = rows.entry(key.clone()).or_default();
    // An expired lease is absent, purged or not (C5).
    if let Some(lease) = row.lease.as_mut().filter(|lease| lease.is_live(now)) {
        if lease.id != *request.id() {
            let why = RefusalReason::Held(Some(Box::new(record(key, lease, now))));
            let retry_after = Some(lease.rest(now));
            return Ok(AcquireReply::Refused(Refused::new(key.clone(), why, retry_after)));
        }
        // The same attempt again: its reply was lost (C3).
        lease.extend(until, now);
        let remaining = Remaining::For(lease.rest(now));
        return Ok(AcquireReply::Granted(Granted::new(Some(lease.token), remaining, false)));
    }
    // Drawn only now that the key is won (C7).
    let token = FencingToken::new(now.wall_micros.max(row.counter + 1))?;
    row.counter = token.get();
    row.lease = Some(ToyLease {
        id: request.id().clone(),
        token,
        group: request.group().cloned(),
        note: request.note().clone(),
        until,
        granted: now.wall_micros,
        renewed: None,
    });
    let remaining = Remaining::For(until - now.boot);
    Ok(AcquireReply::Granted(Granted::new(Some(token), remaining, true)))
}

fn renew(rows: &mut Rows, renewal: &RenewEntry, now: Now) -> RenewOutcome {
    let row = rows.get_mut(&renewal.claims().first().key);
    let row = row.filter(|row| row.lease.as_ref().is_some_and(|l| l.id == *renewal.id()));
    let Some(ToyRow { counter, lease: Some(lease) }) = row else {
        return RenewOutcome::Lost(Some(LostReason::Gone));
    };
    // Never revived, even if nobody took the key (C6).
    if !lease.is_live(now) {
        return RenewOutcome::Lost(Some(LostReason::Expired));
    }
    if let Some(raise) = renewal.raise() {
        lease.token = lease.token.max(raise);
        *counter = raise.get().max(*counter);
    }
    let to = renewal.term().duration().expect("admitted terms are finite");
    lease.extend(end(now, to), now);
    RenewOutcome::Held(Remaining::For(lease.rest(now)))
}

fn release(rows: &mut Rows, ending: &ReleaseEntry, now: Now) -> ReleaseOutcome {
    let row = ending.keys().first().and_then(|key| rows.get_mut(key));
    // Compares the id: nobody releases another's lease (C8).
    match row.and_then(|row| row.lease.take_if(|lease| lease.id == *ending.id())) {
        Some(lease) if lease.is_live(now) => ReleaseOutcome::Released,
        Some(_) => ReleaseOutcome::Expired,
        None => ReleaseOutcome::NotHeld,
    }
}

fn record(key: &Key, lease: &ToyLease, now: Now) -> Record {
    let term = if lease.is_live(now) {
        RecordTerm::Live(Remaining::For(lease.rest(now)))
    } else {
        RecordTerm::Expired(Some(now.boot - lease.until))
    };
    let since = |then: u64| Duration::from_micros(now.wall_micros.saturating_sub(then));
    let mut record = Record::new(key.clone(), Mode::Exclusive, term);
    record.id = Some(lease.id.clone());
    record.token = Some(lease.token);
    record.group = lease.group.clone();
    record.note = lease.note.clone();
    record.age = Some(since(lease.granted));
    record.renewed = lease.renewed.map(since);
    record
}

fn list(rows: &Rows, request: &ListRequest, now: Now) -> Result<ListReply> {
    let after = request.cursor().map(Cursor::position).transpose()?;
    let mut found = rows
        .iter()
        .filter(|(key, _)| after.as_ref().is_none_or(|(last, _)| *key > last))
        .filter_map(|(key, row)| Some(record(key, row.lease.as_ref()?, now)))
        .filter(|record| request.filter().matches(record));
    let records: Vec<_> = found.by_ref().take(request.limit()).collect();
    let next = found.next().and(records.last()).map(Cursor::after);
    Ok(ListReply::new(records, next))
}

fn evict(rows: &mut Rows, request: &EvictRequest, now: Now) -> EvictReply {
    match request.scope() {
        EvictScope::Expired(filter) => purge(rows, filter, request.limit(), now),
        EvictScope::Exactly { targets, .. } => {
            let named = targets.iter().take(request.limit());
            let removed = named.filter(|target| end_exactly(rows, target)).cloned().collect();
            EvictReply::new(removed, 0, targets.len() > request.limit())
        }
    }
}

/// Takes out what has expired and matches; the counters stay.
fn purge(rows: &mut Rows, filter: &Filter, limit: usize, now: Now) -> EvictReply {
    let wanted = filter.clone().with_expired(Expired::Only);
    let mut removed = Vec::new();
    for (key, row) in rows {
        if removed.len() == limit {
            break;
        }
        let over = row.lease.take_if(|lease| wanted.matches(&record(key, lease, now)));
        removed.extend(over.map(|lease| EvictTarget::of(&record(key, &lease, now))));
    }
    let more = removed.len() == limit;
    EvictReply::new(removed, 0, more)
}

/// Takes out this lease and no other.
fn end_exactly(rows: &mut Rows, target: &EvictTarget) -> bool {
    let row = rows.get_mut(&target.key);
    let lease = row.and_then(|row| {
        row.lease.take_if(|lease| {
            target.id.as_ref() == Some(&lease.id)
                && target.token.is_none_or(|token| token == lease.token)
        })
    });
    lease.is_some()
}

/// Clones share their leases.
#[derive(Debug, Clone)]
struct ToyStore {
    rows: Arc<Mutex<Rows>>,
    clock: Arc<dyn Clock>,
}

impl ToyStore {
    fn new(clock: Arc<dyn Clock>) -> Self {
        Self { rows: Arc::default(), clock }
    }

    /// The rows and the store's own time, read when the rows are ours (C4).
    fn enter(&self) -> (MutexGuard<'_, Rows>, Now) {
        let rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Now::read(&*self.clock);
        (rows, now)
    }
}

impl Store for ToyStore {
    fn capabilities(&self) -> Capabilities {
        let mut can = Capabilities::none("toy");
        can.tokens = true;
        can.raise = true;
        can.reports_expired = true;
        can
    }

    async fn check(&self) -> Result<Health> {
        let mut health = Health::new(Level::Fenced);
        // Its leases and its clients end together, so nothing that a client knows of is forgotten.
        health.durable = true;
        Ok(health)
    }

    async fn prepare(&self) -> Result<()> {
        Ok(())
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireReply> {
        self.capabilities().admit(request)?;
        let (mut rows, now) = self.enter();
        acquire(&mut rows, request, now)
    }

    async fn renew(&self, request: &RenewRequest) -> Result<RenewReply> {
        self.capabilities().admit(request)?;
        let (mut rows, now) = self.enter();
        let leases = request.leases().iter().map(|lease| renew(&mut rows, lease, now));
        Ok(RenewReply::new(leases.collect()))
    }

    async fn release(&self, request: &ReleaseRequest) -> Result<ReleaseReply> {
        self.capabilities().admit(request)?;
        let (mut rows, now) = self.enter();
        let leases = request.leases().iter().map(|lease| release(&mut rows, lease, now));
        Ok(ReleaseReply::new(leases.collect()))
    }

    async fn list(&self, request: &ListRequest) -> Result<ListReply> {
        self.capabilities().admit(request)?;
        let (rows, now) = self.enter();
        list(&rows, request, now)
    }

    async fn evict(&self, request: &EvictRequest) -> Result<EvictReply> {
        self.capabilities().admit(request)?;
        let (mut rows, now) = self.enter();
        Ok(evict(&mut rows, request, now))
    }

    async fn subscribe(&self, _: &[Key]) -> Result<Wakeups> {
        Ok(Wakeups::none())
    }
}

/// The store under test.
struct Toy;

impl Subject for Toy {
    type Backing = ToyState;

    fn name(&self) -> &'static str {
        "toy"
    }

    async fn open(&self) -> Tried<ToyState> {
        let clock = ManualClock::new();
        Ok(ToyState { store: ToyStore::new(Arc::new(clock.clone())), clock })
    }

    /// Its counters stay for ever.
    async fn open_forgetting(&self, _: Duration) -> Tried<Forgets<ToyState>> {
        Ok(Forgets::Never)
    }

    /// It keeps no mark of a lease that was ended by force.
    fn reports(&self) -> Reports {
        let mut reports = Reports::all();
        reports.evicted = false;
        reports
    }
}

/// One map and its clock.
struct ToyState {
    store: ToyStore,
    clock: ManualClock,
}

impl Backing for ToyState {
    type Store = ToyStore;

    async fn client(&self) -> Tried<ToyStore> {
        Ok(self.store.clone())
    }

    fn time(&self) -> Time {
        Time::Manual(self.clock.clone())
    }

    async fn observe(&self) -> Tried<Observation> {
        let (rows, now) = self.store.enter();
        let leases = rows.iter().filter_map(|(key, row)| {
            let lease = row.lease.as_ref()?;
            let id = Some(lease.id.clone());
            let mut row = Row::new(key.clone(), id, Mode::Exclusive, lease.is_live(now));
            row.token = Some(lease.token);
            row.group = lease.group.clone();
            row.note = lease.note.clone();
            Some(row)
        });
        let counters = rows.iter().map(|(key, row)| (key.clone(), row.counter));
        Ok(Observation::new(leases.collect(), counters))
    }

    /// The map ends with its process.
    async fn restart(&self) -> Tried<Restarted> {
        self.store.enter().0.clear();
        Ok(Restarted::Forgot)
    }
}

fn main() -> ExitCode {
    leasehold_conformance::main(Toy)
}
