//! The conformance suite on quorums of 3 and 5 nodes, local and SQLite, without and with tokens.
//!
//! A quorum answers as soon as a majority agreed, and the other nodes follow. The suite compares one state with
//! one table, so here every operation waits until all nodes have followed; what happens while they have not is
//! for the tests of faults. Nothing may then be left on a minority.

mod nodes;

use std::collections::BTreeMap;
use std::future::Future;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold_conformance::{
    Backing, Failure, Forgets, Observation, Restarted, Result, Row, Subject, Suite, Tells, Time,
};
use leasehold_core::{
    Acquire, Acquired, Capabilities, Evict, Evicted, Health, Key, List, ManualClock, Page, Release,
    Released, Renew, Renewed, Store, Wakeups, table, tally,
};
use leasehold_quorum::{QuorumConfig, QuorumStore};

use nodes::{Kind, Nodes};

fn main() -> ExitCode {
    let quorum =
        |name, kind, count, fenced, operations| Quorum { name, kind, count, fenced, operations };
    Suite::new()
        .on(quorum("quorum", Kind::Local, 3, false, 30_000))
        .on(quorum("quorum-fenced", Kind::Local, 3, true, 5_000))
        .on(quorum("quorum-of-5", Kind::Local, 5, false, 2_000))
        .on(quorum("quorum-of-5-fenced", Kind::Local, 5, true, 2_000))
        .on(quorum("quorum-sqlite", Kind::Sqlite, 3, false, 500))
        .on(quorum("quorum-sqlite-fenced", Kind::Sqlite, 3, true, 500))
        .on(quorum("quorum-sqlite-of-5", Kind::Sqlite, 5, false, 250))
        .on(quorum("quorum-sqlite-of-5-fenced", Kind::Sqlite, 5, true, 250))
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
    fenced: bool,
    clock: ManualClock,
    /// All that were handed out, so that what a dropped operation left can end.
    clients: Mutex<Vec<QuorumStore>>,
}

impl Quorum {
    fn state(&self, forget_after: Duration) -> Result<State> {
        let clock = ManualClock::new();
        Ok(State {
            nodes: Nodes::new(self.kind, self.count, forget_after, clock.clone())?,
            fenced: self.fenced,
            clock,
            clients: Mutex::default(),
        })
    }
}

impl Subject for Quorum {
    type Backing = State;

    fn name(&self) -> &'static str {
        self.name
    }

    async fn open(&self) -> Result<State> {
        self.state(table::FORGET_AFTER)
    }

    async fn open_forgetting(&self, forget_after: Duration) -> Result<Forgets<State>> {
        Ok(Forgets::After(self.state(forget_after)?))
    }

    fn tells(&self) -> Tells {
        let mut tells = Tells::all();
        tells.copies = self.count;
        tells.winner = false;
        tells
    }

    fn oracle_operations(&self, _: &Time) -> usize {
        self.operations
    }
}

impl State {
    async fn settled(&self) {
        let clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for client in clients {
            client.settled().await;
        }
    }
}

impl Backing for State {
    type Store = Settled;

    async fn client(&self) -> Result<Settled> {
        let mut config = QuorumConfig::new()
            .fenced(self.fenced)
            // The suite asks for terms of up to an hour.
            .max_ttl(Duration::from_secs(3_600))
            .clock(Arc::new(self.clock.clone()))
            // Time limits run on this clock too, which some parts of the suite move while others wait.
            .node_timeout(Duration::from_secs(24 * 60 * 60));
        for (at, node) in self.nodes.open().await?.into_iter().enumerate() {
            config = config.node(format!("node {at}"), node);
        }
        let store = config.open()?;
        self.clients.lock().unwrap_or_else(PoisonError::into_inner).push(store.clone());
        Ok(Settled(store))
    }

    /// What a majority has. Nothing may be live on fewer: whoever won no majority has taken all back.
    async fn observe(&self) -> Result<Observation> {
        self.settled().await;
        let seen = self.nodes.observe()?;
        let most = tally::majority(seen.len());
        let mut rows: Vec<Row> = Vec::new();
        for row in seen.iter().flat_map(|node| &node.rows).filter(|row| row.live) {
            if rows.iter().any(|known| is_same(known, row)) {
                continue;
            }
            let copies = seen.iter().flat_map(|node| &node.rows);
            let copies: Vec<_> = copies.filter(|copy| copy.live && is_same(copy, row)).collect();
            if copies.len() < most {
                return Err(Failure::new(format!("a minority has {row:?}: {seen:?}")));
            }
            let agreed = |copy: &&&Row| {
                copies.iter().filter(|other| other.token == copy.token).count() >= most
            };
            let mut row = row.clone();
            row.token = match copies.iter().find(agreed) {
                _ if !self.fenced => None,
                Some(copy) => copy.token,
                None => return Err(Failure::new(format!("no majority has one token: {copies:?}"))),
            };
            rows.push(row);
        }
        let mut counters: BTreeMap<Key, Vec<u64>> = BTreeMap::new();
        for (key, counter) in seen.iter().flat_map(|node| &node.counters) {
            counters.entry(key.clone()).or_default().push(*counter);
        }
        let counters = counters.into_iter().filter(|_| self.fenced).filter_map(|(key, mut of)| {
            of.sort_unstable();
            Some((key, *of.get(of.len().checked_sub(most)?)?))
        });
        Ok(Observation::new(rows, counters))
    }

    fn time(&self) -> Time {
        Time::Manual(self.clock.clone())
    }

    async fn advance(&self, by: Duration) {
        self.settled().await;
        self.clock.advance(by);
    }

    async fn restart(&self) -> Result<Restarted> {
        self.settled().await;
        self.clients.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.nodes.restart()
    }
}

/// Both are of one lease on one key.
fn is_same(one: &Row, other: &Row) -> bool {
    let what = |row: &Row| (row.key.clone(), row.id.clone(), row.mode, row.owner.clone());
    what(one) == what(other) && one.note == other.note
}

/// A quorum whose operations end when every node has followed.
#[derive(Debug)]
struct Settled(QuorumStore);

impl Settled {
    async fn after<T>(&self, operation: impl Future<Output = T> + Send) -> T {
        let answer = operation.await;
        self.0.settled().await;
        answer
    }
}

#[deny(clippy::missing_trait_methods)]
impl Store for Settled {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    async fn check(&self) -> leasehold_core::Result<Health> {
        self.after(self.0.check()).await
    }

    async fn prepare(&self) -> leasehold_core::Result<()> {
        self.after(self.0.prepare()).await
    }

    async fn acquire(&self, request: &Acquire) -> leasehold_core::Result<Acquired> {
        self.after(self.0.acquire(request)).await
    }

    async fn renew(&self, request: &Renew) -> leasehold_core::Result<Renewed> {
        self.after(self.0.renew(request)).await
    }

    async fn release(&self, request: &Release) -> leasehold_core::Result<Released> {
        self.after(self.0.release(request)).await
    }

    async fn list(&self, request: &List) -> leasehold_core::Result<Page> {
        self.after(self.0.list(request)).await
    }

    async fn evict(&self, request: &Evict) -> leasehold_core::Result<Evicted> {
        self.after(self.0.evict(request)).await
    }

    async fn subscribe(&self, keys: &[Key]) -> leasehold_core::Result<Wakeups> {
        self.after(self.0.subscribe(keys)).await
    }
}
