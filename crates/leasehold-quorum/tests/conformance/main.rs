//! The conformance suite on quorums of 3 and 5 nodes, local and SQLite, without and with tokens: a part of them by
//! default, all with `LEASEHOLD_TEST_ALL=1`.

mod nodes;

use std::process::ExitCode;
use std::time::Duration;

use leasehold_conformance::{
    Backing, Forgets, Observation, Reports, Restarted, Result, Subject, Suite, Time,
};
use leasehold_core::ManualClock;
use leasehold_testkit::settled::{Clients, Settled};

use nodes::{Kind, Nodes};

fn main() -> ExitCode {
    let quorum =
        |name, kind, count, fenced, operations| Quorum { name, kind, count, fenced, operations };
    let suite = Suite::new()
        .on(quorum("quorum", Kind::Local, 3, false, 30_000))
        .on_form(quorum("quorum-fenced", Kind::Local, 3, true, 5_000))
        .on_form(quorum("quorum-of-5-fenced", Kind::Local, 5, true, 2_000))
        .on_form(quorum("quorum-sqlite-fenced", Kind::Sqlite, 3, true, 500));
    if !leasehold_testkit::all() {
        return suite.main();
    }
    suite
        .on_form(quorum("quorum-of-5", Kind::Local, 5, false, 2_000))
        .on_form(quorum("quorum-sqlite", Kind::Sqlite, 3, false, 500))
        .on_form(quorum("quorum-sqlite-of-5", Kind::Sqlite, 5, false, 250))
        .on_form(quorum("quorum-sqlite-of-5-fenced", Kind::Sqlite, 5, true, 250))
        .main()
}

struct Quorum {
    name: &'static str,
    kind: Kind,
    count: usize,
    fenced: bool,
    /// How many the oracle compares.
    operations: usize,
}

struct State {
    nodes: Nodes,
    clock: ManualClock,
    clients: Clients,
}

impl Quorum {
    fn state(&self) -> Result<State> {
        let clock = ManualClock::new();
        Ok(State {
            nodes: Nodes::new(self.kind, self.count, clock.clone())?,
            clients: Clients::new(self.fenced, clock.clone()),
            clock,
        })
    }
}

impl Subject for Quorum {
    type Backing = State;

    fn name(&self) -> &'static str {
        self.name
    }

    async fn open(&self) -> Result<State> {
        self.state()
    }

    async fn open_forgetting(&self, _: Duration) -> Result<Forgets<State>> {
        Ok(Forgets::Never)
    }

    fn reports(&self) -> Reports {
        let mut reports = Reports::all();
        reports.copies = self.count;
        reports.winner = false;
        reports.withdraws = true;
        reports.quiet = !matches!(self.kind, Kind::Sqlite);
        reports
    }

    fn oracle_operations(&self, _: &Time) -> usize {
        self.operations
    }
}

impl Backing for State {
    type Store = Settled;

    async fn client(&self) -> Result<Settled> {
        self.clients.open(self.nodes.open().await?)
    }

    async fn observe(&self) -> Result<Observation> {
        self.clients.settled().await;
        self.clients.agreed(&self.nodes.observe()?)
    }

    fn time(&self) -> Time {
        Time::Manual(self.clock.clone())
    }

    async fn advance(&self, by: Duration) {
        self.clients.settled().await;
        self.clock.advance(by);
    }

    async fn restart(&self) -> Result<Restarted> {
        self.clients.close().await;
        self.nodes.restart()
    }
}
