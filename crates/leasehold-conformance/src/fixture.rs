use std::future::Future;
use std::panic::Location;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use leasehold_core::{Capabilities, Claims, Clock, Mode, Remaining, Store, Ttl};

use crate::attempt::{Attempt, all_of, key, ttl};
use crate::client::Client;
use crate::ended::Ended;
use crate::failure::{ensure, ensure_eq};
use crate::real_time::RealTime;
use crate::{
    Backing, Failure, Fault, Network, Observation, Proxy, Reports, Restarted, Result, Time,
    WallStep,
};

/// A fresh backing state with everything that a case needs.
pub(crate) struct Fixture<B: Backing> {
    backing: B,
    /// The client that most cases use.
    pub(crate) client: Client<B::Store>,
    pub(crate) can: Capabilities,
    pub(crate) reports: Reports,
    time: Time,
    tick: Duration,
    /// When the case began, and how much time it has let pass at the store.
    started: RealTime,
    passed: Mutex<Duration>,
}

/// A client whose connections go through proxies.
pub(crate) struct BehindProxies<S> {
    pub(crate) client: Client<S>,
    /// One before each server.
    pub(crate) proxies: Vec<Proxy>,
}

impl<S> BehindProxies<S> {
    /// Sets the fault at every server from now on.
    pub(crate) fn set(&self, fault: Fault) {
        self.proxies.iter().for_each(|proxy| proxy.set(fault));
    }

    /// Applies a fault to the next request at every server, or to its answer.
    pub(crate) fn once(&self, fault: Fault) {
        self.proxies.iter().for_each(|proxy| proxy.once(fault));
    }

    /// The number of exchanges with each server.
    pub(crate) fn exchanges(&self) -> Vec<usize> {
        self.proxies.iter().map(Proxy::exchanges).collect()
    }
}

impl<B: Backing> Fixture<B> {
    /// Prepares the state and opens a first client. A tick of real time is `longer` times as long as the state demands.
    pub(crate) async fn new(backing: B, reports: Reports, longer: u32) -> Result<Self> {
        let client = Client::new(backing.client().await?, &reports);
        client.store().prepare().await?;
        let can = client.store().capabilities();
        let time = backing.time();
        let tick = match time {
            Time::Manual(_) => Duration::from_secs(1),
            Time::Real { tick } => tick * longer,
        };
        // Many margins fit into a term.
        let tick = tick.max(can.min_term).max(can.margin * 10);
        let (started, passed) = (RealTime::start(), Mutex::default());
        Ok(Self { backing, client, can, reports, time, tick, started, passed })
    }

    /// Opens another client of the same state.
    pub(crate) async fn another(&self) -> Result<Client<B::Store>> {
        Ok(Client::new(self.backing.client().await?, &self.reports))
    }

    /// The duration of `count` ticks.
    pub(crate) fn ticks(&self, count: u32) -> Duration {
        self.tick * count
    }

    /// A term of `ticks` ticks.
    pub(crate) fn ttl(&self, ticks: u32) -> Ttl {
        ttl(self.ticks(ticks))
    }

    /// An attempt at these claims, for a term of ten ticks.
    pub(crate) fn attempt(&self, claims: Claims) -> Attempt {
        Attempt::new(claims, self.ticks(10))
    }

    /// An attempt at one key, for a term of ten ticks.
    pub(crate) fn one(&self, key: &str, mode: Mode) -> Attempt {
        self.attempt(all_of(&[key], mode))
    }

    /// An attempt at one key in exclusive mode, for a term of ten ticks.
    pub(crate) fn exclusive(&self, key: &str) -> Attempt {
        self.one(key, Mode::Exclusive)
    }

    /// An attempt at one key in shared mode, for a term of ten ticks.
    pub(crate) fn shared(&self, key: &str) -> Attempt {
        self.one(key, Mode::SHARED)
    }

    /// An attempt at several keys in exclusive mode, for a term of ten ticks.
    pub(crate) fn exclusive_all(&self, keys: &[&str]) -> Attempt {
        self.attempt(all_of(keys, Mode::Exclusive))
    }

    /// Lets `ticks` ticks and the margin pass at the store: a term of as many ticks has then ended for all.
    pub(crate) async fn pass(&self, ticks: u32) {
        self.pass_for(self.ticks(ticks) + self.can.margin).await;
    }

    /// Lets just less than `ticks` ticks pass at the store.
    pub(crate) async fn pass_almost(&self, ticks: u32) {
        let little = match self.time {
            Time::Manual(_) => self.reports.unit,
            Time::Real { .. } => self.tick,
        };
        self.pass_for(self.ticks(ticks).saturating_sub(little)).await;
    }

    /// Lets `time` pass at the store.
    pub(crate) async fn pass_for(&self, time: Duration) {
        self.backing.advance(time).await;
        *self.passed.lock().unwrap_or_else(PoisonError::into_inner) += time;
    }

