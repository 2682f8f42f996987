//! The conformance suite's subjects in SQL servers: the table of the leases, and that of the PHP library.

use std::future::Future;
use std::marker::PhantomData;
use std::time::Duration;

use futures_util::future::BoxFuture;
use leasehold_conformance::{
    Backing, Forgets, Network, Observation, Pool, Proxy, Reports, Restarted, Result, Subject,
    Suite, Time, WallStep,
};
use leasehold_core::{Clock as _, Store, table};
use leasehold_driver::nene::{NeneConfig, NeneServerConfig};

use super::clocked::{Clocked, ClockedServer};
use super::nene::NeneStore;
use crate::nene;

/// Longer than anything takes: parts of the suite move the clock while others wait.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A time limit that is short for a waiting test, and long for a busy machine.
const SHORT: Duration = Duration::from_secs(10);

/// A kind of server: how one is started, and why none can be.
pub struct Kind<S> {
    /// The names of its two subjects.
    pub names: [&'static str; 2],
    pub start: fn() -> BoxFuture<'static, Result<S>>,
    pub unavailable: fn() -> Option<String>,
}

impl<S: ClockedServer> Kind<S> {
    /// Adds both tables of such a server.
    pub fn add_to(self, suite: Suite) -> Suite {
        let [leases, nene] = self.names;
        let (start, unavailable) = (self.start, self.unavailable);
        let suite = suite.on(Tables::<S, Leases>::new(leases, start, unavailable));
        suite.on(Tables::<S, Nene>::new(nene, start, unavailable))
    }
}

/// One of the tables of a case.
trait Table<S: ClockedServer>: Send + Sync + 'static {
    type Store: Store;

    /// Whether it remembers counters, which it can forget.
    const FORGETS: bool;

    fn reports() -> Reports;

    fn prepare(case: &Clocked<S>, forget_after: Duration) -> impl Future<Output = Result> + Send;

    fn open(
        case: &Clocked<S>,
        port: u16,
        timeout: Duration,
        forget_after: Duration,
    ) -> impl Future<Output = Result<Self::Store>> + Send;

    fn observe(case: &Clocked<S>) -> impl Future<Output = Result<Observation>> + Send;
}

struct Leases;

impl<S: ClockedServer> Table<S> for Leases {
    type Store = S::Store;

    const FORGETS: bool = true;

    fn reports() -> Reports {
        let mut reports = Reports::all();
        reports.own_clock = false;
        reports
    }

    async fn prepare(case: &Clocked<S>, forget_after: Duration) -> Result {
        if S::KEEPS_THE_CLOCK {
            case.create_the_clock().await?;
        }
        <Self as Table<S>>::open(case, case.server.port(), TIMEOUT, forget_after)
            .await?
            .prepare()
            .await?;
        if !S::KEEPS_THE_CLOCK {
            case.create_the_clock().await?;
        }
        Ok(())
    }

    async fn open(
        case: &Clocked<S>,
        port: u16,
        timeout: Duration,
        forget_after: Duration,
    ) -> Result<S::Store> {
        S::open_forgetting(S::clocked(port, &case.schema, timeout)?, forget_after).await
    }

    async fn observe(case: &Clocked<S>) -> Result<Observation> {
        case.observe().await
    }
}

struct Nene;

impl<S: ClockedServer> Table<S> for Nene {
    type Store = NeneStore<S>;

    const FORGETS: bool = false;

    fn reports() -> Reports {
        nene::reports()
    }

    async fn prepare(case: &Clocked<S>, forget_after: Duration) -> Result {
        case.create_the_clock().await?;
        let store = <Self as Table<S>>::open(case, case.server.port(), TIMEOUT, forget_after);
        Ok(store.await?.prepare().await?)
    }

    async fn open(
        case: &Clocked<S>,
        port: u16,
        timeout: Duration,
        _: Duration,
    ) -> Result<NeneStore<S>> {
        // Nobody overwrites what he has read before, and the trigger, which must never refuse what the store does, is there.
        let config = NeneConfig::default().settle(Duration::ZERO).guard(true);
        let server = NeneServerConfig::new(S::clocked(port, &case.schema, timeout)?);
        Ok(server.nene(config).connect().await?)
    }

    async fn observe(case: &Clocked<S>) -> Result<Observation> {
        case.observe_nene().await
    }
}

/// Servers that cases reuse, each case with a schema of its own.
struct Tables<S, T> {
    name: &'static str,
    start: fn() -> BoxFuture<'static, Result<S>>,
    unavailable: fn() -> Option<String>,
    servers: Pool<S>,
    table: PhantomData<T>,
}

/// The table of one case alone.
struct State<S: ClockedServer, T> {
    case: Clocked<S>,
    forget_after: Duration,
    table: PhantomData<T>,
}

impl<S: ClockedServer, T: Table<S>> Tables<S, T> {
    fn new(
        name: &'static str,
        start: fn() -> BoxFuture<'static, Result<S>>,
        unavailable: fn() -> Option<String>,
    ) -> Self {
        Self { name, start, unavailable, servers: Pool::new(), table: PhantomData }
    }

    async fn take(&self, forget_after: Duration) -> Result<State<S, T>> {
        let server = self.servers.take((self.start)()).await?;
        let case = Clocked::new(server).await?;
        T::prepare(&case, forget_after).await?;
        Ok(State { case, forget_after, table: PhantomData })
    }
}

impl<S: ClockedServer, T: Table<S>> Subject for Tables<S, T> {
    type Backing = State<S, T>;

    fn name(&self) -> &'static str {
        self.name
    }

    async fn open(&self) -> Result<State<S, T>> {
        self.take(table::FORGET_AFTER).await
    }

    async fn open_forgetting(&self, forget_after: Duration) -> Result<Forgets<State<S, T>>> {
        if T::FORGETS {
            Ok(Forgets::After(self.take(forget_after).await?))
        } else {
            Ok(Forgets::Never)
        }
    }

    fn reports(&self) -> Reports {
        T::reports()
    }

    fn unavailable(&self) -> Option<String> {
        (self.unavailable)()
    }

    fn oracle_operations(&self, _: &Time) -> usize {
        if crate::all() { 20_000 } else { 5_000 }
    }
}

impl<S: ClockedServer, T: Table<S>> Backing for State<S, T> {
    type Store = T::Store;

    async fn client(&self) -> Result<T::Store> {
        T::open(&self.case, self.case.server.port(), TIMEOUT, self.forget_after).await
    }

    fn time(&self) -> Time {
        Time::Manual(self.case.clock.clone())
    }

    async fn advance(&self, by: Duration) {
        self.case.change(|clock| clock.advance(by)).await.expect("the server runs");
    }

    async fn step_wall(&self, step: WallStep) -> Result<bool> {
        self.case.change(|clock| clock.set_wall_micros(step.from(clock.wall_micros()))).await?;
        Ok(true)
    }

    async fn observe(&self) -> Result<Observation> {
        T::observe(&self.case).await
    }

    async fn restart(&self) -> Result<Restarted> {
        self.case.restart().await.map(|()| Restarted::Persisted)
    }

    async fn network(&self) -> Result<Network<T::Store>> {
        let proxy = Proxy::before(([127, 0, 0, 1], self.case.server.port()).into()).await?;
        let port = proxy.address().port();
        let store = T::open(&self.case, port, SHORT, self.forget_after).await?;
        Ok(Network::Proxied(store, vec![proxy]))
    }
}
