use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use leasehold_core::term::micros_up;
use leasehold_core::{
    AcquireReply, AcquireRequest, Capabilities, Cursor, Effect, Error, ErrorKind, EvictReply,
    EvictRequest, EvictScope, EvictTarget, Expired, FencingToken, Filter, Health, Key, ListReply,
    ListRequest, Mode, Record, ReleaseEntry, ReleaseOutcome, ReleaseReply, ReleaseRequest,
    RenewEntry, RenewOutcome, RenewReply, RenewRequest, Result, Store, Wakeups,
};
use redis::Value;

use crate::argument::Argument;
use crate::names::{Name, Names};
use crate::page::Position;
use crate::replies::Reader;
use crate::scripts::{self, Script};
use crate::servers::Servers;
use crate::{RedisConfig, error, text, wakeups};

/// The store's name, as in its URL.
pub(crate) const NAME: &str = "redis";

/// Leases in a Redis server, or in the nodes of a Redis Cluster. Cheap to clone; clones share the connections.
///
/// Requests of all callers travel over one connection to a server, pipelined; it is made again when it breaks. A request
/// is sent once, but for one that a cluster's node did not carry out and sent on: if its answer is lost, the error's
/// effect is `Unknown`, and the same request may be sent again.
///
/// # Cancel safety
/// The future of any operation may be dropped: what was sent is carried out all the same, and no other caller notices.
#[derive(Clone)]
pub struct RedisStore(Arc<Inner>);

struct Inner {
    servers: Servers,
    names: Names,
    /// In milliseconds; empty is never.
    forget_after: String,
    allow_eviction: bool,
    /// Where the next purge goes on, so that each of many small ones need not begin anew.
    purged_to: Mutex<Position>,
}

/// So many leases, keys or records go into one run of a script, which keeps the server from all else meanwhile. Runs of
/// one operation are sent together.
const CHUNK: usize = 100;
/// How many keys of the server one step of a scan looks at.
const STEP: u64 = 500;
/// How many steps one listing or purge takes before it gives what it has.
const STEPS: usize = 128;

impl RedisStore {
    /// Connects to the server that `url` names; see [`RedisConfig::from_url`].
    ///
    /// # Errors
    /// As [`RedisConfig::from_url`] and [`RedisConfig::open`].
    ///
    /// # Cancel safety
    /// May be dropped; nothing stays open.
    pub async fn from_url(url: &str) -> Result<Self> {
        RedisConfig::from_url(url).map_err(|e| e.with_context(NAME, "open"))?.open().await
    }

    pub(crate) async fn start(
        servers: Servers,
        names: Names,
        forget_after: Option<Duration>,
        allow_eviction: bool,
    ) -> Result<Self> {
        servers.connect().await.map_err(|e| e.with_context(NAME, "open"))?;
        let forget_after = forget_after.map(|after| micros_up(after).div_ceil(1_000).to_string());
        let forget_after = forget_after.unwrap_or_default();
        let purged_to = Mutex::default();
        Ok(Self(Arc::new(Inner { servers, names, forget_after, allow_eviction, purged_to })))
    }

