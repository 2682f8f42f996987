//! Changes that the rules decide here, and not on the server: the documents are read, and written unless another client has
//! changed them meanwhile.

use std::future::IntoFuture;
use std::time::Duration;

use leasehold_core::{Clock, Effect, Error, Key, LeaseId, Now, Random, Result, Table};
use leasehold_driver::{Deadline, SystemClock};
use mongodb::ClientSession;
use mongodb::bson::{Bson, Document, doc};
use mongodb::error::{TRANSIENT_TRANSACTION_ERROR, UNKNOWN_TRANSACTION_COMMIT_RESULT};
use mongodb::options::{ReadConcern, WriteConcern};

use crate::batch::failed_update;
use crate::commands::{Commands, Failure, INDEX};
use crate::document::{Stored, projection};
use crate::error::{DUPLICATE_KEY, WRITE_CONFLICT, of_update};
use crate::keys::Keys;
use crate::record::{Skew, millis};

/// The limits of the pauses after which a change is tried again.
const PAUSES: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(200));

/// Which ends of records a rule is about, where a record was written with another skew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ends {
    OfTerms,
    OfExclusion,
}

/// What was read of some keys.
struct Loaded {
    now: Now,
    keys: Keys,
    documents: Vec<Option<(Document, Stored)>>,
}

/// The result of a change, and when it was decided and how long it took.
pub(crate) struct Changed<T> {
    pub(crate) result: T,
    pub(crate) now: Now,
    pub(crate) took: Duration,
}

impl Commands {
    /// Applies a rule to some keys: all that it changes is written in one step, in a transaction if there are several.
    pub(crate) async fn change<T>(
        &self,
        keys: &[Key],
        (empty, skew, ends): (&Table, Skew, Ends),
        until: Deadline,
        rule: impl Fn(&mut Keys, Now) -> Result<T>,
    ) -> Result<Changed<T>> {
        let sent = SystemClock::new().now();
        let (mut random, mut longest) = (Random::seeded(), PAUSES.0);
        loop {
            let step = match keys {
                [_] => self.compare_and_set(keys, (empty, skew, ends), until, &rule).await,
                _ => self.in_transaction(keys, (empty, skew, ends), until, &rule).await,
            };
            match step {
                Ok((result, now)) => {
                    let took = SystemClock::new().now().saturating_sub(sent);
                    return Ok(Changed { result, now, took });
                }
                Err(Step::Failed(error)) => return Err(error),
                Err(Step::Again) => {
                    tokio::time::sleep(random.up_to(longest).min(until.left())).await;
                    longest = (longest * 2).min(PAUSES.1);
                    // A try that has less time would leave its outcome unknown.
                    if until.left() < until.limit() / 10 {
                        let message = format!(
                            "{}: other clients changed the keys again and again for {:?}",
                            self.server(),
                            until.limit()
                        );
                        return Err(Error::unavailable(Effect::NotApplied, message));
                    }
                }
            }
        }
    }

    async fn compare_and_set<T>(
        &self,
        keys: &[Key],
        (empty, skew, ends): (&Table, Skew, Ends),
        until: Deadline,
        rule: impl Fn(&mut Keys, Now) -> Result<T>,
    ) -> Result<(T, Now), Step> {
        let mut loaded = self.load(keys, (empty, skew, ends), until, None).await?;
        let result = rule(&mut loaded.keys, loaded.now).map_err(Step::Failed)?;
        let command = match loaded.forgotten(keys) {
            Some(query) => Some(doc! {
                "delete": self.collection(),
                "deletes": [{ "q": query, "limit": 1, "hint": INDEX }],
            }),
            None => self.update_command(&loaded.updates(keys, skew)),
        };
        if let Some(command) = command {
            let reply = self.write(command, until).await.map_err(|f| self.step(f, until))?;
            is_done(self.server(), &reply, 1)?;
            crate::error::of_write_concern(self.server(), &reply).map_err(Step::Failed)?;
        }
        Ok((result, loaded.now))
    }

