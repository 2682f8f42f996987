//! The conformance suite on real MariaDB and MySQL servers, each case with its own.

mod clocked;

use std::process::ExitCode;
use std::time::Duration;

use clocked::{Clocked, Servers};
use leasehold_conformance::{
    Backing, Forgets, Network, Observation, Reports, Restarted, Result, Subject, Suite, Time,
    WallStep,
};
use leasehold_core::{Store as _, table};
use leasehold_mysql::{MysqlNeneStore, MysqlStore};
use leasehold_testkit::mysql::Product;
use leasehold_testkit::nene;

fn main() -> ExitCode {
    let suite = Suite::new().on(Mysql::new(Product::MariaDb)).on(Mysql::new(Product::MySql));
    suite.on(Nene::new(Product::MariaDb)).on(Nene::new(Product::MySql)).main()
}

struct Mysql {
    product: Product,
    servers: Servers,
}

impl Mysql {
    fn new(product: Product) -> Self {
        Self { product, servers: Servers::new(product) }
    }
}

/// A database for one case alone.
struct State(Clocked);

impl Subject for Mysql {
    type Backing = State;

    fn name(&self) -> &'static str {
        match self.product {
            Product::MariaDb => "mariadb",
            Product::MySql => "mysql",
        }
    }

    async fn open(&self) -> Result<State> {
        Ok(State(self.servers.take(table::FORGET_AFTER).await?))
    }

    async fn open_forgetting(&self, forget_after: Duration) -> Result<Forgets<State>> {
        Ok(Forgets::After(State(self.servers.take(forget_after).await?)))
    }

    fn reports(&self) -> Reports {
        let mut reports = Reports::all();
        reports.own_clock = false;
        reports
    }

    fn unavailable(&self) -> Option<String> {
        self.product.program().err().map(|error| error.to_string())
    }

    fn oracle_operations(&self, _: &Time) -> usize {
        if leasehold_testkit::all() { 20_000 } else { 5_000 }
    }
}

impl Backing for State {
    type Store = MysqlStore;

    async fn client(&self) -> Result<MysqlStore> {
        self.0.open().await
    }

    fn time(&self) -> Time {
        Time::Manual(self.0.clock().clone())
    }

    async fn advance(&self, by: Duration) {
        self.0.advance(by).await.expect("the server runs");
    }

    async fn step_wall(&self, step: WallStep) -> Result<bool> {
        self.0.step_wall(step).await?;
        Ok(true)
    }

    async fn observe(&self) -> Result<Observation> {
        self.0.observe().await
    }

    async fn restart(&self) -> Result<Restarted> {
        self.0.restart().await?;
        Ok(Restarted::Persisted)
    }

    async fn network(&self) -> Result<Network<MysqlStore>> {
        self.0.open_behind_proxy().await
    }
}

/// The table of the PHP library.
struct Nene {
    product: Product,
    servers: Servers,
}

impl Nene {
    fn new(product: Product) -> Self {
        Self { product, servers: Servers::new(product) }
    }
}

struct NeneState(Clocked);

impl Subject for Nene {
    type Backing = NeneState;

    fn name(&self) -> &'static str {
        match self.product {
            Product::MariaDb => "mariadb-nene",
            Product::MySql => "mysql-nene",
        }
    }

    async fn open(&self) -> Result<NeneState> {
        let state = self.servers.take_bare(table::FORGET_AFTER).await?;
        state.open_nene().await?.prepare().await?;
        Ok(NeneState(state))
    }

    async fn open_forgetting(&self, _: Duration) -> Result<Forgets<NeneState>> {
        Ok(Forgets::Never)
    }

    fn reports(&self) -> Reports {
        nene::reports()
    }

    fn unavailable(&self) -> Option<String> {
        self.product.program().err().map(|error| error.to_string())
    }

    fn oracle_operations(&self, _: &Time) -> usize {
        if leasehold_testkit::all() { 20_000 } else { 5_000 }
    }
}

impl Backing for NeneState {
    type Store = MysqlNeneStore;

    async fn client(&self) -> Result<MysqlNeneStore> {
        self.0.open_nene().await
    }

    fn time(&self) -> Time {
        Time::Manual(self.0.clock().clone())
    }

    async fn advance(&self, by: Duration) {
        self.0.advance(by).await.expect("the server runs");
    }

    async fn step_wall(&self, step: WallStep) -> Result<bool> {
        self.0.step_wall(step).await?;
        Ok(true)
    }

    async fn observe(&self) -> Result<Observation> {
        self.0.observe_nene().await
    }

    async fn restart(&self) -> Result<Restarted> {
        self.0.restart().await?;
        Ok(Restarted::Persisted)
    }

    async fn network(&self) -> Result<Network<MysqlNeneStore>> {
        self.0.open_nene_behind_proxy().await
    }
}
