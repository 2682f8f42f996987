//! The library's queries and documents, field by field in its order.

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, DateTime, Document, doc};

use super::{LockDetails, LockStatus, LockType};

/// The indexes besides the unique one.
pub(super) const INDEXED: &[&str] =
    &["exclusive.lockId", "exclusive.expiresAt", "shared.locks.lockId", "shared.locks.expiresAt"];

/// A sub-document of a lock that is held.
pub(super) fn lock(
    lock_id: &str,
    details: &LockDetails,
    created_at: DateTime,
    expires_at: Option<DateTime>,
    id: ObjectId,
) -> Document {
    let text = |text: &str| if text.is_empty() { Bson::Null } else { text.into() };
    doc! {
        "lockId": lock_id,
        "owner": text(&details.owner),
        "host": text(&details.host),
        "comment": text(&details.comment),
        "createdAt": created_at,
        "renewedAt": Bson::Null,
        "expiresAt": expires_at,
        "acquired": true,
        "_id": id,
    }
}

/// The sub-document of an exclusive lock that is not held; it has no `_id`.
fn no_lock() -> Document {
    let nulls = ["lockId", "owner", "host", "comment", "createdAt", "renewedAt", "expiresAt"];
    let mut lock: Document =
        nulls.map(|field| (field.to_owned(), Bson::Null)).into_iter().collect();
    lock.insert("acquired", false);
    lock
}

pub(super) fn x_lock_query(resource: &str, now: DateTime) -> Document {
    doc! {
        "resource": resource,
        "$or": [{ "exclusive.acquired": false }, { "exclusive.expiresAt": { "$lte": now } }],
        "shared.count": 0,
    }
}

pub(super) fn x_lock_update(resource: &str, lock: Document) -> Document {
    // A Go `uint` is an int64; other numbers of this size are int32.
    doc! { "$set": { "resource": resource, "exclusive": lock, "shared": { "count": 0_i64, "locks": [] } } }
}

pub(super) fn s_lock_query(resource: &str, lock_id: &str, max: i32) -> Document {
    let mut query = doc! {
        "resource": resource,
        "exclusive.acquired": false,
        "shared.locks.lockId": { "$ne": lock_id },
    };
    if max >= 0 {
        query.insert("shared.count", doc! { "$lt": max });
    }
    query
}

pub(super) fn s_lock_update(lock: Document) -> Document {
    doc! { "$inc": { "shared.count": 1 }, "$push": { "shared.locks": lock } }
}

/// The query and the update of `xUnlock` or `sUnlock`.
pub(super) fn unlock(lock: &LockStatus) -> (Document, Document) {
    let (resource, lock_id) = (&lock.resource, &lock.lock_id);
    match lock.lock_type {
        LockType::Exclusive => (
            doc! { "resource": resource, "exclusive.lockId": lock_id },
            doc! { "$set": { "exclusive": no_lock() } },
        ),
        LockType::Shared => (
            doc! { "resource": resource, "shared.locks.lockId": lock_id },
            doc! { "$inc": { "shared.count": -1 }, "$pull": { "shared.locks": { "lockId": lock_id } } },
        ),
    }
}

/// Finds the lock if it ends after `min`: never, if it has no end.
pub(super) fn renew_query(lock: &LockStatus, min: DateTime) -> Document {
    let (resource, lock_id) = (&lock.resource, &lock.lock_id);
    let later = doc! { "$gt": min };
    match lock.lock_type {
        LockType::Exclusive => doc! {
            "resource": resource,
            "exclusive.lockId": lock_id,
            "exclusive.expiresAt": later,
        },
        LockType::Shared => doc! {
            "resource": resource,
            "shared.locks": { "$elemMatch": { "lockId": lock_id, "expiresAt": later } },
        },
    }
}

pub(super) fn renew_update(of: LockType, expires_at: DateTime, renewed_at: DateTime) -> Document {
    let lock = match of {
        LockType::Exclusive => "exclusive",
        LockType::Shared => "shared.locks.$",
    };
    doc! { "$set": {
        format!("{lock}.expiresAt"): expires_at,
        format!("{lock}.renewedAt"): renewed_at,
    } }
}

pub(super) fn gc_query() -> Document {
    doc! { "exclusive.lockId": Bson::Null, "shared.count": 0 }
}
