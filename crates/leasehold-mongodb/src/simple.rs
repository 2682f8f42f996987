//! Updates for the simplest documents: those of a key that one lease has exclusively, or nobody, and that has no marks. The server
//! takes a pipeline that decides about every document twice as long to read as such an update to carry out.

use leasehold_core::{AcquireRequest, FencingToken, LeaseId, ReleaseEntry, RenewEntry};
use mongodb::bson::{Bson, Document, doc};

use crate::commands::{Change, Shows};
use crate::record::{Skew, fields, free, id_text, milliseconds};

const INTEGERS: [&str; 2] = ["int", "long"];

/// A document without shared locks and marks. If there is none, it is created so.
fn simple(key: &str) -> Document {
    doc! {
        "resource": key,
        // An array matches what its elements do.
        "exclusive": { "$not": { "$type": "array" } },
        "shared": { "$eq": { "count": 0_i64, "locks": [] }, "$not": { "$type": "array" } },
        // A number that is no integer may equal one.
        "shared.count": { "$type": INTEGERS },
        "evicted": { "$exists": false },
        // With the limit no token is too great.
        "counter": { "$type": INTEGERS, "$gt": 0, "$lt": most() },
    }
}

/// Takes a key that nobody has.
pub(crate) fn acquire(request: &AcquireRequest, skew: Skew) -> Change {
    let mut query = simple(request.claims().first().key.as_str());
    query.insert("exclusive.acquired", false);
    let term = milliseconds(request.term().duration().unwrap_or_default() + skew.0);
    let now = doc! { "$multiply": [{ "$toLong": "$$NOW" }, 1_000_i64] };
    let token = doc! { "$max": [now, { "$add": ["$counter", 1_i64] }] };
    let given = doc! { "$literal": fields(request.id(), request.group(), request.note()) };
    let set = doc! {
        "createdAt": "$$NOW",
        "renewedAt": null,
        "expiresAt": { "$add": ["$$NOW", term] },
        "acquired": true,
        "token": "$counter",
        "skew": milliseconds(skew.0),
    };
    let update = vec![
        doc! { "$set": { "counter": token } },
        doc! { "$set": { "exclusive": { "$mergeObjects": [given, set] } } },
    ];
    Change { query, update: update.into(), shows: Shows::AfterCreating }
}

/// A document that this lease has exclusively, by its token too if that is known.
fn held(key: &str, id: &LeaseId, token: Option<FencingToken>) -> Document {
    let mut query = simple(key);
    query.insert("exclusive.acquired", true);
    query.insert("exclusive.lockId", id_text(id));
    query.insert("exclusive.kept", doc! { "$exists": false });
    let mut of_token = doc! { "$type": INTEGERS, "$gt": 0, "$lt": most() };
    if let Some(token) = token {
        of_token.insert("$eq", i64::from(token));
    }
    query.insert("exclusive.token", of_token);
    query
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

fn most() -> i64 {
    i64::try_from(FencingToken::MAX).unwrap_or(i64::MAX)
}
