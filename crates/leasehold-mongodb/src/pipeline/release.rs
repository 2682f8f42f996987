use leasehold_core::ReleaseEntry;
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, Document, doc};

use super::{
    EACH, EXCLUSIVE, Of, all, any, cond, has_type, is_alone, is_sound, locks, nobody, not, set,
    shared, stages, usable,
};
use crate::record::{Skew, id_text, milliseconds};

/// So many batches that ended a lease are remembered, and no longer than this, in milliseconds.
pub(crate) const TRACES: usize = 8;
const TRACED_FOR: i64 = 60_000;

/// What a release gives. What a batch of this id ends leaves a trace of it.
pub(crate) fn given(lease: &ReleaseEntry, skew: Skew, batch: Option<ObjectId>) -> Document {
    doc! {
        "id": id_text(lease.id()),
        "token": lease.token().map(i64::from),
        "keep": lease.keep().map(|keep| milliseconds(keep + skew.0)),
        "skew": milliseconds(skew.0),
        "batch": batch,
    }
}

/// Ends a lease of one key, or keeps the key taken.
pub(crate) fn pipeline(given: Bson) -> Vec<Document> {
    stages(given, vec![usable(), found(), outcome()])
}

/// Ends an exclusive lease whose document has nothing else, and changes no other document.
pub(crate) fn simple(given: Bson) -> Vec<Document> {
    let ends = all(vec![is_alone(), own(EXCLUSIVE)]);
    stages(
        given,
        vec![
            set(doc! { "lh.ends": ends, "lh.late": EXCLUSIVE.is_over() }),
            set(doc! {
                "exclusive": cond("$lh.ends", nobody(), "$exclusive"),
                "released": cond("$lh.ends", traces(), "$released"),
            }),
        ],
    )
}

/// The lease, unless its holder released it already.
fn own(of: Of<'_>) -> Bson {
    all(vec![of.is_named(), of.is_not_kept()])
}

fn late(of: Of<'_>) -> Bson {
    all(vec![own(of), of.is_over()])
}

fn kept(of: Of<'_>) -> Bson {
    all(vec![of.is_named(), not(of.is_not_kept()), not(of.is_over())])
}

fn found() -> Document {
    let in_exclusive = |condition: Bson| all(vec!["$lh.taken".into(), condition]);
    let keeps = has_type("$lh.keep", super::INTEGERS);
    let is_kept: Bson =
        doc! { "$or": [in_exclusive(kept(EXCLUSIVE)), any(locks(kept(EACH)))] }.into();
    set(doc! {
        "lh.sound": is_sound(),
        "lh.inExclusive": in_exclusive(own(EXCLUSIVE)),
        "lh.inShared": any(locks(own(EACH))),
        "lh.nothing": all(vec![keeps, is_kept]),
        "lh.late": { "$or": [in_exclusive(late(EXCLUSIVE)), any(locks(late(EACH)))] },
    })
}

fn outcome() -> Document {
    let keeps = |of: Of<'_>| all(vec![has_type("$lh.keep", super::INTEGERS), not(of.is_over())]);
    let to_keep = |of: Of<'_>| -> Bson {
        doc! { "$mergeObjects": [of.0, {
            "kept": true,
            "expiresAt": { "$add": ["$$NOW", "$lh.keep"] },
            "skew": "$lh.skew",
        }] }
        .into()
    };
    let acts = |found: &str| all(vec!["$lh.sound".into(), not("$lh.nothing".into()), found.into()]);
    let remaining = locks(not(all(vec![own(EACH), not(keeps(EACH))])));
    // Of the remaining ones, the lease's own is kept.
    let after = doc! { "$let": { "vars": { "remaining": remaining }, "in": {
        "$map": { "input": "$$remaining", "as": "lock", "in": cond(own(EACH), to_keep(EACH), EACH.0) },
    } } };
    set(doc! {
        "exclusive": cond(acts("$lh.inExclusive"),
            cond(keeps(EXCLUSIVE), to_keep(EXCLUSIVE), nobody()), "$exclusive"),
        "shared": cond(acts("$lh.inShared"), shared(after), "$shared"),
        "released": cond(all(vec![
            has_type("$lh.batch", &["objectId"]),
            doc! { "$or": [acts("$lh.inExclusive"), acts("$lh.inShared")] }.into(),
        ]), traces(), "$released"),
    })
}

/// The batches that ended a lease here last, with this one.
fn traces() -> Bson {
    let trace = doc! { "batch": "$lh.batch", "at": "$$NOW", "late": "$lh.late" };
    let known = cond(has_type("$released", &["array"]), "$released", Bson::Array(Vec::new()));
    let is_new = doc! { "$gt": ["$$trace.at", { "$subtract": ["$$NOW", TRACED_FOR] }] };
    let new = doc! { "$filter": { "input": known, "as": "trace", "cond": is_new } };
    let most = i64::try_from(TRACES).unwrap_or(i64::MAX);
    doc! { "$slice": [{ "$concatArrays": [[trace], new] }, most] }.into()
}
