//! Updates for the simplest documents: those of a key that one lease has exclusively, or nobody, and that has no marks. The server
//! takes twice as long to read a pipeline that decides about every document as to carry out such an update.

use leasehold_core::{FencingToken, LeaseId, ReleaseEntry, RenewEntry};
use mongodb::bson::{Bson, Document, doc};

use crate::commands::{Change, Shows};
use crate::pipeline::{
    INTEGERS, all, cond, eq, has_counter_and_no_marks, has_type, is_shared_by_nobody, most,
    nobody_shares,
};
use crate::record::{Skew, free, id_text, milliseconds};

/// Takes a key that nobody has, and changes nothing else: an update that fits no document would try to create a second one, and
/// the server would log that it cannot. The document has the record that was given if the key was taken.
pub(crate) fn acquire(given: Bson) -> Vec<Document> {
    let now = doc! { "$multiply": [{ "$toLong": "$$NOW" }, 1_000_i64] };
    let token = doc! { "$max": [now, { "$add": ["$counter", 1_i64] }] };
    let record = doc! { "$mergeObjects": ["$$given.record", {
        "createdAt": "$$NOW",
        "renewedAt": null,
        "expiresAt": { "$add": ["$$NOW", "$$given.term"] },
        "acquired": true,
        "token": "$$token",
        "skew": "$$given.skew",
    }] };
    let taken = doc! { "$mergeObjects": ["$$ROOT", {
        "exclusive": record,
        "shared": { "$literal": nobody_shares() },
        "counter": "$$token",
    }] };
    let taken = doc! { "$let": { "vars": { "given": given, "token": token }, "in": taken } };
    vec![doc! { "$replaceWith": cond(is_free(), taken, "$$ROOT") }]
}

/// Whether a document is a new one, or has no locks, and has no marks.
fn is_free() -> Bson {
    let is_missing = |field: &str| has_type(field, &["missing"]);
    let is_new = all(vec![is_missing("$exclusive"), is_missing("$shared")]);
    let has_no_locks =
        all(vec![eq("$exclusive", doc! { "$literal": free() }), is_shared_by_nobody()]);
    all(vec![doc! { "$or": [is_new, has_no_locks] }.into(), has_counter_and_no_marks()])
}

/// A document that this lease has exclusively, by its token too if that is known, and that has no shared locks and marks.
fn held(key: &str, id: &LeaseId, token: Option<FencingToken>) -> Document {
    let mut of_token = doc! { "$type": INTEGERS, "$gt": 0, "$lt": most() };
    if let Some(token) = token {
        of_token.insert("$eq", i64::from(token));
    }
    doc! {
        "resource": key,
        // An array matches what its elements do.
        "exclusive": { "$not": { "$type": "array" } },
        "exclusive.acquired": true,
        "exclusive.lockId": id_text(id),
        "exclusive.kept": { "$exists": false },
        "exclusive.token": of_token,
        "shared": { "$eq": nobody_shares(), "$not": { "$type": "array" } },
        // A number that is no integer may equal one.
        "shared.count": { "$type": INTEGERS },
        "evicted": { "$exists": false },
        "counter": { "$type": INTEGERS, "$gt": 0, "$lt": most() },
    }
}

/// Extends a lease that is not over and raises no token.
pub(crate) fn renew(lease: &RenewEntry, skew: Skew) -> Option<Change> {
    let term = lease.term().duration()?;
    if lease.raise().is_some() || lease.claims().first().mode.is_shared() {
        return None;
    }
    let mut query = held(lease.claims().first().key.as_str(), lease.id(), lease.token());
    query.insert("exclusive.expiresAt", doc! { "$type": "date" });
    query.insert("exclusive.skew", doc! { "$type": INTEGERS });
    // It may be evaluated before the rest of the query.
    let are_usable = doc! { "$and": [
        { "$eq": [{ "$type": "$exclusive.expiresAt" }, "date"] },
        { "$isNumber": "$exclusive.skew" },
    ] };
    let end = doc! { "$subtract": ["$exclusive.expiresAt", "$exclusive.skew"] };
    query.insert("$expr", doc! { "$cond": [are_usable, { "$lt": ["$$NOW", end] }, false] });
    let end = doc! { "$add": ["$$NOW", milliseconds(term + skew.0)] };
    let set = doc! {
        "exclusive.renewedAt": "$$NOW",
        "exclusive.before": "$exclusive.expiresAt",
        "exclusive.expiresAt": { "$max": ["$exclusive.expiresAt", end] },
        "exclusive.skew": milliseconds(skew.0),
    };
    let update = vec![doc! { "$set": set }];
    Some(Change { query, update: update.into(), shows: Shows::After })
}

/// Ends a lease, of which nothing is kept.
pub(crate) fn release(lease: &ReleaseEntry) -> Option<Change> {
    let [key] = lease.keys() else { return None };
    if lease.keep().is_some() {
        return None;
    }
    let mut query = held(key.as_str(), lease.id(), lease.token());
    query.insert("exclusive.expiresAt", doc! { "$type": ["date", "null"] });
    let update = doc! { "$set": { "exclusive": free() } };
    Some(Change { query, update: Bson::from(update), shows: Shows::Before })
}
