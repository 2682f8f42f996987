//! Hints from a change stream: one for a store, while anyone waits, of the documents that are waited for.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use leasehold_core::{Effect, Key, Result, Wakeups};
use leasehold_driver::{Deadline, Listener, Listeners};
use mongodb::bson::{Bson, Document, doc};
use tokio::sync::watch;

use crate::change_stream::{Position, Stream, id_of, new_key_of};
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
    /// By their keys.
    listeners: Listeners,
    ids: Mutex<Ids>,
    /// Counts the keys and documents that were added.
    wanted: watch::Sender<u64>,
    /// How many of them the stream has, or had when it was opened.
    covered: watch::Sender<u64>,
    is_running: AtomicBool,
}

/// The `_id` of each key's document; none if it has no document.
type Ids = HashMap<String, Option<Bson>>;

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
        let names: Vec<_> = keys.iter().map(|key| key.as_str().to_owned()).collect();
        let found = self.0.read_ids(names.clone(), until).await;
        let found = found.map_err(|failure| self.0.commands.error(failure, until))?;
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
        let generation = self.want(found);
        self.run();
        let mut covered = self.0.covered.subscribe();
        let is_covered = covered.wait_for(|covered| *covered >= generation);
        match until.bound(is_covered).await {
            Some(_) => Ok(wakeups),
            None => {
                let server = self.0.commands.server();
                Err(unanswered(server, until.limit(), Effect::NotApplied))
            }
        }
    }

    /// Adds keys to those that the stream must have, and returns which count of them covers these.
    fn want(&self, found: Ids) -> u64 {
        let mut ids = self.0.ids();
        for (name, id) in found {
            // What the stream has told is not older.
            if !matches!(ids.get(&name), Some(known) if known.is_some() || id.is_none()) {
                ids.insert(name, id);
                self.0.wanted.send_modify(|wanted| *wanted += 1);
            }
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

impl Inner {
    fn ids(&self) -> MutexGuard<'_, Ids> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The `_id` of each of these keys. The next try of a key without a document creates it.
    async fn read_ids(&self, names: Vec<String>, until: Deadline) -> Result<Ids, Failure> {
        let stages = vec![
            doc! { "$match": { "resource": { "$in": &names } } },
            doc! { "$project": { "resource": 1 } },
        ];
        let (found, _) = self.commands.aggregate(stages, until, None).await?;
        let mut ids: Ids = names.into_iter().map(|name| (name, None)).collect();
        for mut document in found {
            if let Some(id) = document.get_str("resource").ok().and_then(|name| ids.get_mut(name)) {
                *id = document.remove("_id");
            }
        }
        Ok(ids)
    }

    /// Reads the documents of all keys again, and returns whether one is another than the stream has.
    async fn refresh(&self) -> Result<bool, Failure> {
        let names = self.ids().keys().cloned().collect();
        let found = self.read_ids(names, self.commands.deadline()).await?;
        let mut ids = self.ids();
        let mut changed = false;
        for (name, id) in found {
            changed |= ids.insert(name, id.clone()) != Some(id);
        }
        Ok(changed)
    }

    /// Passes on an event, and returns whether the stream needs another document from here on.
    fn hint(&self, event: &Document) -> bool {
        let Some(id) = id_of(event) else { return false };
        let mut ids = self.ids();
        if let Some(new) = new_key_of(event)
            && let Some(known) = ids.get_mut(new)
            && known.as_ref() != Some(id)
        {
            *known = Some(id.clone());
            // It was created by who holds it.
            return true;
        }
        let Some((name, known)) = ids.iter_mut().find(|(_, known)| known.as_ref() == Some(id))
        else {
            return false;
        };
        match event.get_str("operationType") {
            Ok("insert") => return false,
            Ok("delete") => *known = None,
            _ => {}
        }
        self.listeners.hint(name, Duration::ZERO);
        false
    }

    fn forget(&self, ids: &mut Ids) {
        ids.retain(|name, _| self.listeners.has_any([name.as_str()].into_iter()));
    }

    /// The documents of the stream, and the keys for which one may be created. Nobody waits for the others any more.
    fn watched(&self) -> (Vec<Bson>, Vec<String>) {
        let mut ids = self.ids();
        self.forget(&mut ids);
        (ids.values().flatten().cloned().collect(), ids.keys().cloned().collect())
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
        self.0.forget(&mut self.0.ids());
        self.0.is_running.store(false, Ordering::SeqCst);
        self.0.covered.send_replace(*self.0.wanted.borrow());
        self.0.hint_all();
    }
}

async fn run(running: Running) {
    let inner = &running.0;
    loop {
        serve(inner).await;
        inner.forget(&mut inner.ids());
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
        let opened = Stream::open(&inner.commands, ids, new, after.take()).await;
        inner.covered.send_replace(generation);
        let Ok(mut stream) = opened else {
            inner.hint_all();
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        if may_miss {
            let changed = inner.refresh().await.unwrap_or(false);
            inner.hint_all();
            if changed {
                after = stream.close().await;
                continue;
            }
        }
        match pass_on(inner, &mut stream, &mut wanted).await {
            Next::Reopen(at) => {
                let end = stream.close().await;
                after = at.or(end);
            }
            Next::Retry => {
                inner.hint_all();
                tokio::time::sleep(PAUSE).await;
            }
            Next::End => drop(stream.close().await),
        }
    }
}

/// Why a stream ended.
enum Next {
    /// It needs other documents, after this event.
    Reopen(Option<Position>),
    Retry,
    /// Nobody waits any more.
    End,
}

async fn pass_on(inner: &Inner, stream: &mut Stream, wanted: &mut watch::Receiver<u64>) -> Next {
    loop {
        // Events that the server sends are lost with this future.
        let mut events = pin!(stream.next());
        let events = loop {
            tokio::select! {
                events = &mut events => break events,
                Ok(()) = wanted.changed() => return Next::Reopen(None),
                () = tokio::time::sleep(LOOK_EVERY) => {
                    if inner.listeners.is_empty() {
                        return Next::End;
                    }
                }
            }
        };
        let Ok(events) = events else { return Next::Retry };
        if let Some(last) = events.iter().find(|event| inner.hint(event)) {
            return Next::Reopen(Position::after(last));
        }
        if inner.listeners.is_empty() {
            return Next::End;
        }
    }
}
