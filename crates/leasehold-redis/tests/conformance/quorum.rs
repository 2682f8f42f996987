//! Quorums of 3 and 5 real Redis servers, without and with tokens.

use std::time::Duration;

use leasehold_conformance::{
    Backing, Forgets, Network, Observation, Reports, Restarted, Result, Subject, Suite, Time,
    WallStep,
};
use leasehold_core::AnyStore;
use leasehold_testkit::redis::DURABLE;
use leasehold_testkit::settled::{Clients, Settled};

use crate::clocked::{self, Clocked, Layout, Sets};

/// Adds quorums of 3, and of 5 the cases on one; with `LEASEHOLD_TEST_ALL=1` everything on all.
pub(crate) fn add(suite: Suite) -> Suite {
    // A durable node may grant at once after a start.
    let sets = |count| Sets::new(Layout::Apart(count), DURABLE);
    let (three, five) = (sets(3), sets(5));
    let quorum =
        |name, sets: &Sets, count, fenced| Quorum { name, sets: sets.clone(), count, fenced };
    let suite = suite.on_form(quorum("quorum-redis", &three, 3, false)).on_form(quorum(
        "quorum-redis-fenced",
        &three,
        3,
        true,
    ));
    let of_five = quorum("quorum-redis-of-5-fenced", &five, 5, true);
    if leasehold_testkit::all() {
        suite.on_form(of_five).on_form(quorum("quorum-redis-of-5", &five, 5, false))
    } else {
        suite.cases_on(of_five)
    }
}

struct Quorum {
    name: &'static str,
    sets: Sets,
    count: usize,
    fenced: bool,
}

struct State {
    nodes: Clocked,
    clients: Clients,
}

impl Quorum {
    async fn state(&self) -> Result<State> {
        let nodes = self.sets.take().await?;
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
        self.state().await
    }

    async fn open_forgetting(&self, _: Duration) -> Result<Forgets<State>> {
        Ok(Forgets::Never)
    }

    fn reports(&self) -> Reports {
        let mut reports = clocked::reports();
        reports.copies = self.count;
        reports.winner = false;
        reports.withdraws = true;
        // Nodes mint tokens from their own clocks, so a grant may have to raise them.
        reports.exchanges.acquire = if self.fenced { 2 } else { 1 };
        reports.exchanges.confirmation = reports.exchanges.acquire;
        reports.exchanges.evict = 2;
        reports
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

    async fn network(&self) -> Result<Network<Settled>> {
        let nodes = self.nodes.open_behind_proxies().await?;
        Ok(nodes.map(|stores| {
            let stores = stores.into_iter().map(AnyStore::new).collect();
            self.clients.open_unsettled(stores).expect("the nodes are good for a quorum")
        }))
    }

    async fn restart(&self) -> Result<Restarted> {
        self.clients.close().await;
        self.nodes.restart().await?;
        Ok(Restarted::Persisted)
    }
}
