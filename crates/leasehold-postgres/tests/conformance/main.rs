//! The conformance suite on real PostgreSQL servers, each case with its own.

mod clocked;

use std::process::ExitCode;
use std::time::Duration;

use clocked::{Clocked, Servers};
use leasehold_conformance::{
    Backing, Forgets, Network, Observation, Reports, Restarted, Result, Subject, Suite, Time,
    WallStep,
};
use leasehold_core::{Store as _, table};
use leasehold_postgres::{PostgresNeneStore, PostgresStore};
use leasehold_testkit::nene;

fn main() -> ExitCode {
    let suite = Suite::new().on(Postgres { servers: Servers::new() });
    suite.on(Nene { servers: Servers::new() }).main()
}

struct Postgres {
    servers: Servers,
}

/// A schema for one case alone, in a server for it alone.
struct State(Clocked);

impl Subject for Postgres {
    type Backing = State;

    fn name(&self) -> &'static str {
        "postgres"
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
        leasehold_testkit::postgres::program("postgres").err().map(|error| error.to_string())
    }

    fn oracle_operations(&self, _: &Time) -> usize {
        if leasehold_testkit::all() { 20_000 } else { 5_000 }
    }
}

impl Backing for State {
    type Store = PostgresStore;

    async fn client(&self) -> Result<PostgresStore> {
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

    async fn network(&self) -> Result<Network<PostgresStore>> {
        self.0.open_behind_proxy().await
    }
}

/// The table of the PHP library.
struct Nene {
    servers: Servers,
}

struct NeneState(Clocked);

impl Subject for Nene {
    type Backing = NeneState;

    fn name(&self) -> &'static str {
        "postgres-nene"
    }

    async fn open(&self) -> Result<NeneState> {
        let state = self.servers.take_schema().await?;
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
        leasehold_testkit::postgres::program("postgres").err().map(|error| error.to_string())
    }

    fn oracle_operations(&self, _: &Time) -> usize {
        if leasehold_testkit::all() { 20_000 } else { 5_000 }
    }
}

impl Backing for NeneState {
    type Store = PostgresNeneStore;

    async fn client(&self) -> Result<PostgresNeneStore> {
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

    async fn network(&self) -> Result<Network<PostgresNeneStore>> {
        self.0.open_nene_behind_proxy().await
    }
}
