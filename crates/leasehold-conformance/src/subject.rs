use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

use leasehold_core::{
    Clock, FencingToken, GroupName, Key, LeaseId, ManualClock, Mode, Note, Now, Store, Table,
};

use crate::{Proxy, Result};

/// The store under test: it opens fresh, empty backing states.
///
/// [`Backing`] states what a state must offer. Only [`name`](Subject::name) and [`open`](Subject::open) are
/// required; the rest states what this store lacks, or what more can be tried on it.
pub trait Subject: Send + Sync + 'static {
    /// One state of the store: its own file, database or server.
    type Backing: Backing;

    /// The name in reports and of the report file; one word.
    fn name(&self) -> &'static str;

    /// Opens a state without leases and counters. Every case opens its own, and several cases run at the same
    /// time.
    fn open(&self) -> impl Future<Output = Result<Self::Backing>> + Send;

    /// Opens a state that forgets the counter of a key after `forget_after` (C7); by default it is unknown whether the
    /// store does.
    fn open_forgetting(
        &self,
        forget_after: Duration,
    ) -> impl Future<Output = Result<Forgets<Self::Backing>>> + Send {
        let _ = forget_after;
        async { Ok(Forgets::Unknown) }
    }

    /// Why the store cannot be tested here, for instance because its server is not installed; by default it can.
    /// Every case is then *ignored*, or failed if `LEASEHOLD_REQUIRE` names the store.
    fn unavailable(&self) -> Option<String> {
        None
    }

    /// What the store reports beyond what the contract requires; by default everything.
    fn reports(&self) -> Reports {
        Reports::all()
    }

    /// After this long a case that has not ended has failed: longer than any case takes on a busy machine. By
    /// default 20 minutes: the oracle writes some ten thousand times, which a slow disk prolongs.
    fn timeout(&self) -> Duration {
        Duration::from_secs(1_200)
    }

    /// How many operations the oracle compares; by default 100,000, and 2,000 in real time.
    fn oracle_operations(&self, time: &Time) -> usize {
        match time {
            Time::Manual(_) => 100_000,
            Time::Real { .. } => 2_000,
        }
    }
}

/// One backing state, as the suite uses it. Dropping it removes it.
pub trait Backing: Send + Sync + 'static {
    /// The store's own type.
    type Store: Store;

    /// Opens another client of this state, with its own connections if the store has any.
    fn client(&self) -> impl Future<Output = Result<Self::Store>> + Send;

    /// Reads the state past the seam: raw rows by raw SQL, raw commands, or the table itself.
    fn observe(&self) -> impl Future<Output = Result<Observation>> + Send;

    /// Which clock the state uses. Time limits of operations on a manual clock must be long: some parts of the
    /// suite move it while others wait.
    fn time(&self) -> Time;

    /// Lets `by` pass on the store's clock. By default moves the manual clock, or sleeps.
    fn advance(&self, by: Duration) -> impl Future<Output = ()> + Send {
        async move {
            match self.time() {
                Time::Manual(clock) => clock.advance(by),
                Time::Real { .. } => tokio::time::sleep(by).await,
            }
        }
    }

    /// Steps the store's wall clock, as an administrator would, without the clock of terms; returns whether it
    /// could. By default steps the manual clock, if there is one.
    fn step_wall(&self, step: WallStep) -> impl Future<Output = Result<bool>> + Send {
        async move {
            let Time::Manual(clock) = self.time() else { return Ok(false) };
            let now = Clock::wall_micros(&clock);
            clock.set_wall_micros(step.from(now));
            Ok(true)
        }
    }

    /// Closes everything, which cuts every client, and opens the same state again. By default not tried.
    fn restart(&self) -> impl Future<Output = Result<Restarted>> + Send {
        async { Ok(Restarted::NotTried) }
    }

    /// Whether the store removes by itself what has been over for an hour, as long as it is used. By default it does.
    fn removes_what_is_over(&self) -> bool {
        true
    }

    /// Opens a client whose connections all go through proxies, for the faults of a network. By default the store
    /// has no network between its clients and its state.
    fn network(&self) -> impl Future<Output = Result<Network<Self::Store>>> + Send {
        async { Ok(Network::None) }
    }

    /// Behind which of the proxies the server stands that decides, where the others are its replicas: only the exchanges
    /// with that one count (C1), because a driver watches the others too. By default every server is asked.
    fn decides(&self) -> impl Future<Output = Result<Option<usize>>> + Send {
        async { Ok(None) }
    }
}

/// The clock that decides expiry in a [`Backing`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Time {
    /// The store uses this clock for terms and wall time alike, and nothing sleeps. Durations are compared to the
    /// microsecond.
    Manual(ManualClock),
    /// The store uses a clock that cannot be moved. The suite counts in ticks, sleeps them, and compares durations
    /// to about one tick: about twenty operations should fit into a tick.
    Real {
        /// The unit of time.
        tick: Duration,
    },
}