    async fn in_transaction<T>(
        &self,
        keys: &[Key],
        (empty, skew, ends): (&Table, Skew, Ends),
        until: Deadline,
        rule: impl Fn(&mut Keys, Now) -> Result<T>,
    ) -> Result<(T, Now), Step> {
        let failed = |error| self.step(Failure::Driver(error), until);
        let mut session = self.client().start_session().await.map_err(failed)?;
        let concern = WriteConcern::builder()
            .w(mongodb::options::Acknowledgment::Majority)
            .journal(true)
            .w_timeout(until.left())
            .build();
        session
            .start_transaction()
            .read_concern(ReadConcern::snapshot())
            .write_concern(concern)
            .max_commit_time(until.left())
            .await
            .map_err(failed)?;
        let decided = async {
            let mut loaded =
                self.load(keys, (empty, skew, ends), until, Some(&mut session)).await?;
            let result = rule(&mut loaded.keys, loaded.now).map_err(Step::Failed)?;
            let updates = loaded.updates(keys, skew);
            if let Some(command) = self.update_command(&updates) {
                let reply = self.run(command, until, Some(&mut session)).await;
                let reply = reply.map_err(|f| self.step(f, until))?;
                is_done(self.server(), &reply, updates.len())?;
            }
            Ok((result, loaded.now, !updates.is_empty()))
        };
        // A transaction that wrote nothing, or failed, is aborted in the background when its session is dropped.
        let (result, now, has_written) = decided.await?;
        if has_written {
            self.commit(&mut session, until).await?;
        }
        Ok((result, now))
    }

    /// Commits, again while nobody knows whether it was.
    async fn commit(&self, session: &mut ClientSession, until: Deadline) -> Result<(), Step> {
        loop {
            match until.bound(session.commit_transaction().into_future()).await {
                Some(Ok(())) => return Ok(()),
                Some(Err(error))
                    if error.contains_label(UNKNOWN_TRANSACTION_COMMIT_RESULT)
                        && !until.left().is_zero() => {}
                Some(Err(error)) if error.contains_label(TRANSIENT_TRANSACTION_ERROR) => {
                    return Err(Step::Again);
                }
                Some(Err(error)) => {
                    let error = self.error(Failure::Driver(error), until);
                    return Err(Step::Failed(error.with_effect(Effect::Unknown)));
                }
                None => return Err(Step::Failed(self.error(Failure::Unanswered, until))),
            }
        }
    }

    fn step(&self, failure: Failure, until: Deadline) -> Step {
        let is_race = matches!(failure.code(), Some(DUPLICATE_KEY | WRITE_CONFLICT));
        if is_race || failure.has_label(TRANSIENT_TRANSACTION_ERROR) {
            return Step::Again;
        }
        Step::Failed(self.error(failure, until))
    }

    /// Reads the documents of the keys, in one command and by one look at the server's clock.
    async fn load(
        &self,
        keys: &[Key],
        (empty, skew, ends): (&Table, Skew, Ends),
        until: Deadline,
        session: Option<&mut ClientSession>,
    ) -> Result<Loaded, Step> {
        let names: Vec<_> = keys.iter().map(Key::as_str).collect();
        let stages = vec![
            doc! { "$match": { "resource": { "$in": names } } },
            doc! { "$project": projection() },
            // It has a result also if there is no document.
            doc! { "$facet": { "found": [{ "$match": {} }] } },
            doc! { "$set": { "now": "$$NOW" } },
        ];
        let reply = self.aggregate(stages, until, session).await;
        let reply = reply.map_err(|failure| self.step(failure, until))?;
        let unexpected = || Step::Failed(crate::error::unexpected(self.server(), "no documents"));
        let reply = reply.0.first().ok_or_else(unexpected)?;
        let now = millis(*reply.get_datetime("now").map_err(|_| unexpected())?);
        let now = Now { boot: now, wall_micros: leasehold_core::term::micros_up(now) };
        let found = reply.get_array("found").map_err(|_| unexpected())?;
        let (mut documents, mut entries) = (Vec::new(), Vec::new());
        for key in keys {
            let of_key = |document: &&Document| {
                document.get_str("resource").is_ok_and(|name| name == key.as_str())
            };
            let document = found.iter().filter_map(Bson::as_document).find(of_key);
            let stored = document.map(|document| skew.read(document)).transpose();
            let mut stored =
                stored.map_err(|error| Step::Failed(crate::error::of_key(error, key)))?;
            if let Some(stored) = &mut stored {
                if ends == Ends::OfExclusion {
                    stored.entry = stored.excluding(skew);
                }
                entries.push((key.clone(), stored.entry.clone()));
            }
            documents.push(document.cloned().zip(stored));
        }
        Ok(Loaded { now, keys: Keys::new(empty, entries), documents })
    }

