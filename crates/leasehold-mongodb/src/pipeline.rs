//! Updates that decide on the server what becomes of requests about a lease of one key each, as a pipeline of stages.
//!
//! The first stage adds what the request about the document's key gives as the field `lh`, the last removes it. A refused request leaves the document
//! as it was, which costs the server no write. [`Table`](leasehold_core::Table) has the same rules, in Rust.

pub(crate) mod acquire;
pub(crate) mod release;
pub(crate) mod renew;

use leasehold_core::{FencingToken, LeaseId};
use mongodb::bson::{Bson, Document, doc};

use crate::record::free;

/// What one request gives.
pub(crate) fn given(by: Document) -> Bson {
    doc! { "$literal": by }.into()
}

/// What the request about the key of the document gives, of several about different keys.
pub(crate) fn given_by_key(keys: &[&str], by_each: Vec<Document>) -> Bson {
    let place = doc! { "$indexOfArray": [{ "$literal": keys }, "$resource"] };
    doc! { "$arrayElemAt": [{ "$literal": by_each }, place] }.into()
}

/// A pipeline for requests that give these parameters.
fn stages(given: Bson, stages: Vec<Document>) -> Vec<Document> {
    let first = doc! { "$set": { "lh": given } };
    let last = doc! { "$unset": "lh" };
    [first].into_iter().chain(stages).chain([last]).collect()
}

/// A stage that sets fields.
fn set(fields: Document) -> Document {
    doc! { "$set": fields }
}

pub(crate) fn cond(
    condition: impl Into<Bson>,
    then: impl Into<Bson>,
    otherwise: impl Into<Bson>,
) -> Bson {
    let branches = [condition.into(), then.into(), otherwise.into()];
    doc! { "$cond": branches.to_vec() }.into()
}

pub(crate) fn all(conditions: Vec<Bson>) -> Bson {
    doc! { "$and": conditions }.into()
}

fn not(condition: Bson) -> Bson {
    doc! { "$not": [condition] }.into()
}

pub(crate) fn eq(one: impl Into<Bson>, other: impl Into<Bson>) -> Bson {
    doc! { "$eq": [one.into(), other.into()] }.into()
}

pub(crate) fn has_type(value: &str, types: &[&str]) -> Bson {
    doc! { "$in": [{ "$type": value }, types] }.into()
}

pub(crate) const INTEGERS: &[&str] = &["int", "long"];

/// A record, by the path of its document.
#[derive(Clone, Copy)]
struct Of<'a>(&'a str);

/// An element of `shared.locks`, in an expression about each of them.
const EACH: Of<'_> = Of("$$lock");
const EXCLUSIVE: Of<'_> = Of("$exclusive");

impl Of<'_> {
    fn field(self, name: &str) -> String {
        format!("{}.{name}", self.0)
    }

    fn ends(self) -> Bson {
        has_type(&self.field("expiresAt"), &["date"])
    }

    /// Whether a client of Leasehold wrote it.
    fn is_ours(self) -> Bson {
        has_type(&self.field("token"), INTEGERS)
    }

    fn is(self, field: &str, value: impl Into<Bson>) -> Bson {
        eq(self.field(field), value)
    }

    /// By how much before `expiresAt` its holder's term ends.
    fn skew(self) -> Bson {
        let skew = self.field("skew");
        cond(has_type(&skew, INTEGERS), skew, "$lh.skew")
    }

    /// Whether its holder's term is over (C6).
    fn is_over(self) -> Bson {
        let end = doc! { "$subtract": [self.field("expiresAt"), self.skew()] };
        all(vec![self.ends(), doc! { "$gte": ["$$NOW", end] }.into()])
    }

    /// Whether it is the lease that the request names, by its token too if it gives one (C3).
    fn is_named(self) -> Bson {
        let has_token =
            doc! { "$or": [eq("$lh.token", Bson::Null), self.is("token", "$lh.token")] };
        all(vec![self.is("lockId", "$lh.id"), has_token.into()])
    }

    /// Whether its holder has not released it.
    fn is_not_kept(self) -> Bson {
        not(self.is("kept", true))
    }

    fn is_held(self) -> Bson {
        all(vec![self.is_not_kept(), not(self.is_over())])
    }

    /// Whether it excludes others: another client's for `skew` longer than it states (C5).
    fn excludes(self) -> Bson {
        let longer = cond(self.is_ours(), 0, "$lh.skew");
        let end = doc! { "$add": [self.field("expiresAt"), longer] };
        doc! { "$or": [not(self.ends()), { "$lt": ["$$NOW", end] }] }.into()
    }

    /// Whether a record has the form that mongo-lock and this store write.
    fn is_sound(self) -> Bson {
        all(vec![
            has_type(self.0, &["object"]),
            has_type(&self.field("lockId"), &["string"]),
            has_type(&self.field("expiresAt"), &["date", "null", "missing"]),
            is_token_or_missing(&self.field("token")),
        ])
    }

    /// The fields of a longer term (C6: never a shorter one). `before` tells when the term ended that it continues.
    fn extension(self) -> Document {
        let end = doc! { "$max": [self.field("expiresAt"), { "$add": ["$$NOW", "$lh.term"] }] };
        let ends = all(vec![self.ends(), has_type("$lh.term", INTEGERS)]);
        doc! {
            "renewedAt": "$$NOW",
            "before": self.field("expiresAt"),
            "expiresAt": cond(ends, end, Bson::Null),
        }
    }
}