    fn reader(&self) -> Reader<'_> {
        Reader(self.0.servers.name())
    }

    async fn run(
        &self,
        script: &Script,
        names: &[Name],
        arguments: &[Argument<'_>],
    ) -> Result<Value> {
        self.0.servers.run(script, names, arguments).await
    }

    fn names<'a>(&self, keys: impl IntoIterator<Item = &'a Key>) -> Result<Vec<Name>> {
        keys.into_iter().map(|key| self.0.names.of(key)).collect()
    }

    fn forget_after(&self) -> Argument<'_> {
        self.0.forget_after.as_str().into()
    }

    async fn acquire_all(&self, request: &AcquireRequest) -> Result<AcquireReply> {
        let claims = request.claims();
        let names = self.names(claims.keys())?;
        let note = text::of_holder(request.group(), request.note());
        let term = request.term().duration().unwrap_or_default();
        let mut arguments = Vec::with_capacity(5 + 2 * claims.len());
        arguments.extend([
            request.id().into(),
            micros_up(term).into(),
            note.into(),
            self.forget_after(),
            Argument::Quarantine,
        ]);
        for claim in claims {
            let (mode, max) = match claim.mode {
                Mode::Exclusive => ("x", 0),
                Mode::Shared { max } => ("s", max.map_or(0, |max| u64::from(max.get()))),
            };
            arguments.extend([mode.into(), max.into()]);
        }
        let reply = self.run(&scripts::ACQUIRE, &names, &arguments).await?;
        self.reader().acquired(claims, request.id(), reply)
    }

    async fn renew_some(&self, leases: &[&RenewEntry]) -> Result<Vec<RenewOutcome>> {
        let names = self.names(leases.iter().flat_map(|lease| lease.claims().keys()))?;
        let mut arguments = vec![self.forget_after()];
        for lease in leases {
            let modes: String = lease
                .claims()
                .iter()
                .map(|claim| if claim.mode.is_shared() { 's' } else { 'x' })
                .collect();
            arguments.extend([
                lease.id().into(),
                lease.to().duration().map_or(0, micros_up).into(),
                lease.raise().map_or(0, FencingToken::get).into(),
                text::of_holder(lease.group(), lease.note()).into(),
                modes.into(),
            ]);
        }
        let replies = self.reader().array(self.run(&scripts::RENEW, &names, &arguments).await?)?;
        let read = leases.iter().zip(replies);
        read.map(|(lease, reply)| self.reader().renewed(lease.claims(), lease.id(), reply))
            .collect()
    }

    async fn release_some(&self, leases: &[&ReleaseEntry]) -> Result<Vec<ReleaseOutcome>> {
        let names = self.names(leases.iter().flat_map(|lease| lease.keys()))?;
        let mut arguments = Vec::with_capacity(1 + 3 * leases.len());
        arguments.push(self.forget_after());
        for lease in leases {
            let keys = u64::try_from(lease.keys().len()).unwrap_or(u64::MAX);
            arguments.extend([
                lease.id().into(),
                lease.keep().map_or(0, micros_up).into(),
                keys.into(),
            ]);
        }
        let replies =
            self.reader().array(self.run(&scripts::RELEASE, &names, &arguments).await?)?;
        replies.into_iter().map(|reply| self.reader().released(reply)).collect()
    }

    /// Runs `act` at once on chunks that one script may have together; fails as a whole only if that is true of every
    /// entry.
    async fn chunks<'a, I, O, F: Future<Output = Result<Vec<O>>>>(
        &self,
        entries: &'a [I],
        names: impl Fn(&'a I) -> Result<Vec<Name>>,
        act: impl Fn(Vec<&'a I>) -> F,
        failed: impl Fn(Error) -> O,
    ) -> Result<Vec<O>> {
        if let [entry] = entries {
            return act(vec![entry]).await;
        }
        let (mut together, mut apart) = (BTreeMap::new(), Vec::new());
        for (at, entry) in entries.iter().enumerate() {
            match names(entry).and_then(|names| self.0.servers.slot(&names)) {
                Ok(slot) => together.entry(slot).or_insert_with(Vec::new).push(at),
                Err(error) => apart.push((at, Err(error))),
            }
        }
        let chunks: Vec<&[usize]> = together.values().flat_map(|all| all.chunks(CHUNK)).collect();
        let outcomes = join_all(
            chunks
                .iter()
                .map(|chunk| act(chunk.iter().filter_map(|at| entries.get(*at)).collect())),
        );
        let mut all: Vec<(usize, Result<O>)> = apart;
        for (chunk, outcome) in chunks.iter().zip(outcomes.await) {
            match outcome {
                Ok(outcome) if outcome.len() == chunk.len() => {
                    all.extend(chunk.iter().copied().zip(outcome.into_iter().map(Ok)));
                }
                Ok(_) => return Err(error::odd(self.0.servers.name(), "the number of outcomes")),
                Err(error) => all.extend(chunk.iter().map(|at| (*at, Err(error.clone())))),
            }
        }
        all.sort_by_key(|(at, _)| *at);
        let (mut done, mut failures) = (Vec::new(), Vec::new());
        for (_, outcome) in all {
            done.push(outcome.unwrap_or_else(|error| {
                failures.push(error.clone());
                failed(error)
            }));
        }
        if failures.len() < done.len() { Ok(done) } else { worst(failures).map_or(Ok(done), Err) }
    }

    /// The records of keys that were named, in the order of keys and ids.
    async fn look_up(&self, keys: &[Key]) -> Result<Vec<Record>> {
        let mut keys = keys.to_vec();
        keys.sort_unstable();
        keys.dedup();
        let found = self
            .chunks(&keys, |key| self.names([key]), |keys| self.look_up_some(keys), Err)
            .await?;
        let mut records = Vec::new();
        for of_key in found {
            records.extend(of_key?);
        }
        records.sort_by_cached_key(Cursor::after);
        Ok(records)
    }

    async fn look_up_some(&self, keys: Vec<&Key>) -> Result<Vec<Result<Vec<Record>>>> {
        let names = self.names(keys.iter().copied())?;
        self.reader().listed(&keys, self.run(&scripts::LIST, &names, &[]).await?)
    }

    /// One step of a scan: where that was, where it goes on, and its records in the order of keys and ids.
    async fn scan(
        &self,
        at: Position,
        filter: &Filter,
    ) -> Result<(Position, Option<Position>, Vec<Record>)> {
        let names = &self.0.names;
        let pattern = names.pattern(filter.key_prefix());
        let prefix = names.prefix().to_owned();
        let arguments = |from: u64| vec![from.into(), pattern.into(), STEP.into(), prefix.into()];
        let (reply, at) = self.0.servers.scan(at, arguments).await?;
        let (next, found) = self.reader().scanned(|name| names.key(name), reply)?;
        let mut records = Vec::new();
        for (key, of_key) in found {
            match of_key {
                Ok(of_key) => records.extend(of_key),
                // It may have been listed neither where it was nor where it will be.
                Err(error) if error.kind() == ErrorKind::Unavailable => return Err(error),
                // One spoilt key hides no other.
                Err(error) => tracing::warn!(%key, %error, "a lock cannot be listed"),
            }
        }
        records.sort_by_cached_key(Cursor::after);
        let next = self.0.servers.after(at.clone(), next);
        Ok((at, next, records))
    }

    async fn list_named(&self, keys: &[Key], request: &ListRequest) -> Result<ListReply> {
        let after = request.cursor().map(Cursor::as_bytes);
        let found = self.look_up(keys).await?.into_iter();
        let mut left = found.filter(|record| {
            request.filter().matches(record)
                && after.is_none_or(|after| Cursor::after(record).as_bytes() > after)
        });
        let records: Vec<_> = left.by_ref().take(request.limit()).collect();
        let next = left.next().and(records.last()).map(Cursor::after);
        Ok(ListReply::new(records, next))
    }

    async fn list_scanned(&self, request: &ListRequest) -> Result<ListReply> {
        let mut at = request.cursor().map(Position::of).transpose()?.unwrap_or_default();
        let mut records = Vec::new();
        for _ in 0..STEPS {
            let (here, next, found) = self.scan(at, request.filter()).await?;
            at = here;
            for record in found {
                let here = Cursor::after(&record).as_bytes().to_vec();
                if !request.filter().matches(&record)
                    || at.shown.as_ref().is_some_and(|shown| here <= *shown)
                {
                    continue;
                }
                if records.len() == request.limit() {
                    return Ok(ListReply::new(records, Some(at.cursor())));
                }
                at.shown = Some(here);
                records.push(record);
            }
            match next {
                Some(next) => at = next,
                None => return Ok(ListReply::new(records, None)),
            }
        }
        Ok(ListReply::new(records, Some(at.cursor())))
    }

    async fn evict_exactly(
        &self,
        request: &EvictRequest,
        targets: &[EvictTarget],
        note: &str,
    ) -> Result<EvictReply> {
        let named = &targets[..targets.len().min(request.limit())];
        let name = |target: &EvictTarget| self.names([&target.key]);
        let evicted =
            self.chunks(named, name, |targets| self.evict_some(targets, note), Err).await?;
        let removed = removed(named, evicted)?;
        Ok(EvictReply::new(removed, 0, named.len() < targets.len()))
    }

    async fn evict_some(
        &self,
        targets: Vec<&EvictTarget>,
        note: &str,
    ) -> Result<Vec<Result<bool>>> {
        let names = self.names(targets.iter().map(|target| &target.key))?;
        let mut arguments = vec![self.forget_after(), note.into()];
        for target in targets {
            arguments.extend([
                id_of(target),
                u64::from(target.id.is_some()).into(),
                target.token.map_or(0, FencingToken::get).into(),
            ]);
        }
        self.reader().done(self.run(&scripts::EVICT, &names, &arguments).await?)
    }

    /// Counters go by themselves, with the expiry of their book.
    async fn purge(&self, filter: &Filter, limit: usize) -> Result<EvictReply> {
        let filter = &filter.clone().with_expired(Expired::Only);
        let mut removed = Vec::new();
        if let Some(keys) = filter.keys() {
            let mut over: Vec<_> = self.look_up(keys).await?;
            over.retain(|record| filter.matches(record));
            let more = over.len() > limit;
            over.truncate(limit);
            return Ok(EvictReply::new(self.purge_records(&over).await?, 0, more));
        }
        let mut at = self.purged_to().clone();
        let mut more = true;
        for _ in 0..STEPS {
            let (here, next, mut over) = self.scan(at, filter).await?;
            over.retain(|record| filter.matches(record));
            let left = limit - removed.len();
            if over.len() >= left {
                over.truncate(left);
                removed.extend(self.purge_records(&over).await?);
                at = here;
                break;
            }
            removed.extend(self.purge_records(&over).await?);
            more = next.is_some();
            at = next.unwrap_or_default();
            if !more {
                break;
            }
        }
        *self.purged_to() = at;
        Ok(EvictReply::new(removed, 0, more))
    }

    fn purged_to(&self) -> MutexGuard<'_, Position> {
        self.0.purged_to.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn purge_records(&self, over: &[Record]) -> Result<Vec<EvictTarget>> {
        let targets: Vec<_> = over.iter().map(EvictTarget::of).collect();
        if targets.is_empty() {
            return Ok(targets);
        }
        let name = |target: &EvictTarget| self.names([&target.key]);
        let purged = self.chunks(&targets, name, |targets| self.purge_some(targets), Err).await?;
        removed(&targets, purged)
    }

    async fn purge_some(&self, targets: Vec<&EvictTarget>) -> Result<Vec<Result<bool>>> {
        let names = self.names(targets.iter().map(|target| &target.key))?;
        let mut arguments = vec![self.forget_after()];
        arguments.extend(targets.iter().map(|target| id_of(target)));
        self.reader().done(self.run(&scripts::PURGE, &names, &arguments).await?)
    }
}

