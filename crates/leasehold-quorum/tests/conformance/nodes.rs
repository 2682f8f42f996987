//! The nodes of a quorum under test, and their content.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold_conformance::{Observation, Restarted, Result};
use leasehold_core::{AnyStore, Clock, ManualClock, Now};
use leasehold_local::LocalStore;
use leasehold_sqlite::SqliteConfig;
use leasehold_testkit::sqlite;
use tempfile::TempDir;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Local,
    Sqlite,
}

pub(crate) struct Nodes {
    count: usize,
    clock: ManualClock,
    place: Storage,
}

enum Storage {
    /// Replaced by a restart.
    Memory(Mutex<Vec<LocalStore>>),
    /// The files' name, which each restart changes; each node has its own directory.
    Files(TempDir, Mutex<String>),
}

impl Nodes {
    pub(crate) fn new(kind: Kind, count: usize, clock: ManualClock) -> Result<Self> {
        let place = match kind {
            Kind::Local => Storage::Memory(Mutex::new(locals(count, &clock))),
            Kind::Sqlite => {
                let directory = tempfile::tempdir()?;
                for node in 0..count {
                    std::fs::create_dir(directory.path().join(node.to_string()))?;
                }
                Storage::Files(directory, Mutex::new("locks.db".to_owned()))
            }
        };
        Ok(Self { count, clock, place })
    }

    /// Opens each node again.
    pub(crate) async fn open(&self) -> Result<Vec<AnyStore>> {
        let mut stores = Vec::new();
        for node in 0..self.count {
            stores.push(match &self.place {
                Storage::Memory(nodes) => AnyStore::new(lock(nodes)[node].clone()),
                Storage::Files(..) => {
                    let config = SqliteConfig::file(self.path(node))
                        .clock(Arc::new(self.clock.clone()))
                        .timeout(Duration::from_secs(24 * 60 * 60));
                    AnyStore::new(config.connect().await?)
                }
            });
        }
        Ok(stores)
    }

    /// The content of each node.
    pub(crate) fn observe(&self) -> Result<Vec<Observation>> {
        match &self.place {
            Storage::Memory(nodes) => {
                let now = Now::read(&self.clock);
                let nodes = lock(nodes);
                Ok(nodes.iter().map(|node| Observation::of_table(&node.snapshot(), now)).collect())
            }
            Storage::Files(..) => (0..self.count)
                .map(|node| sqlite::observe(&self.path(node), self.clock.now()))
                .collect(),
        }
    }

    /// All at once; files as a power cut would leave them.
    pub(crate) fn restart(&self) -> Result<Restarted> {
        match &self.place {
            Storage::Memory(nodes) => {
                *lock(nodes) = locals(self.count, &self.clock);
                Ok(Restarted::Forgot)
            }
            Storage::Files(_, name) => {
                let old: Vec<_> = (0..self.count).map(|node| self.path(node)).collect();
                let next = format!("after-{}", lock(name));
                *lock(name) = next;
                for (node, old) in old.into_iter().enumerate() {
                    sqlite::cut_power(&old, &self.path(node))?;
                }
                Ok(Restarted::Persisted)
            }
        }
    }

    fn path(&self, node: usize) -> PathBuf {
        match &self.place {
            Storage::Memory(_) => PathBuf::new(),
            Storage::Files(directory, name) => {
                directory.path().join(node.to_string()).join(&*lock(name))
            }
        }
    }
}

fn locals(count: usize, clock: &ManualClock) -> Vec<LocalStore> {
    (0..count).map(|_| LocalStore::with_clock(Arc::new(clock.clone()))).collect()
}

fn lock<T>(what: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}
