//! Requests about one key each that are sent together: one update of all their documents, and one look at what became of them.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use leasehold_core::{Clock, Effect, Error, Key, ReleaseOutcome, Result, term};
use leasehold_driver::batches::{
    Batches, Exchange, Outcome, Outcomes, Request, Requests, Server, Sizes, each_kind,
};
use leasehold_driver::{Deadline, SystemClock};
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, Document, doc};

use crate::commands::{INDEX, Times, has_record};
use crate::document::{Stored, ended_by};
use crate::error::{DUPLICATE_KEY, OUT_OF_TIME, WRITE_CONFLICT, of_update, unanswered, unexpected};
use crate::inner::Inner;
use crate::pipeline::{given_by_key, new_document};
use crate::record::{integer, milliseconds};
use crate::shapes::Shape;

/// While the members of the replica set pass on one batch, the primary works on another.
const SIZES: Sizes =
    Sizes { most: 1_250, lanes: 2, many: 8, are_mixed: false, share_a_disk: false };

/// So long may a busy server take for each request of a batch, without a wait for a document.
const EACH: Duration = Duration::from_micros(500);

pub(crate) fn batches(inner: &Arc<Inner>) -> Batches<Inner> {
    Batches::new(Arc::clone(inner), SIZES, inner.commands.timeout())
}

/// A request that may go in a batch.
pub(crate) trait Member: Request {
    /// Whether it creates the document of its key if there is none.
    const CREATES: bool = false;

    fn goes_in_batch(&self) -> bool;

    /// Whether `simple` is likely to decide it, if the document was last seen in this shape.
    fn is_simple(&self, _: Option<Shape>) -> bool {
        false
    }

    /// What it gives to the pipeline.
    fn given(&self, inner: &Inner, sent: Sent) -> Document;

    /// Decides on every document.
    fn pipeline(given: Bson) -> Vec<Document>;

    /// Decides on simple documents, and leaves others as they are.
    fn simple(given: Bson) -> Vec<Document> {
        Self::pipeline(given)
    }

    /// Carries it out alone. `None` if another client's transaction held the document for the whole patience. What it grants has
    /// a record with this `_id`.
    fn alone(
        &self,
        inner: &Inner,
        record: ObjectId,
        times: Times,
    ) -> impl Future<Output = Result<Option<Self::Reply>>> + Send;

    /// Carries it out again after a try that was given up and may have done so; `None` if it is to be sent alone.
    fn again(
        &self,
        _: &Inner,
        _: Sent,
        _: Times,
    ) -> impl Future<Output = Result<Option<Self::Reply>>> + Send {
        async { Ok(None) }
    }

    /// The reply, by what became of its document; `None` if that does not tell.
    fn reply(
        &self,
        inner: &Inner,
        seen: Seen<'_>,
        until: Deadline,
    ) -> impl Future<Output = Result<Option<Self::Reply>>> + Send;
}

/// How a request was sent.
#[derive(Clone, Copy)]
pub(crate) struct Sent {
    pub(crate) batch: ObjectId,
    /// The `_id` of its record, if it becomes one.
    pub(crate) record: ObjectId,
    /// Whether only a simple document decides it.
    pub(crate) is_simple: bool,
}

/// What was found after a batch.
struct Found {
    documents: HashMap<String, Document>,
    /// Whether these are all, and as many as the batch found.
    is_whole: bool,
    /// How long the update took, and both commands.
    took: (Duration, Duration),
}

/// What was found of one key after a batch.
#[derive(Clone, Copy)]
pub(crate) struct Seen<'f> {
    pub(crate) sent: Sent,
    found: &'f Found,
    document: Option<&'f Document>,
}

impl Seen<'_> {
    /// The key; `None` if it has no document.
    pub(crate) fn stored(self, inner: &Inner, key: &Key) -> Result<Option<Stored>> {
        self.document.map(|document| inner.stored_in(key, document)).transpose()
    }

    /// Whether the document has the record that the request gave.
    pub(crate) fn has_record(self) -> bool {
        self.document.is_some_and(|document| has_record(document, self.sent.record))
    }

    /// Whether it has no document beyond doubt.
    pub(crate) fn is_missing(self) -> bool {
        self.document.is_none() && self.found.is_whole
    }

    /// How a lease ended that this batch ended. `None` if it ended none.
    pub(crate) fn ended(self, stored: &Stored) -> Result<Option<ReleaseOutcome>> {
        let since = stored.since(self.found.took.1);
        let ended = self.document.map(|document| ended_by(document, self.sent.batch, since));
        ended.unwrap_or(Ok(None))
    }

    /// The earliest time of the update, by the server's clock, in microseconds.
    pub(crate) fn since(self, stored: &Stored) -> u64 {
        term::micros_up(stored.since(self.found.took.1))
    }

    /// Whether a term that ended then was over when a renewal at that time, in microseconds, was written (C6).
    pub(crate) fn was_over(self, stored: &Stored, ended: Duration, renewed: u64) -> bool {
        let written_by = Duration::from_micros(renewed) + self.found.took.0;
        ended <= written_by && ended <= stored.now.boot
    }
}

impl Server for Inner {
    async fn send(&self, requests: &Requests<'_>, begin: Deadline) -> Outcomes {
        each_kind(self, requests, begin).await
    }

    /// The driver closes a connection whose reply does not arrive.
    fn retire(&self) {}

