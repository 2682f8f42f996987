//! Hints from a change stream: one for a store, while anyone waits, of the documents that are waited for.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use leasehold_core::{Key, Result, Wakeups};
use leasehold_driver::{Deadline, Listener, Listeners};
use mongodb::bson::{Bson, Document, doc};
use tokio::sync::watch;

use crate::change_stream::{Stream, frees};
use crate::commands::{Commands, Failure};
use crate::error::unanswered;

/// How often it is checked whether anyone still waits.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// The pause before the next attempt to open a stream, while anyone waits.
const PAUSE: Duration = Duration::from_secs(1);

/// The waiters of a store.
#[derive(Clone)]
pub(crate) struct Watch(Arc<Inner>);

struct Inner {
    commands: Commands,
    /// By the text of a document's `_id`.
    listeners: Listeners,
    ids: Mutex<Ids>,
    /// Counts the documents that were added.
    wanted: watch::Sender<u64>,
    /// How many of them the stream has, or had when it was opened.
    covered: watch::Sender<u64>,
    is_running: AtomicBool,
}

/// Which documents the stream has, by the text of their `_id`.
type Ids = HashMap<String, Bson>;

impl Watch {
    pub(crate) fn new(commands: Commands) -> Self {
        Self(Arc::new(Inner {
            commands,
            listeners: Listeners::default(),
            ids: Mutex::default(),
            wanted: watch::Sender::new(0),
            covered: watch::Sender::new(0),
            is_running: AtomicBool::new(false),
        }))
    }

    /// Hints for these keys, from the moment that this ends.
    pub(crate) async fn subscribe(&self, keys: &[Key]) -> Result<Wakeups> {
        let until = self.0.commands.deadline();
        let found = self.ids_of(keys, until).await;
        let found = found.map_err(|failure| self.0.commands.error(failure, until))?;
        let name =
            |key: &Key| found.get(key.as_str()).map_or_else(|| free(key.as_str()), Bson::to_string);
        let names: Vec<_> = keys.iter().map(name).collect();
        let (inner, left) = (Arc::downgrade(&self.0), names.clone());
        let leave = move |subscription| {
            if let Some(inner) = Weak::upgrade(&inner) {
                inner.listeners.leave(subscription, &left);
            }
        };
        let (listeners, wakeups) = Listener::subscribe(keys, leave);
        for (name, listener) in names.iter().zip(listeners) {
            self.0.listeners.add(name, vec![listener]);
        }
        let generation = self.want(keys, found);
        self.run();
        let mut covered = self.0.covered.subscribe();
        let is_covered = covered.wait_for(|covered| *covered >= generation);
        match until.bound(is_covered).await {
            Some(_) => Ok(wakeups),
            None => Err(unanswered(self.0.commands.server(), until.limit())),
        }
    }

    /// The `_id` of each key that has a document. The next try of a key without one creates it.
    async fn ids_of(
        &self,
        keys: &[Key],
        until: Deadline,
    ) -> Result<HashMap<String, Bson>, Failure> {
        let names: Vec<_> = keys.iter().map(Key::as_str).collect();
        let stages = vec![
            doc! { "$match": { "resource": { "$in": names } } },
            doc! { "$project": { "resource": 1 } },
        ];
        let (found, _) = self.0.commands.aggregate(stages, until, None).await?;
        let id = |document: Document| {
            let name = document.get_str("resource").ok()?.to_owned();
            Some((name, document.get("_id")?.clone()))
        };
        Ok(found.into_iter().filter_map(id).collect())
    }

    /// Adds documents to those that the stream must have, and returns which count of them covers these.
    fn want(&self, keys: &[Key], mut found: HashMap<String, Bson>) -> u64 {
        let mut ids = self.0.ids();
        let before = ids.len();
        for key in keys {
            match found.remove(key.as_str()) {
                Some(id) => ids.insert(id.to_string(), id),
                // Its document does not exist yet.
                None => ids.insert(free(key.as_str()), Bson::Null),
            };
        }
        if ids.len() > before {
            self.0.wanted.send_modify(|wanted| *wanted += 1);
        }
        *self.0.wanted.borrow()
    }