    /// Steps the store's wall clock; returns whether that was possible.
    pub(crate) async fn step_wall(&self, step: WallStep) -> Result<bool> {
        self.backing.step_wall(step).await
    }

    /// The store's wall clock in microseconds, if it is the manual one.
    pub(crate) fn wall_micros(&self) -> Option<u64> {
        match &self.time {
            Time::Manual(clock) => Some(clock.wall_micros()),
            Time::Real { .. } => None,
        }
    }

    /// Cuts every client and opens the state again.
    pub(crate) async fn restart(&self) -> Result<Restarted> {
        self.backing.restart().await
    }

    /// Opens a client whose connections the case may disturb, or states how the case ends.
    pub(crate) async fn behind_proxies(&self) -> Result<Result<BehindProxies<B::Store>, Ended>> {
        Ok(match self.backing.network().await? {
            Network::Proxied(store, proxies) => {
                Ok(BehindProxies { client: Client::new(store, &self.reports), proxies })
            }
            Network::None => {
                let why = format!("{} has no network between client and state", self.can.name);
                Err(Ended::NotApplicable(why))
            }
            Network::CannotHere(why) => Err(Ended::CannotHere(why)),
        })
    }

    /// Whether what is over needs no purge.
    pub(crate) fn removes_what_is_over(&self) -> bool {
        self.backing.removes_what_is_over()
    }

    /// Which of several servers decides, if not each does.
    pub(crate) async fn decides(&self) -> Result<Option<usize>> {
        self.backing.decides().await
    }

    /// Ends when every node of a quorum has followed the answers of the majority, so that a fault hits nothing
    /// older.
    pub(crate) async fn followed(&self) -> Result {
        // Observing a quorum waits for that.
        self.observe().await.map(drop)
    }

    /// Reads the state past the seam.
    pub(crate) async fn observe(&self) -> Result<Observation> {
        self.backing.observe().await
    }

    /// Checks that nothing live, and nothing remembered of tokens, has changed since `before`.
    #[track_caller]
    pub(crate) fn unchanged(
        &self,
        before: &Observation,
    ) -> impl Future<Output = Result> + Send + use<'_, B> {
        let at = Location::caller();
        let before = before.clone();
        async move {
            let after = self.backing.observe().await?;
            if before.essence() == after.essence() {
                return Ok(());
            }
            Err(Failure::at(at, format!("the state was {before:?} and is now {after:?}")))
        }
    }

    /// Checks which leases hold `key`, past the seam.
    #[track_caller]
    pub(crate) fn holds(
        &self,
        name: &str,
        expected: &[&Attempt],
    ) -> impl Future<Output = Result> + Send + use<'_, B> {
        let at = Location::caller();
        let key = key(name);
        let mut expected: Vec<_> = expected.iter().map(|lease| Some(lease.id.clone())).collect();
        expected.sort_unstable();
        async move {
            let seen = self.backing.observe().await?;
            let mut found: Vec<_> = seen.live(&key).map(|row| row.id.clone()).collect();
            found.sort_unstable();
            if found == expected {
                return Ok(());
            }
            Err(Failure::at(
                at,
                format!("{key:?} should be held by {expected:?} and is held by {found:?}"),
            ))
        }
    }

    /// Whether time is real and the case took a tick more of it than it let pass: leases that it needs may have
    /// ended.
    pub(crate) fn is_late(&self) -> bool {
        self.late() > self.tick
    }

    /// How much more real time the case took than it let pass.
    fn late(&self) -> Duration {
        let passed = *self.passed.lock().unwrap_or_else(PoisonError::into_inner);
        match self.time {
            Time::Manual(_) => Duration::ZERO,
            Time::Real { .. } => self.started.elapsed().saturating_sub(passed),
        }
    }

    /// Checks a duration that the store reported: to the microsecond on a manual clock, to a tick with a margin, and
    /// less what the case is late in real time.
    #[track_caller]
    pub(crate) fn about(&self, found: Duration, expected: Duration, what: &str) -> Result {
        match self.time {
            Time::Manual(_) if self.can.margin.is_zero() => ensure_eq!(found, expected, "{what}"),
            Time::Manual(_) | Time::Real { .. } => ensure!(
                found <= expected + self.tick && found + self.tick + self.late() >= expected,
                "{what}: expected about {expected:?}, found {found:?}"
            ),
        }
        Ok(())
    }

    /// Checks the remaining term, in ticks.
    #[track_caller]
    pub(crate) fn remains(&self, found: Remaining, ticks: u32, what: &str) -> Result {
        match found {
            Remaining::For(found) => self.about(found, self.ticks(ticks), what),
            Remaining::Never => {
                Err(Failure::new(format!("{what}: expected {ticks} ticks, found never")))
            }
        }
    }
}