    fn update_command(&self, updates: &[Document]) -> Option<Document> {
        let command = || doc! { "update": self.collection(), "updates": updates, "ordered": true };
        (!updates.is_empty()).then(command)
    }
}

/// When the lease of this id first ends on one of the keys.
pub(crate) fn end_of(table: &Table, keys: &[Key], id: &LeaseId) -> Option<Duration> {
    let holders = keys.iter().flat_map(|key| table.holders(key));
    let own = holders.filter(|holder| holder.id.as_ref() == Some(id));
    own.filter_map(|holder| holder.expires).min()
}

/// How a try ended that is no success.
enum Step {
    /// Another client was faster.
    Again,
    Failed(Error),
}

impl Loaded {
    /// What finds the document of one key whose counter the rule forgot (C7).
    fn forgotten(&self, keys: &[Key]) -> Option<Document> {
        let ([key], [Some((document, _))]) = (keys, self.documents.as_slice()) else { return None };
        self.keys.entry(key).is_none().then(|| unchanged(document))
    }

    /// The updates of what the rule changed.
    fn updates(&self, keys: &[Key], skew: Skew) -> Vec<Document> {
        let mut updates = Vec::new();
        for (key, before) in keys.iter().zip(&self.documents) {
            let entry = self.keys.entry(key).unwrap_or_default();
            let (query, stored) = match before {
                Some((_, stored)) if stored.entry == entry => continue,
                None if entry == Default::default() => continue,
                Some((document, stored)) => (unchanged(document), stored),
                None => (
                    doc! { "resource": key.as_str(), "exclusive": { "$exists": false } },
                    &Stored::none(self.now),
                ),
            };
            let fields = skew.write(stored, &entry);
            let is_same = |(name, value): (&String, &Bson)| {
                before.as_ref().is_some_and(|(document, _)| document.get(name) == Some(value))
            };
            if fields.iter().all(is_same) && !fields_gone(&fields, before.as_ref().map(|(d, _)| d))
            {
                continue;
            }
            let gone: Vec<_> = ["counter", "evicted"]
                .into_iter()
                .filter(|name| !fields.contains_key(name))
                .collect();
            // Of a pipeline the server tells its change streams what differs, of `$set` all that was set.
            let merged = doc! { "$mergeObjects": ["$$ROOT", { "$literal": &fields }] };
            let mut update = vec![doc! { "$replaceWith": merged }];
            if !gone.is_empty() {
                update.push(doc! { "$unset": gone });
            }
            updates
                .push(doc! { "q": query, "u": update, "upsert": before.is_none(), "hint": INDEX });
        }
        updates
    }
}

/// Whether the document has a field that it shall not have any more.
fn fields_gone(fields: &Document, before: Option<&Document>) -> bool {
    ["counter", "evicted"].iter().any(|name| {
        !fields.contains_key(*name) && before.is_some_and(|document| document.contains_key(*name))
    })
}

/// A query that finds the document only if nobody has changed it.
fn unchanged(document: &Document) -> Document {
    let mut query = doc! { "resource": document.get("resource").cloned().unwrap_or(Bson::Null) };
    for name in ["exclusive", "shared", "counter", "evicted"] {
        let value = match document.get(name) {
            Some(value) => doc! { "$eq": value.clone() },
            None => doc! { "$exists": false },
        };
        query.insert(name, value);
    }
    query
}

/// Checks that each of these updates found its document.
fn is_done(server: &str, reply: &Document, updates: usize) -> Result<(), Step> {
    if let Some((code, why)) = failed_update(reply) {
        return Err(match code {
            DUPLICATE_KEY | WRITE_CONFLICT => Step::Again,
            _ => Step::Failed(of_update(server, code, why)),
        });
    }
    let found = reply.get("n").and_then(crate::record::integer);
    if found == i64::try_from(updates).ok() { Ok(()) } else { Err(Step::Again) }
}