/// Whether a store forgets counters of keys, and after how long (C7).
#[derive(Debug)]
#[expect(clippy::exhaustive_enums, reason = "the suite must handle every answer")]
pub enum Forgets<B> {
    /// This state forgets a counter after the requested time.
    After(B),
    /// The store keeps one mark for all keys, or never forgets a counter.
    Never,
    /// It cannot be set on this subject, by its nature; the text states why.
    CannotHere(String),
    /// Nothing was done to set it.
    Unknown,
}

/// A step of the wall clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "two directions")]
pub enum WallStep {
    /// Into the future.
    Forward(Duration),
    /// Into the past.
    Back(Duration),
}

impl WallStep {
    /// The time after the step, if it is `now`; both in microseconds since 1970-01-01 UTC.
    pub fn from(self, now: u64) -> u64 {
        match self {
            Self::Forward(by) => now.saturating_add(leasehold_core::term::micros_down(by)),
            Self::Back(by) => now.saturating_sub(leasehold_core::term::micros_down(by)),
        }
    }
}

/// What a restart did.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "the suite must handle every outcome")]
pub enum Restarted {
    /// Everything was closed and opened again; stored data must still be there.
    Persisted,
    /// Everything was closed and opened again; the store keeps nothing beyond that, and must be empty.
    Forgot,
    /// This subject cannot be restarted, by its nature; the text states why.
    CannotHere(String),
    /// Nothing was done to restart it.
    NotTried,
}

/// The network between a client and its state.
#[derive(Debug)]
#[expect(clippy::exhaustive_enums, reason = "the suite must handle every answer")]
pub enum Network<S> {
    /// All connections of this client go through these proxies, one before each server, which the suite may
    /// disturb. Its operations must give up within 10 seconds of real time, and not much sooner than a busy
    /// machine needs.
    Proxied(S, Vec<Proxy>),
    /// None: the state is in the process, or in a file.
    None,
    /// It cannot be disturbed on this subject, by its nature; the text states why.
    CannotHere(String),
}

impl<S> Network<S> {
    /// The same network for another client.
    pub fn map<T>(self, client: impl FnOnce(S) -> T) -> Network<T> {
        match self {
            Self::Proxied(store, proxies) => Network::Proxied(client(store), proxies),
            Self::None => Network::None,
            Self::CannotHere(why) => Network::CannotHere(why),
        }
    }
}

/// What a store reports beyond what the contract requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reports {
    /// Records show the group.
    pub group: bool,
    /// Records show the whole note.
    pub note: bool,
    /// Records show their age.
    pub age: bool,
    /// Refusals name the holder.
    pub holder: bool,
    /// The renewal of an evicted lease reports that it was evicted, and why.
    pub evicted: bool,
    /// Keys may be any text, and stand beside any other.
    pub any_key: bool,
    /// How many leases are renewed and released together.
    pub many: usize,
    /// The driver may send a request again whose reply was lost, and hide the loss.
    pub resends: bool,
    /// A release without wake-up wakes nobody. A store whose waiters watch the data cannot tell it from others.
    pub quiet: bool,
    /// How many times a listing shows each record: once, except on a quorum, which shows each node's own.
    pub copies: usize,
    /// Of simultaneous contenders one always wins. In a quorum they may split the nodes, and are then all refused.
    pub winner: bool,
    /// An acquire may hold its keys before it is refused: contenders may split the nodes of a quorum, and what takes a row over and
    /// then looks again may find that its lease has ended.
    pub withdraws: bool,
    /// A purge reports how many counters it forgot. Otherwise they go by themselves, unseen.
    pub forgotten: bool,
    /// Terms use their own clock, which a step of the wall clock does not affect. Otherwise such a step ends them
    /// early or late.
    pub own_clock: bool,
    /// By how much longer than the reply to its holder stated a record shows a lease as live, in a format with a margin (C5).
    pub shown_longer: Duration,
    /// The unit of terms and of the wall clock: the store rounds terms up to a multiple of it.
    pub unit: Duration,
    /// How many exchanges with one server each operation may take (C1).
    pub exchanges: Exchanges,
}

impl Reports {
    /// Everything.
    pub fn all() -> Self {
        Self {
            group: true,
            note: true,
            age: true,
            holder: true,
            evicted: true,
            any_key: true,
            many: 1_000,
            resends: false,
            quiet: true,
            copies: 1,
            winner: true,
            withdraws: false,
            forgotten: true,
            own_clock: true,
            shown_longer: Duration::ZERO,
            unit: Duration::from_micros(1),
            exchanges: Exchanges::one(),
        }
    }

    /// Nothing but what the contract demands.
    pub fn nothing() -> Self {
        Self {
            group: false,
            note: false,
            age: false,
            holder: false,
            evicted: false,
            any_key: true,
            many: 1_000,
            resends: false,
            quiet: true,
            copies: 1,
            winner: true,
            withdraws: false,
            forgotten: true,
            own_clock: true,
            shown_longer: Duration::ZERO,
            unit: Duration::from_micros(1),
            exchanges: Exchanges::one(),
        }
    }
}

