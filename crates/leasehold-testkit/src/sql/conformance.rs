//! The conformance suite's subjects in SQL servers: the table of the leases, and that of the PHP library.

use std::time::Duration;

use futures_util::future::BoxFuture;
use leasehold_conformance::{
    Backing, Forgets, Network, Observation, Pool, Proxy, Reports, Restarted, Result, Subject,
    Suite, Time, WallStep,
};
use leasehold_core::{AnyStore, Clock as _, Store as _};
use leasehold_driver::nene::{NeneConfig, NeneServerConfig};

use super::clocked::{Clocked, ClockedServer};
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
        let Self { names: [leases, nene], start, unavailable } = self;
        let tables = |name, table| Tables { name, table, start, unavailable, servers: Pool::new() };
        suite.on(tables(leases, Table::Leases)).on(tables(nene, Table::Nene))
    }
}

/// Which table of a case.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Table {
    Leases,
    Nene,
}

/// Servers that cases reuse, each case with a schema of its own.
struct Tables<S> {
    name: &'static str,
    table: Table,
    start: fn() -> BoxFuture<'static, Result<S>>,
    unavailable: fn() -> Option<String>,
    servers: Pool<S>,
}

/// The table of one case alone.
struct State<S: ClockedServer> {
    case: Clocked<S>,
    table: Table,
}

impl<S: ClockedServer> Tables<S> {
    async fn take(&self) -> Result<State<S>> {
        let case = Clocked::new(self.servers.take((self.start)()).await?).await?;
        let state = State { case, table: self.table };
        let keeps_the_clock = S::KEEPS_THE_CLOCK || self.table == Table::Nene;
        if keeps_the_clock {
            state.case.create_the_clock().await?;
        }
        state.client().await?.prepare().await?;
        if !keeps_the_clock {
            state.case.create_the_clock().await?;
        }
        Ok(state)
    }
}

impl<S: ClockedServer> State<S> {
    async fn open(&self, port: u16, timeout: Duration) -> Result<AnyStore> {
        let config = S::clocked(port, &self.case.schema, timeout)?;
        Ok(match self.table {
            Table::Leases => AnyStore::new(S::connect_with(config).await?),
            Table::Nene => {
                // Nobody overwrites what he has read before, and the trigger, which must never refuse what the store
                // does, is there.
                let nene = NeneConfig::default().settle(Duration::ZERO).guard(true);
                AnyStore::new(NeneServerConfig::new(config).nene(nene).connect().await?)
            }
        })
    }
}

impl<S: ClockedServer> Subject for Tables<S> {
    type Backing = State<S>;

    fn name(&self) -> &'static str {
        self.name
    }

    async fn open(&self) -> Result<State<S>> {
        self.take().await
    }

    async fn open_forgetting(&self, _: Duration) -> Result<Forgets<State<S>>> {
        Ok(Forgets::Never)
    }

    fn reports(&self) -> Reports {
        let mut reports = match self.table {
            Table::Leases => Reports::all(),
            Table::Nene => nene::reports(),
        };
        reports.own_clock = false;
        reports
    }

    fn unavailable(&self) -> Option<String> {
        (self.unavailable)()
    }

    fn oracle_operations(&self, _: &Time) -> usize {
        if crate::all() { 20_000 } else { 5_000 }
    }
}

impl<S: ClockedServer> Backing for State<S> {
    type Store = AnyStore;

    async fn client(&self) -> Result<AnyStore> {
        self.open(self.case.server.port(), TIMEOUT).await
    }

    fn time(&self) -> Time {
        Time::Manual(self.case.clock.clone())
    }

    fn removes_what_is_over(&self) -> bool {
        false
    }

    async fn advance(&self, by: Duration) {
        self.case.change(|clock| clock.advance(by)).await.expect("the server runs");
    }

    async fn step_wall(&self, step: WallStep) -> Result<bool> {
        self.case.change(|clock| clock.set_wall_micros(step.from(clock.wall_micros()))).await?;
        Ok(true)
    }

    async fn observe(&self) -> Result<Observation> {
        match self.table {
            Table::Leases => self.case.observe().await,
            Table::Nene => self.case.observe_nene().await,
        }
    }

    async fn restart(&self) -> Result<Restarted> {
        self.case.restart().await.map(|()| Restarted::Persisted)
    }

    async fn network(&self) -> Result<Network<AnyStore>> {
        let proxy = Proxy::before(([127, 0, 0, 1], self.case.server.port()).into()).await?;
        let store = self.open(proxy.address().port(), SHORT).await?;
        Ok(Network::Proxied(store, vec![proxy]))
    }
}