    fn unanswered(&self, limit: Duration, effect: Effect) -> Error {
        unanswered(self.commands.server(), limit, effect)
    }
}

impl<R: Member> Exchange<R> for Inner {
    async fn send(&self, requests: &[&R], begin: Deadline) -> Vec<Outcome<R::Reply>> {
        let patience = requests.iter().map(|one| one.patience(self.commands.timeout()));
        let patience = patience.min().unwrap_or_default();
        let until = self.commands.deadline();
        let times = (until, Some(patience));
        let batch = ObjectId::new();
        let sent = |request: &&R| {
            let is_simple = request.is_simple(self.shapes.of(request.key()));
            Sent { batch, record: ObjectId::new(), is_simple }
        };
        let sent: Vec<_> = requests.iter().map(sent).collect();
        if let ([one], [sent]) = (requests, &*sent) {
            return vec![outcome(match one.alone(self, sent.record, times).await {
                Ok(None) if R::CREATES => one.again(self, *sent, times).await,
                reply => reply,
            })];
        }
        let patience = patience + EACH * u32::try_from(requests.len()).unwrap_or(u32::MAX);
        match self.send_together(requests, &sent, (begin, patience)).await {
            Ok(Some(found)) => {
                let replies = requests.iter().zip(sent).map(|(request, sent)| {
                    let document = found.documents.get(request.key().as_str());
                    request.reply(self, Seen { sent, found: &found, document }, until)
                });
                join_all(replies).await.into_iter().map(outcome).collect()
            }
            Ok(None) => {
                let again = requests.iter().zip(sent);
                let again = again.map(|(request, sent)| request.again(self, sent, times));
                join_all(again).await.into_iter().map(outcome).collect()
            }
            Err(error) => requests.iter().map(|_| Outcome::Done(Err(error.clone()))).collect(),
        }
    }
}

fn outcome<T>(reply: Result<Option<T>>) -> Outcome<T> {
    reply.transpose().map_or(Outcome::SendAlone, Outcome::Done)
}

impl Inner {
    /// Updates the documents of all requests, and looks at them. `None` if another client kept a document, and the batch was
    /// given up: it may have updated any of the others.
    async fn send_together<R: Member>(
        &self,
        requests: &[&R],
        sent: &[Sent],
        (begin, patience): (Deadline, Duration),
    ) -> Result<Option<Found>> {
        let server = self.commands.server();
        let keys: Vec<_> = requests.iter().map(|request| request.key().as_str()).collect();
        let is_new = |request: &&&R| R::CREATES && self.shapes.of(request.key()).is_none();
        let mut updates: Vec<_> =
            requests.iter().filter(is_new).map(|r| creation(r.key())).collect();
        for (is_simple, pipeline) in [(true, R::simple as fn(Bson) -> _), (false, R::pipeline)] {
            let sent = requests.iter().zip(sent).filter(|(_, sent)| sent.is_simple == is_simple);
            let (keys, given): (Vec<_>, Vec<_>) = sent
                .map(|(request, sent)| (request.key().as_str(), request.given(self, *sent)))
                .unzip();
            if !keys.is_empty() {
                updates.push(doc! {
                    "q": { "resource": { "$in": &keys } },
                    "u": pipeline(given_by_key(&keys, given)),
                    "multi": true,
                    "hint": INDEX,
                });
            }
        }
        let command = doc! {
            "update": self.commands.collection(),
            "updates": updates,
            "ordered": true,
            "maxTimeMS": milliseconds(patience),
        };
        let began = SystemClock::new().now();
        let took = || SystemClock::new().now().saturating_sub(began);
        let reply = match self.commands.write(command, begin).await {
            Err(failure) if failure.code() == Some(OUT_OF_TIME) => return Ok(None),
            reply => reply.map_err(|failure| self.commands.error(failure, begin))?,
        };
        match failed_update(&reply) {
            None => {}
            Some((DUPLICATE_KEY | WRITE_CONFLICT | OUT_OF_TIME, _)) => return Ok(None),
            Some((code, why)) => return Err(of_update(server, code, why)),
        }
        let until = self.commands.deadline();
        self.commands.is_on_majority(&reply, (until, Some(patience))).await?;
        let updated = took();
        let (documents, are_all) = self.commands.find(&keys, until).await?;
        let count = reply.get("n").and_then(integer);
        let is_whole = are_all && (R::CREATES || count == i64::try_from(documents.len()).ok());
        let named = documents.into_iter().map(|document| {
            let name = document.get_str("resource").map(str::to_owned);
            name.map(|name| (name, document)).map_err(|_| unexpected(server, "no resource"))
        });
        let documents = named.collect::<Result<_>>()?;
        Ok(Some(Found { documents, is_whole, took: (updated, took()) }))
    }
}

/// Creates the document of a key if there is none. A pipeline would have to be sent with each.
fn creation(key: &Key) -> Document {
    doc! { "q": { "resource": key.as_str() }, "u": { "$setOnInsert": new_document() }, "upsert": true, "hint": INDEX }
}

/// The code and the reason of the first update that failed.
pub(crate) fn failed_update(reply: &Document) -> Option<(i32, &str)> {
    let failure = reply.get_array("writeErrors").ok()?.first()?.as_document()?;
    let why = failure.get_str("errmsg").unwrap_or("no reason");
    Some((failure.get_i32("code").unwrap_or_default(), why))
}
