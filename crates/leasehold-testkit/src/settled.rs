//! A quorum that is observed only when all nodes have followed.
//!
//! A quorum answers as soon as a majority agrees, and the other nodes follow. The suite compares one state with
//! one table, so here every operation waits until all nodes have followed; the tests of faults look at what
//! happens before. Nothing may then be left on a minority.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold_conformance::{Failure, Observation, Result, Row};
use leasehold_core::{AnyStore, Key, ManualClock, Store, tally};
use leasehold_quorum::{QuorumConfig, QuorumStore};

use crate::faulty::{Faulty, Hook, Reply, Request};

/// The clients of one state.
pub struct Clients {
    fenced: bool,
    clock: ManualClock,
    /// All that were handed out, so that the work of a dropped operation can end.
    open: Mutex<Vec<QuorumStore>>,
}

impl Clients {
    pub fn new(fenced: bool, clock: ManualClock) -> Self {
        Self { fenced, clock, open: Mutex::default() }
    }

    /// Another client, of these nodes.
    pub fn open(&self, nodes: Vec<AnyStore>) -> Result<Settled> {
        let config = QuorumConfig::new()
            .clock(Arc::new(self.clock.clone()))
            // Time limits run on this clock too, which some parts of the suite move while others wait.
            .node_timeout(Duration::from_secs(24 * 60 * 60));
        Ok(Faulty(Settling { quorum: self.quorum(config, nodes)?, waits: true }))
    }

    /// A client whose nodes may not answer: its operations end as soon as a majority agrees, and its time limits
    /// are real. [`settled`](Self::settled) waits for what it leaves.
    pub fn open_unsettled(&self, nodes: Vec<AnyStore>) -> Result<Settled> {
        let config = QuorumConfig::new().node_timeout(Duration::from_secs(12));
        Ok(Faulty(Settling { quorum: self.quorum(config, nodes)?, waits: false }))
    }

    fn quorum(&self, config: QuorumConfig, nodes: Vec<AnyStore>) -> Result<QuorumStore> {
        // The suite requests terms of up to an hour.
        let mut config = config.fenced(self.fenced).max_ttl(Duration::from_secs(3_600));
        for (at, node) in nodes.into_iter().enumerate() {
            config = config.node(format!("node {at}"), node);
        }
        let store = config.build()?;
        self.open.lock().unwrap_or_else(PoisonError::into_inner).push(store.clone());
        Ok(store)
    }

    /// Waits until every node has followed.
    pub async fn settled(&self) {
        let clients = self.open.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for client in clients {
            client.settled().await;
        }
    }

    /// Forgets them when every node has followed.
    pub async fn close(&self) {
        self.settled().await;
        self.open.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// What a majority of the observed nodes has. Nothing may be live on fewer: a contender without a majority has
    /// rolled back.
    pub fn agreed(&self, seen: &[Observation]) -> Result<Observation> {
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
            // Nodes mint different tokens. A majority has at least the one that the grant was returned with.
            let mut tokens: Vec<_> = copies.iter().map(|copy| copy.token).collect();
            tokens.sort_unstable_by(|one, other| other.cmp(one));
            let mut row = row.clone();
            row.token = tokens[most - 1].filter(|_| self.fenced);
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
        let observed = Observation::new(rows, counters);
        let mut marks: Vec<_> = seen.iter().filter_map(|node| node.mark).collect();
        marks.sort_unstable();
        Ok(match marks.len().checked_sub(most).filter(|_| self.fenced) {
            Some(at) => observed.with_mark(marks[at]),
            None => observed,
        })
    }
}

/// Both are of one lease on one key.
fn is_same(one: &Row, other: &Row) -> bool {
    let what = |row: &Row| (row.key.clone(), row.id.clone(), row.mode, row.group.clone());
    what(one) == what(other) && one.note == other.note
}

/// A quorum whose operations end when every node has followed, unless it was opened not to wait.
pub type Settled = Faulty<Settling>;

#[derive(Debug)]
pub struct Settling {
    quorum: QuorumStore,
    waits: bool,
}

impl Hook for Settling {
    fn store(&self) -> impl Store {
        self.quorum.clone()
    }

    async fn handle(&self, request: Request) -> leasehold_core::Result<Reply> {
        let reply = request.send_to(self.quorum.clone()).await;
        if self.waits {
            self.quorum.settled().await;
        }
        reply
    }
}
