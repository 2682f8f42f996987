//! Commands to the server, each within the time limit of its operation.

use std::fmt;
use std::future::IntoFuture;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::term::micros_up;
use leasehold_core::{Clock, Effect, Now, Result};
use leasehold_driver::{Deadline, SystemClock};
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, Document, doc};
use mongodb::error::Error as DriverError;
use mongodb::{Client, ClientSession, Database};

use crate::document::{first_batch, projection};
use crate::error::{self, DUPLICATE_KEY, OUT_OF_TIME, unanswered, unexpected};
use crate::record::{millis, milliseconds};

/// The unique index that keeps a key to one document.
pub(crate) const INDEX: &str = "resource_1";

/// The collection of the locks, and how it is spoken to. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Commands(Arc<Inner>);

struct Inner {
    client: Client,
    database: Database,
    collection: String,
    /// The servers, for messages.
    server: String,
    timeout: Duration,
}

/// A document as it was before or after an update, and how long the command took.
pub(crate) struct Updated {
    /// `None` if there was none.
    pub(crate) document: Option<Document>,
    pub(crate) took: Duration,
}

impl Updated {
    /// Whether the document has the lock with this `_id`.
    pub(crate) fn has_record(&self, id: ObjectId) -> bool {
        self.document.as_ref().is_some_and(|document| has_record(document, id))
    }
}

/// Whether a document has the lock with this `_id`.
pub(crate) fn has_record(document: &Document, id: ObjectId) -> bool {
    let shared = document.get_document("shared").and_then(|shared| shared.get_array("locks"));
    let shared = shared.into_iter().flatten().filter_map(Bson::as_document);
    let mut records = shared.chain(document.get_document("exclusive"));
    records.any(|record| record.get_object_id("_id").is_ok_and(|of_record| of_record == id))
}

/// When an operation ends, and how long a command of it may wait for the document, if it may not until then.
pub(crate) type Times = (Deadline, Option<Duration>);

/// Which document the reply of an update has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shows {
    /// As it was, and no document is created.
    Before,
    /// As it is, and no document is created.
    After,
    /// As it is, which is created if there is none.
    AfterCreating,
}

/// An update of the document of one key that fits a query.
pub(crate) struct Change {
    pub(crate) query: Document,
    pub(crate) update: Bson,
    pub(crate) shows: Shows,
}

/// What became of a [`Change`].
pub(crate) enum Modified {
    Done(Updated),
    /// It took longer than the patience: another client's transaction held the document, or a majority did not have it yet.
    Locked,
    /// The key has a document that does not fit the query.
    Exists(Failure),
}

impl Commands {
    pub(crate) fn new(
        client: Client,
        database: &str,
        collection: String,
        server: String,
        timeout: Duration,
    ) -> Self {
        let database = client.database(database);
        Self(Arc::new(Inner { client, database, collection, server, timeout }))
    }

    pub(crate) fn server(&self) -> &str {
        &self.0.server
    }

    pub(crate) fn database(&self) -> &str {
        self.0.database.name()
    }

    pub(crate) fn client(&self) -> &Client {
        &self.0.client
    }

    pub(crate) fn collection(&self) -> &str {
        &self.0.collection
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.0.timeout
    }

    pub(crate) fn deadline(&self) -> Deadline {
        Deadline::after(self.0.timeout)
    }

    /// Runs a command, in a session's transaction if there is one.
    pub(crate) async fn run(
        &self,
        mut command: Document,
        until: Deadline,
        session: Option<&mut ClientSession>,
    ) -> Result<Document, Failure> {
        if !command.contains_key("maxTimeMS") {
            command.insert("maxTimeMS", left(until));
        }
        let run = self.0.database.run_command(command);
        let reply = match session {
            Some(session) => until.bound(run.session(session).into_future()).await,
            None => until.bound(run.into_future()).await,
        };
        match reply {
            None => Err(Failure::Unanswered),
            Some(Ok(reply)) => Ok(reply),
            Some(Err(error)) => Err(Failure::Driver(error)),
        }
    }