/// Which of `targets` are gone. A failure of one is that of all only if nothing was removed.
fn removed(targets: &[EvictTarget], done: Vec<Result<bool>>) -> Result<Vec<EvictTarget>> {
    let mut removed = Vec::new();
    let mut failures = Vec::new();
    for (target, done) in targets.iter().zip(done) {
        match done {
            Ok(true) => removed.push(target.clone()),
            Ok(false) => {}
            Err(error) => failures.push(error),
        }
    }
    match worst(failures) {
        Some(error) if removed.is_empty() => Err(error),
        _ => Ok(removed),
    }
}

/// The failure that stands for many: one that may have acted before one that did not.
fn worst(failures: Vec<Error>) -> Option<Error> {
    failures.into_iter().max_by_key(|failure| {
        (failure.effect() == Effect::Unknown, failure.kind() == ErrorKind::Unavailable)
    })
}

fn id_of(target: &EvictTarget) -> Argument<'_> {
    target.id.as_ref().map_or_else(|| "".into(), Argument::from)
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedisStore({})", self.0.servers.name())
    }
}

impl Store for RedisStore {
    fn capabilities(&self) -> Capabilities {
        let mut can = Capabilities::none(NAME);
        can.shared = true;
        can.shared_limit = true;
        can.many_keys = true;
        can.never = true;
        can.keep = true;
        can.tokens = true;
        can.notifications = true;
        can.in_order = true;
        can.reports_expired = true;
        can
    }

