//! The conformance suite on quorums of 3 and 5 real Redis servers, without and with tokens.

mod clocked;
mod server;
#[path = "../../leasehold-quorum/tests/settled/mod.rs"]
mod settled;

use std::process::ExitCode;
use std::time::Duration;

use clocked::{Clocked, Layout, Pool};
use leasehold_conformance::{
    Backing, Forgets, Observation, Restarted, Result, Subject, Suite, Tells, Time, WallStep,
};
use leasehold_core::{AnyStore, table};
use settled::{Clients, Settled};

fn main() -> ExitCode {
    // What is durable may grant at once after a start.
    let pool = |count| Pool::new(Layout::Apart(count), server::DURABLE);
    let (three, five) = (pool(3), pool(5));
    let quorum =
        |name, pool: &Pool, count, fenced| Quorum { name, pool: pool.clone(), count, fenced };
    Suite::new()
        .on(quorum("quorum-redis", &three, 3, false))
        .on(quorum("quorum-redis-fenced", &three, 3, true))
        .on(quorum("quorum-redis-of-5", &five, 5, false))
        .on(quorum("quorum-redis-of-5-fenced", &five, 5, true))
        .main()
}

struct Quorum {
    name: &'static str,
    pool: Pool,
    count: usize,
    fenced: bool,
}

struct State {
    nodes: Clocked,
    clients: Clients,
}

impl Quorum {
    async fn state(&self, forget_after: Duration) -> Result<State> {
        let nodes = self.pool.take(forget_after).await?;
        let clients = Clients::new(self.fenced, nodes.clock().clone());
        Ok(State { nodes, clients })
    }
}

impl Subject for Quorum {
    type Backing = State;

    fn name(&self) -> &'static str {
        self.name
    }

    async fn open(&self) -> Result<State> {
        self.state(table::FORGET_AFTER).await
    }

    async fn open_forgetting(&self, forget_after: Duration) -> Result<Forgets<State>> {
        Ok(Forgets::After(self.state(forget_after).await?))
    }

    fn tells(&self) -> Tells {
        let mut tells = clocked::tells();
        tells.copies = self.count;
        tells.winner = false;
        tells
    }

    fn oracle_operations(&self, _: &Time) -> usize {
        1_000
    }
}

impl Backing for State {
    type Store = Settled;

    async fn client(&self) -> Result<Settled> {
        self.clients.open(self.nodes.open().await?.into_iter().map(AnyStore::new).collect())
    }

    async fn observe(&self) -> Result<Observation> {
        self.clients.settled().await;
        self.clients.agreed(&self.nodes.observe().await?)
    }

    fn time(&self) -> Time {
        Time::Manual(self.nodes.clock().clone())
    }

    async fn advance(&self, by: Duration) {
        self.clients.settled().await;
        self.nodes.advance(by).expect("the servers run");
    }

    async fn step_wall(&self, step: WallStep) -> Result<bool> {
        self.clients.settled().await;
        self.nodes.step_wall(step)?;
        Ok(true)
    }

    async fn restart(&self) -> Result<Restarted> {
        self.clients.close().await;
        self.nodes.restart().await?;
        Ok(Restarted::Persisted)
    }
}
