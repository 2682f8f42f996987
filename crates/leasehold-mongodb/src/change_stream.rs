//! A change stream by its commands: the driver's own one hides that events may have been missed.

use std::future::IntoFuture;
use std::time::Duration;

use mongodb::ClientSession;
use mongodb::bson::{Bson, Document, doc};

use crate::commands::{Commands, Failure};

/// How long the server waits for an event before it answers without one. It bounds the commands of a waiter, and how long a
/// cursor stays open when nobody waits any more: the server notices that it was killed only then, or at the next write.
const SILENCE: Duration = Duration::from_secs(15);

/// An open stream.
pub(crate) struct Stream {
    commands: Commands,
    /// A cursor belongs to a session.
    session: ClientSession,
    cursor: i64,
    after: Option<Position>,
}

/// Where a stream continues.
pub(crate) struct Position {
    token: Document,
    /// The last event before it: the server finds it only by a filter that selects it too.
    last: Option<Document>,
}

impl Position {
    /// Behind this event.
    pub(crate) fn after(event: &Document) -> Option<Self> {
        let token = event.get_document("_id").ok()?.clone();
        Some(Self { token, last: Some(event.clone()) })
    }
}

impl Stream {
    /// Opens a stream, from now on or from this position: of the events after which one more client may get these documents,
    /// and of the new documents of these keys.
    pub(crate) async fn open(
        commands: &Commands,
        mut ids: Vec<Bson>,
        mut new: Vec<String>,
        after: Option<Position>,
    ) -> Result<Self, Failure> {
        let mut session = commands.client().start_session().await.map_err(Failure::Driver)?;
        let mut source = doc! {};
        let mut last = None;
        if let Some(after) = after {
            source.insert("resumeAfter", after.token);
            last = after.last;
        }
        if let Some(event) = &last {
            ids.extend(id_of(event).cloned());
            new.extend(new_key_of(event).map(str::to_owned));
        }
        let stages: Vec<_> =
            [doc! { "$changeStream": source }].into_iter().chain(frees(ids, new)).collect();
        let command = doc! {
            "aggregate": commands.collection(),
            "pipeline": stages,
            "cursor": { "batchSize": 0 },
            "readConcern": { "level": "majority" },
        };
        let reply = commands.run(command, commands.deadline(), Some(&mut session)).await?;
        let cursor = reply.get_document("cursor").map_err(|_| Failure::Unexpected)?;
        let id = cursor.get_i64("id").map_err(|_| Failure::Unexpected)?;
        let token = cursor.get_document("postBatchResumeToken").ok().cloned();
        let after = token.map(|token| Position { token, last });
        Ok(Self { commands: commands.clone(), session, cursor: id, after })
    }

    /// The next events; none if the server was silent for long. If it is dropped, the stream must be closed.
    pub(crate) async fn next(&mut self) -> Result<Vec<Document>, Failure> {
        let wait = i64::try_from(SILENCE.as_millis()).unwrap_or(i64::MAX);
        let command = doc! {
            "getMore": self.cursor,
            "collection": self.commands.collection(),
            "maxTimeMS": wait,
        };
        let database = self.commands.client().database(self.commands.database());
        let sent = database.run_command(command).session(&mut self.session).into_future();
        let limit = SILENCE + self.commands.timeout();
        let mut reply = match tokio::time::timeout(limit, sent).await {
            Ok(reply) => reply.map_err(Failure::Driver)?,
            Err(_) => return Err(Failure::Unanswered),
        };
        let cursor = reply.get_document_mut("cursor").map_err(|_| Failure::Unexpected)?;
        let token = cursor.get_document("postBatchResumeToken").ok().cloned();
        if cursor.get_i64("id").is_ok_and(|id| id == 0) {
            // The collection was dropped or renamed.
            return Err(Failure::Unexpected);
        }
        let Some(Bson::Array(events)) = cursor.remove("nextBatch") else {
            return Err(Failure::Unexpected);
        };
        let event = |event| match event {
            Bson::Document(event) => Some(event),
            _ => None,
        };
        let events: Vec<_> = events.into_iter().filter_map(event).collect();
        if let Some(token) = token {
            let before = self.after.take().and_then(|before| before.last);
            self.after = Some(Position { token, last: events.last().cloned().or(before) });
        }
        Ok(events)
    }

    /// Ends it, and returns where another one continues.
    pub(crate) async fn close(self) -> Option<Position> {
        let kill = doc! { "killCursors": self.commands.collection(), "cursors": [self.cursor] };
        // The server forgets it by itself if this fails.
        // The driver refuses it in a session.
        drop(self.commands.run(kill, self.commands.deadline(), None).await);
        self.after
    }
}

/// The `_id` of the document that an event is about.
pub(crate) fn id_of(event: &Document) -> Option<&Bson> {
    event.get_document("documentKey").ok()?.get("_id")
}

/// The key of the document that an event shows: a new one, or one that was replaced.
pub(crate) fn new_key_of(event: &Document) -> Option<&str> {
    event.get_document("fullDocument").and_then(|new| new.get_str("resource")).ok()
}

/// Selects the events after which one more client may get one of these documents: an exclusive lock or a shared one less, or the
/// document is gone. A renewal is none, and no grant. Of these keys it also selects new documents.
fn frees(ids: Vec<Bson>, new: Vec<String>) -> Vec<Document> {
    let wanted = doc! { "$or": [
        { "operationType": "insert", "fullDocument.resource": { "$in": new } },
        { "documentKey._id": { "$in": &ids }, "operationType": "delete" },
        { "documentKey._id": { "$in": &ids }, "operationType": "replace", "fullDocument.exclusive.acquired": false },
        { "documentKey._id": { "$in": &ids }, "operationType": "update", "$expr": has_less() },
    ] };
    let fields = doc! {
        "documentKey": 1,
        "fullDocument.resource": 1,
        "operationType": 1,
    };
    vec![doc! { "$match": wanted }, doc! { "$project": fields }]
}

/// Whether an update took a lock away. One that leaves fewer shared locks cuts their array, or replaces it if it is short.
fn has_less() -> Document {
    let updated =
        doc! { "$objectToArray": { "$ifNull": ["$updateDescription.updatedFields", {}] } };
    let cut = doc! { "$ifNull": ["$updateDescription.truncatedArrays.field", []] };
    let names = doc! { "$map": { "input": "$$updated", "in": "$$this.k" } };
    let is_free = doc! { "$or": [
        { "$and": [{ "$eq": ["$$this.k", "exclusive.acquired"] }, { "$eq": ["$$this.v", false] }] },
        { "$and": [{ "$eq": ["$$this.k", "exclusive"] }, { "$eq": ["$$this.v.acquired", false] }] },
    ] };
    let less = doc! { "$or": [
        { "$anyElementTrue": [{ "$map": { "input": "$$updated", "in": is_free } }] },
        { "$in": ["shared", "$$names"] },
        { "$and": [
            { "$in": ["shared.count", "$$names"] },
            { "$in": ["shared.locks", { "$concatArrays": ["$$names", cut] }] },
        ] },
    ] };
    // A grant raises the counter. All that it can remove has expired, which waiters know.
    let not_granted = doc! { "$not": [{ "$in": ["counter", "$$names"] }] };
    let in_names =
        doc! { "$let": { "vars": { "names": names }, "in": { "$and": [not_granted, less] } } };
    doc! { "$let": { "vars": { "updated": updated }, "in": in_names } }
}