    /// The server's clock.
    pub(crate) async fn now(&self, until: Deadline) -> Result<Now> {
        let hello = self.command(doc! { "hello": 1 }, until).await?;
        let time = hello.get_datetime("localTime");
        let boot = millis(*time.map_err(|_| unexpected(self.server(), "no localTime"))?);
        Ok(Now { boot, wall_micros: micros_up(boot) })
    }

    /// Runs a command outside of transactions.
    pub(crate) async fn command(&self, command: Document, until: Deadline) -> Result<Document> {
        self.run(command, until, None).await.map_err(|failure| self.error(failure, until))
    }

    /// Runs a command that writes, and ends when a majority of the replica set has it on disk.
    pub(crate) async fn write(
        &self,
        mut command: Document,
        until: Deadline,
    ) -> Result<Document, Failure> {
        command.insert("writeConcern", majority(until));
        self.run(command, until, None).await
    }

    /// Updates the document of a key by a pipeline, whatever it holds. `None` if another client's transaction held the document
    /// for the whole patience.
    pub(crate) async fn update(
        &self,
        key: &str,
        pipeline: &[Document],
        shows: Shows,
        times: Times,
    ) -> Result<Option<Updated>> {
        let change = Change { query: doc! { "resource": key }, update: pipeline.into(), shows };
        loop {
            match self.modify(&change, times).await? {
                Modified::Done(updated) => return Ok(Some(updated)),
                Modified::Locked => return Ok(None),
                Modified::Exists(failure) if times.0.left().is_zero() => {
                    return Err(self.error(failure, times.0));
                }
                // Someone else has created it.
                Modified::Exists(_) => {}
            }
        }
    }

    /// Sends an update of the document of one key.
    pub(crate) async fn modify(
        &self,
        change: &Change,
        (until, patience): Times,
    ) -> Result<Modified> {
        let sent = SystemClock::new().now();
        let mut command = doc! {
            "findAndModify": self.collection(),
            "query": &change.query,
            "update": &change.update,
            "upsert": change.shows == Shows::AfterCreating,
            "new": change.shows != Shows::Before,
            "fields": projection(),
            "hint": INDEX,
        };
        if let Some(patience) = patience {
            command.insert("maxTimeMS", milliseconds(patience));
        }
        let mut reply = match self.write(command, until).await {
            Ok(reply) => reply,
            Err(failure) if patience.is_some() && failure.code() == Some(OUT_OF_TIME) => {
                return Ok(Modified::Locked);
            }
            Err(failure) if failure.code() == Some(DUPLICATE_KEY) => {
                return Ok(Modified::Exists(failure));
            }
            Err(failure) => return Err(self.error(failure, until)),
        };
        match error::of_write_concern(self.server(), &reply) {
            // Another primary may not have it: the same request, sent again, finds out. A release would find nothing.
            Err(_) if is_given_up(&reply, patience) && change.shows != Shows::Before => {
                return Ok(Modified::Locked);
            }
            other => other?,
        }
        let took = SystemClock::new().now().saturating_sub(sent);
        let document = match reply.remove("value") {
            Some(Bson::Document(document)) => Some(document),
            Some(Bson::Null) => None,
            _ => return Err(unexpected(self.server(), "no value")),
        };
        Ok(Modified::Done(Updated { document, took }))
    }

    /// Ends when a majority of the replica set has what the command of this reply wrote, or another primary has begun: read
    /// what became of it.
    pub(crate) async fn is_on_majority(
        &self,
        reply: &Document,
        (until, patience): Times,
    ) -> Result<()> {
        if !is_given_up(reply, patience) {
            return error::of_write_concern(self.server(), reply);
        }
        // A write that changes nothing waits for all that was written before.
        let nothing = doc! { "q": { "_id": { "$in": [] } }, "u": { "$unset": { "lh": "" } } };
        let command = doc! { "update": self.collection(), "updates": [nothing] };
        let reply = self.write(command, until).await.map_err(|f| self.error(f, until))?;
        error::of_write_concern(self.server(), &reply)
    }

    /// The documents of these keys, as a majority has them, and whether these are all.
    pub(crate) async fn find(
        &self,
        keys: &[&str],
        until: Deadline,
    ) -> Result<(Vec<Document>, bool)> {
        let command = doc! {
            "find": self.collection(),
            "filter": { "resource": { "$in": keys } },
            "projection": projection(),
            "hint": INDEX,
            "batchSize": i64::try_from(keys.len() + 1).unwrap_or(i64::MAX),
            "readConcern": { "level": "majority" },
        };
        let reply = self.run(command, until, None).await;
        let found = self.all_of(reply, until).await;
        found.map(|(found, more)| (found, !more)).map_err(|failure| self.error(failure, until))
    }