    async fn check(&self) -> Result<Health> {
        let checked = self.0.servers.check(self.0.allow_eviction).await;
        checked.map_err(|e| e.with_context(NAME, "check"))
    }

    /// There is nothing to make: this connects.
    async fn prepare(&self) -> Result<()> {
        self.0.servers.connect().await.map_err(|e| e.with_context(NAME, "prepare"))
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireReply> {
        self.capabilities().admit(request)?;
        self.acquire_all(request).await.map_err(|e| e.with_context(NAME, "acquire"))
    }

    async fn renew(&self, request: &RenewRequest) -> Result<RenewReply> {
        self.capabilities().admit(request)?;
        let renewed = self.chunks(
            request.leases(),
            |lease| self.names(lease.claims().keys()),
            |leases| async move { self.renew_some(&leases).await },
            RenewOutcome::Failed,
        );
        renewed.await.map(RenewReply::new).map_err(|e| e.with_context(NAME, "renew"))
    }

    async fn release(&self, request: &ReleaseRequest) -> Result<ReleaseReply> {
        self.capabilities().admit(request)?;
        let released = self.chunks(
            request.leases(),
            |lease| self.names(lease.keys()),
            |leases| async move { self.release_some(&leases).await },
            ReleaseOutcome::Failed,
        );
        released.await.map(ReleaseReply::new).map_err(|e| e.with_context(NAME, "release"))
    }

    async fn list(&self, request: &ListRequest) -> Result<ListReply> {
        self.capabilities().admit(request)?;
        let listed = match request.filter().keys() {
            Some(keys) => self.list_named(keys, request).await,
            None => self.list_scanned(request).await,
        };
        listed.map_err(|e| e.with_context(NAME, "list"))
    }

    async fn evict(&self, request: &EvictRequest) -> Result<EvictReply> {
        self.capabilities().admit(request)?;
        let evicted = match request.what() {
            EvictScope::Exactly { targets, reason } => {
                self.evict_exactly(request, targets, &text::of_evicted(reason.as_ref())).await
            }
            EvictScope::Expired(filter) => self.purge(filter, request.limit()).await,
        };
        evicted.map_err(|e| e.with_context(NAME, "evict"))
    }

    async fn subscribe(&self, keys: &[Key]) -> Result<Wakeups> {
        let channels = keys.iter().map(|key| Ok((key.clone(), self.0.names.of(key)?.channel())));
        let channels: Vec<_> = channels.collect::<Result<_>>()?;
        let subscribed = wakeups::subscribe(&self.0.servers, channels).await;
        subscribed.map_err(|e| e.with_context(NAME, "subscribe"))
    }
}