    fn run(&self) {
        if !self.0.is_running.swap(true, Ordering::SeqCst) {
            #[expect(
                clippy::disallowed_methods,
                reason = "the stream of all waiters; ends with them"
            )]
            drop(tokio::spawn(run(Running(Arc::clone(&self.0)))));
        }
    }
}

/// The name of a key without a document.
fn free(key: &str) -> String {
    format!("{FREE}{key}")
}

const FREE: &str = "free ";

impl Inner {
    fn ids(&self) -> MutexGuard<'_, Ids> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hint(&self, event: &Document) {
        let id = event.get_document("documentKey").ok().and_then(|key| key.get("_id"));
        let Some(id) = id else { return };
        let name = id.to_string();
        if let Ok(resource) =
            event.get_document("fullDocument").and_then(|new| new.get_str("resource"))
        {
            // It has a document from now on, or another one.
            let waiting = self.listeners.take(&free(resource));
            if !waiting.is_empty() {
                self.listeners.add(&name, waiting);
                self.ids().insert(name.clone(), id.clone());
                self.wanted.send_modify(|wanted| *wanted += 1);
            }
        }
        if event.get_bool("frees").unwrap_or(true) {
            self.listeners.hint(&name, Duration::ZERO);
        }
    }

    /// The documents of the stream, and the keys that have none yet.
    fn watched(&self) -> (Vec<Bson>, Vec<String>) {
        let ids = self.ids();
        let is_new = |(name, _): &(&String, &Bson)| name.starts_with(FREE);
        let (new, known): (Vec<_>, Vec<_>) = ids.iter().partition(is_new);
        let new = new.into_iter().map(|(name, _)| name[FREE.len()..].to_owned());
        (known.into_iter().map(|(_, id)| id.clone()).collect(), new.collect())
    }

    /// Nobody knows what happened meanwhile.
    fn hint_all(&self) {
        self.listeners.hint_at_once(&self.listeners.names());
    }
}

/// Lets another task run when this one ends, with its runtime too.
struct Running(Arc<Inner>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.is_running.store(false, Ordering::SeqCst);
        self.0.covered.send_replace(*self.0.wanted.borrow());
        self.0.hint_all();
    }
}

async fn run(running: Running) {
    let inner = &running.0;
    loop {
        serve(inner).await;
        inner.ids().retain(|name, _| inner.listeners.has_any([name.as_str()].into_iter()));
        inner.is_running.store(false, Ordering::SeqCst);
        // One who has come since then saw that the task was running.
        if inner.listeners.is_empty() || inner.is_running.swap(true, Ordering::SeqCst) {
            return;
        }
    }
}

/// Passes on events while anyone waits.
async fn serve(inner: &Inner) {
    let mut wanted = inner.wanted.subscribe();
    let mut after = None;
    let mut is_first = true;
    while !inner.listeners.is_empty() {
        let generation = *wanted.borrow_and_update();
        let may_miss = after.is_none() && !is_first;
        is_first = false;
        let (ids, new) = inner.watched();
        let opened = Stream::open(&inner.commands, frees(ids, new), after.take()).await;
        inner.covered.send_replace(generation);
        let Ok(mut stream) = opened else {
            inner.hint_all();
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        if may_miss {
            inner.hint_all();
        }
        loop {
            tokio::select! {
                events = stream.next() => match events {
                    Ok(events) => events.iter().for_each(|event| inner.hint(event)),
                    Err(_) => {
                        inner.hint_all();
                        break;
                    }
                },
                Ok(()) = wanted.changed() => {
                    after = stream.close().await;
                    break;
                }
                () = tokio::time::sleep(LOOK_EVERY) => {
                    if inner.listeners.is_empty() {
                        stream.close().await;
                        return;
                    }
                }
            }
        }
    }
}