/// The most exchanges with one server that each operation may take in steady state (C1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Exchanges {
    /// An acquire that is granted.
    pub acquire: usize,
    /// An acquire that is sent again and confirmed.
    pub confirmation: usize,
    /// An acquire that is refused.
    pub refusal: usize,
    /// A renewal.
    pub renew: usize,
    /// A release.
    pub release: usize,
    /// A release of what is not held.
    pub not_held: usize,
    /// A page of a listing, or a look-up by key.
    pub list: usize,
    /// A purge.
    pub purge: usize,
    /// An eviction of named leases: a quorum repeats it to see that it is done.
    pub evict: usize,
    /// A check.
    pub check: usize,
    /// An operation on a lease of several keys takes so many times as many: a transaction is begun, decided and committed.
    pub several_keys: usize,
    /// A renewal or a release of many leases takes so many for each of them. Otherwise it takes about as many as for one.
    pub each_lease: bool,
}

impl Exchanges {
    /// One for each operation, whatever the number of its leases.
    pub fn one() -> Self {
        Self {
            acquire: 1,
            confirmation: 1,
            refusal: 1,
            renew: 1,
            release: 1,
            not_held: 1,
            list: 1,
            purge: 1,
            evict: 1,
            check: 1,
            several_keys: 1,
            each_lease: false,
        }
    }
}

/// The content of the backing state at one instant.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Observation {
    /// Every (lease, key) row. Expired rows, and marks of evicted leases, may be among them and are then not live.
    pub rows: Vec<Row>,
    /// The highest token of each key that has one; empty for a store without tokens, or with one mark for all keys.
    pub counters: BTreeMap<Key, u64>,
    /// The high-water mark of all tokens, where the store keeps that and no counters.
    pub mark: Option<u64>,
}

/// One row of an [`Observation`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Row {
    /// The key.
    pub key: Key,
    /// The lease; `None` only for a holder without an id.
    pub id: Option<LeaseId>,
    /// How it is held; a limit is not compared.
    pub mode: Mode,
    /// The lease's token, where the store has tokens.
    pub token: Option<FencingToken>,
    /// The row excludes others now, by the store's clock.
    pub live: bool,
    /// The group as stored.
    pub group: Option<GroupName>,
    /// The note as stored.
    pub note: Note,
}

impl Row {
    /// A row without a token, a group or a note.
    pub fn new(key: Key, id: Option<LeaseId>, mode: Mode, live: bool) -> Self {
        Self { key, id, mode, token: None, live, group: None, note: Note::default() }
    }
}

impl Observation {
    /// An observation of these rows and counters.
    pub fn new(rows: Vec<Row>, counters: impl IntoIterator<Item = (Key, u64)>) -> Self {
        let counters = counters.into_iter().filter(|(_, counter)| *counter > 0).collect();
        Self { rows, counters, mark: None }
    }

    /// Adds the high-water mark of all tokens.
    #[must_use]
    pub fn with_mark(mut self, mark: u64) -> Self {
        self.mark = Some(mark);
        self
    }

    /// The content of a table, for stores that keep one.
    pub fn of_table(table: &Table, now: Now) -> Self {
        let rows = table.entries().flat_map(|(key, holders)| {
            holders.iter().map(move |holder| Row {
                key: key.clone(),
                id: holder.id.clone(),
                mode: holder.mode,
                token: Some(holder.token),
                live: table.excludes(holder, now),
                group: holder.group.clone(),
                note: holder.note.clone(),
            })
        });
        Self::new(rows.collect(), []).with_mark(table.mark())
    }

    /// The live rows of `key`.
    pub(crate) fn live<'a>(&'a self, key: &'a Key) -> impl Iterator<Item = &'a Row> + 'a {
        self.rows.iter().filter(move |row| row.live && row.key == *key)
    }

    /// The live rows of the lease `id`.
    pub(crate) fn held<'a>(&'a self, id: &'a LeaseId) -> impl Iterator<Item = &'a Row> + 'a {
        self.rows.iter().filter(move |row| row.live && row.id.as_ref() == Some(id))
    }

    /// What the next token of `key` is above: its counter, or the mark; 0 if there is nothing.
    pub(crate) fn highest(&self, key: &Key) -> u64 {
        self.mark.or_else(|| self.counters.get(key).copied()).unwrap_or(0)
    }

    /// Whether `token` is remembered as the last one of `key`, or among those of other keys.
    pub(crate) fn remembers(&self, key: &Key, token: u64) -> bool {
        match self.mark {
            Some(mark) => mark >= token,
            None => self.counters.get(key) == Some(&token),
        }
    }

    /// The live rows and what is remembered of tokens, in a fixed order, so that two observations can be compared.
    pub(crate) fn essence(&self) -> (Vec<&Row>, &BTreeMap<Key, u64>, Option<u64>) {
        let mut rows: Vec<_> = self.rows.iter().filter(|row| row.live).collect();
        rows.sort_by(|a, b| (&a.key, &a.id).cmp(&(&b.key, &b.id)));
        (rows, &self.counters, self.mark)
    }
}
