//! The nodes of a quorum under test, and what stands in each.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold_conformance::{Failure, Observation, Restarted, Result, Row};
use leasehold_core::{
    AnyStore, Clock, FencingToken, Key, LeaseId, ManualClock, Mode, Note, Now, Owner,
};
use leasehold_local::LocalStore;
use leasehold_sqlite::SqliteConfig;
use leasehold_sqlite::rusqlite::{self, Connection};
use tempfile::TempDir;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Local,
    Sqlite,
}

pub(crate) struct Nodes {
    count: usize,
    forget_after: Duration,
    clock: ManualClock,
    place: Place,
}

enum Place {
    /// Replaced by a restart.
    Memory(Mutex<Vec<LocalStore>>),
    /// The files' name, another after each restart; each node has a directory of its own.
    Files(TempDir, Mutex<String>),
}

impl Nodes {
    pub(crate) fn new(
        kind: Kind,
        count: usize,
        forget_after: Duration,
        clock: ManualClock,
    ) -> Result<Self> {
        let place = match kind {
            Kind::Local => Place::Memory(Mutex::new(locals(count, forget_after, &clock))),
            Kind::Sqlite => {
                let directory = tempfile::tempdir()?;
                for node in 0..count {
                    std::fs::create_dir(directory.path().join(node.to_string()))?;
                }
                Place::Files(directory, Mutex::new("locks.db".to_owned()))
            }
        };
        Ok(Self { count, forget_after, clock, place })
    }

    /// Connects to each node anew.
    pub(crate) async fn open(&self) -> Result<Vec<AnyStore>> {
        let mut stores = Vec::new();
        for node in 0..self.count {
            stores.push(match &self.place {
                Place::Memory(nodes) => AnyStore::new(lock(nodes)[node].clone()),
                Place::Files(..) => {
                    let config = SqliteConfig::file(self.path(node))
                        .clock(Arc::new(self.clock.clone()))
                        .timeout(Duration::from_secs(24 * 60 * 60))
                        .forget_after(Some(self.forget_after));
                    AnyStore::new(config.open().await?)
                }
            });
        }
        Ok(stores)
    }

    /// What stands in each node.
    pub(crate) fn observe(&self) -> Result<Vec<Observation>> {
        match &self.place {
            Place::Memory(nodes) => {
                let now = Now::read(&self.clock);
                let nodes = lock(nodes);
                Ok(nodes.iter().map(|node| Observation::of_table(&node.snapshot(), now)).collect())
            }
            Place::Files(..) => (0..self.count).map(|node| self.observe_file(node)).collect(),
        }
    }

    /// All at once; files as a power cut would leave them.
    pub(crate) fn restart(&self) -> Result<Restarted> {
        match &self.place {
            Place::Memory(nodes) => {
                *lock(nodes) = locals(self.count, self.forget_after, &self.clock);
                Ok(Restarted::Forgot)
            }
            Place::Files(_, name) => {
                let old: Vec<_> = (0..self.count).map(|node| self.path(node)).collect();
                let next = format!("after-{}", lock(name));
                *lock(name) = next;
                for (node, old) in old.into_iter().enumerate() {
                    let new = self.path(node);
                    std::fs::copy(&old, &new)?;
                    std::fs::copy(log(&old), log(&new))?;
                }
                Ok(Restarted::Persisted)
            }
        }
    }

    fn path(&self, node: usize) -> PathBuf {
        match &self.place {
            Place::Memory(_) => PathBuf::new(),
            Place::Files(directory, name) => {
                directory.path().join(node.to_string()).join(&*lock(name))
            }
        }
    }

    fn observe_file(&self, node: usize) -> Result<Observation> {
        let file = Connection::open(self.path(node))?;
        // One snapshot of both tables, although others may write meanwhile.
        file.execute_batch("BEGIN")?;
        let now = i64::try_from(self.clock.now().as_micros())?;
        let mut statement = file.prepare(
            "SELECT key, id, mode, token, owner, host, pid, program, comment,
                    state <> 'evicted' AND (expires IS NULL OR (
                        expires > ?1
                        AND epoch = (SELECT max(epoch) FROM leasehold_boots)
                    ))
             FROM leasehold_holders",
        )?;
        let mut stored = statement.query([now])?;
        let mut rows = Vec::new();
        while let Some(row) = stored.next()? {
            rows.push(read(row)?);
        }
        let mut statement = file.prepare("SELECT key, counter FROM leasehold_keys")?;
        let mut stored = statement.query([])?;
        let mut counters = Vec::new();
        while let Some(row) = stored.next()? {
            let key = Key::new(&row.get::<_, String>(0)?)?;
            counters.push((key, row.get::<_, i64>(1)?.try_into()?));
        }
        Ok(Observation::new(rows, counters))
    }
}

fn locals(count: usize, forget_after: Duration, clock: &ManualClock) -> Vec<LocalStore> {
    let one = |_| LocalStore::with_forget_after(Arc::new(clock.clone()), Some(forget_after));
    (0..count).map(one).collect()
}

fn log(file: &std::path::Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push("-wal");
    name.into()
}

fn lock<T>(what: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

fn read(row: &rusqlite::Row<'_>) -> Result<Row> {
    let mode = match row.get::<_, String>(2)?.as_str() {
        "exclusive" => Mode::Exclusive,
        "shared" => Mode::SHARED,
        other => return Err(Failure::new(format!("a row has the mode {other:?}"))),
    };
    let id = LeaseId::foreign(&row.get::<_, Vec<u8>>(1)?)?;
    let mut read = Row::new(Key::new(&row.get::<_, String>(0)?)?, Some(id), mode, row.get(9)?);
    read.token = Some(FencingToken::new(row.get::<_, i64>(3)?.try_into()?)?);
    let text = |column| row.get::<_, Option<String>>(column);
    read.owner = text(4)?.as_deref().map(Owner::new).transpose()?;
    let mut note = Note::default();
    if let Some(host) = text(5)? {
        note = note.with_host(&host)?;
    }
    if let Some(pid) = row.get(6)? {
        note = note.with_pid(pid);
    }
    if let Some(program) = text(7)? {
        note = note.with_program(&program)?;
    }
    if let Some(comment) = text(8)? {
        note = note.with_comment(&comment)?;
    }
    read.note = note;
    Ok(read)
}