    /// The document of a key on a server that is the primary beyond doubt: one that was deposed does not answer.
    pub(crate) async fn find_surely(&self, key: &str, until: Deadline) -> Result<Option<Document>> {
        let command = doc! {
            "find": self.collection(),
            "filter": { "resource": key },
            "projection": projection(),
            "limit": 1,
            "readConcern": { "level": "linearizable" },
        };
        let reply = self.command(command, until).await?;
        Ok(first_batch(&reply).next().cloned())
    }

    /// The first documents that a pipeline of stages finds, and whether there are more.
    pub(crate) async fn aggregate(
        &self,
        stages: Vec<Document>,
        until: Deadline,
        session: Option<&mut ClientSession>,
    ) -> Result<(Vec<Document>, bool), Failure> {
        let mut command = doc! {
            "aggregate": self.collection(),
            "pipeline": stages,
            "cursor": { "batchSize": 10_000 },
        };
        if session.is_none() {
            // What a majority has cannot be rolled back.
            command.insert("readConcern", doc! { "level": "majority" });
        }
        let reply = self.run(command, until, session).await;
        self.all_of(reply, until).await
    }

    /// The documents of a reply with a cursor, and whether there are more.
    async fn all_of(
        &self,
        reply: Result<Document, Failure>,
        until: Deadline,
    ) -> Result<(Vec<Document>, bool), Failure> {
        let mut reply = reply?;
        let cursor = reply.get_document_mut("cursor").map_err(|_| Failure::Unexpected)?;
        let (batch, id) = (cursor.remove("firstBatch"), cursor.get_i64("id").unwrap_or(0));
        let Some(Bson::Array(batch)) = batch else { return Err(Failure::Unexpected) };
        let document = |one| match one {
            Bson::Document(document) => Some(document),
            _ => None,
        };
        let found = batch.into_iter().map(document).collect::<Option<_>>();
        if id != 0 {
            // A batch has at most 16 MiB. The next page begins behind it, with a cursor of its own.
            let kill = doc! { "killCursors": self.collection(), "cursors": [id] };
            drop(self.run(kill, until, None).await);
        }
        Ok((found.ok_or(Failure::Unexpected)?, id != 0))
    }

    pub(crate) fn error(&self, failure: Failure, until: Deadline) -> leasehold_core::Error {
        match failure {
            Failure::Driver(error) => error::of(self.server(), error),
            Failure::Unanswered => unanswered(self.server(), until.limit(), Effect::Unknown),
            Failure::Unexpected => unexpected(self.server(), "no documents"),
        }
    }
}

/// Why a command has no reply that can be used.
#[derive(Debug)]
pub(crate) enum Failure {
    Driver(DriverError),
    Unanswered,
    Unexpected,
}

impl Failure {
    pub(crate) fn code(&self) -> Option<i32> {
        match self {
            Self::Driver(error) => error::code(error),
            Self::Unanswered | Self::Unexpected => None,
        }
    }

    pub(crate) fn has_label(&self, label: &str) -> bool {
        matches!(self, Self::Driver(error) if error.contains_label(label))
    }
}

/// Whether the server waited for a majority until the patience was over.
fn is_given_up(reply: &Document, patience: Option<Duration>) -> bool {
    let failure = reply.get_document("writeConcernError");
    let is_out_of_time = |code| code == OUT_OF_TIME;
    patience.is_some() && failure.and_then(|one| one.get_i32("code")).is_ok_and(is_out_of_time)
}

/// What is left of the time limit, in milliseconds, at least one.
pub(crate) fn left(until: Deadline) -> i64 {
    i64::try_from(until.left().as_millis()).unwrap_or(i64::MAX).max(1)
}

pub(crate) fn majority(until: Deadline) -> Document {
    doc! { "w": "majority", "j": true, "wtimeout": left(until) }
}

impl fmt::Debug for Commands {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Commands({})", self.server())
    }
}