pub(crate) fn most() -> i64 {
    i64::try_from(FencingToken::MAX).unwrap_or(i64::MAX)
}

fn is_token(value: &str) -> Bson {
    all(vec![
        has_type(value, INTEGERS),
        doc! { "$gte": [value, 1] }.into(),
        doc! { "$lte": [value, most()] }.into(),
    ])
}

fn is_token_or_missing(value: &str) -> Bson {
    doc! { "$or": [has_type(value, &["missing"]), is_token(value)] }.into()
}

/// Whether the mark of an evicted lease has the form that this store writes.
fn is_mark() -> Bson {
    let is_text = has_type("$$mark.lockId", &["string"]);
    let length = doc! { "$strLenBytes": cond(is_text, "$$mark.lockId", "") };
    let most = i64::try_from(LeaseId::MAX_BYTES).unwrap_or(i64::MAX);
    all(vec![
        doc! { "$gt": [length.clone(), 0] }.into(),
        doc! { "$lte": [length, most] }.into(),
        is_token("$$mark.token"),
        has_type("$$mark.until", &["date"]),
    ])
}

/// Whether the whole document has the form that mongo-lock and this store write, as [`Skew::read`](crate::record::Skew) checks
/// it; a new one has nothing yet.
pub(crate) fn is_sound() -> Bson {
    let each = |elements: &str, name: &str, is_sound: Bson| -> Bson {
        doc! { "$allElementsTrue": [
            { "$map": { "input": elements, "as": name, "in": is_sound } },
        ] }
        .into()
    };
    let is_new = all(vec![has_type("$exclusive", &["missing"]), has_type("$shared", &["missing"])]);
    let exclusive = all(vec![
        has_type("$exclusive", &["object"]),
        has_type("$exclusive.acquired", &["bool"]),
        doc! { "$or": [eq("$exclusive.acquired", false), EXCLUSIVE.is_sound()] }.into(),
    ]);
    let shared = all(vec![
        has_type("$shared", &["object"]),
        has_type("$shared.locks", &["array"]),
        has_type("$shared.count", INTEGERS),
        eq("$shared.count", doc! { "$size": "$lh.locks" }),
        each("$lh.locks", "lock", EACH.is_sound()),
    ]);
    all(vec![
        is_token_or_missing("$counter"),
        has_type("$evicted", &["array", "missing"]),
        each("$lh.marks", "mark", is_mark()),
        doc! { "$or": [is_new, all(vec![exclusive, shared])] }.into(),
    ])
}

/// Whether a document has an exclusive lease of ours, of the form that this store writes, and nothing else.
fn is_alone() -> Bson {
    all(vec![
        eq("$exclusive.acquired", true),
        EXCLUSIVE.is_sound(),
        EXCLUSIVE.is_ours(),
        is_shared_by_nobody(),
        has_counter_and_no_marks(),
    ])
}

pub(crate) fn is_shared_by_nobody() -> Bson {
    all(vec![
        eq("$shared", doc! { "$literal": nobody_shares() }),
        // A number that is no integer may equal one.
        has_type("$shared.count", INTEGERS),
    ])
}

/// Whether the greatest token can be followed by another one, and no lease was evicted.
pub(crate) fn has_counter_and_no_marks() -> Bson {
    all(vec![
        has_type("$evicted", &["missing"]),
        has_type("$counter", &["int", "long", "missing"]),
        doc! { "$gt": [{ "$ifNull": ["$counter", 1] }, 0] }.into(),
        doc! { "$lt": ["$counter", most()] }.into(),
    ])
}

/// A stage that sets `lh.locks`, `lh.marks` and `lh.taken` to what of the document can be used safely, whatever it holds.
pub(crate) fn usable() -> Document {
    let array = |path: &str| cond(has_type(path, &["array"]), path, Bson::Array(Vec::new()));
    set(doc! {
        "lh.locks": array("$shared.locks"),
        "lh.marks": array("$evicted"),
        "lh.taken": EXCLUSIVE.is("acquired", true),
    })
}

/// The shared locks for which this holds.
fn locks(condition: Bson) -> Document {
    doc! { "$filter": { "input": "$lh.locks", "as": "lock", "cond": condition } }
}

fn any(filtered: Document) -> Bson {
    doc! { "$gt": [{ "$size": filtered }, 0] }.into()
}

/// Shared locks that each `change` turned into another one.
fn changed_locks(change: Bson) -> Document {
    doc! { "$map": { "input": "$lh.locks", "as": "lock", "in": change } }
}

/// The sub-document `shared` with these locks.
fn shared(locks: impl Into<Bson>) -> Bson {
    let locks = locks.into();
    doc! { "count": { "$toLong": { "$size": [locks.clone()] } }, "locks": locks }.into()
}

/// A document of a key that nobody has held.
pub(crate) fn new_document() -> Document {
    doc! { "exclusive": free(), "shared": nobody_shares() }
}

pub(crate) fn nobody_shares() -> Document {
    doc! { "count": 0_i64, "locks": [] }
}

fn nobody() -> Bson {
    doc! { "$literal": free() }.into()
}
