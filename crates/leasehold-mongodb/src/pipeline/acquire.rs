use leasehold_core::{AcquireRequest, FencingToken, Mode};
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, Document, doc};

use super::{
    EACH, EXCLUSIVE, Of, all, any, changed_locks, cond, eq, has_type, is_sound, locks, nobody, not,
    set, shared, stages, usable,
};
use crate::record::{Skew, fields, milliseconds};

/// What a request gives whose mode is limited to what the store supports.
pub(crate) fn given(
    request: &AcquireRequest,
    mode: Mode,
    skew: Skew,
    record: ObjectId,
) -> Document {
    let term = request.term().duration().unwrap_or_default() + skew.0;
    let (name, max) = match mode {
        Mode::Exclusive => ("exclusive", 0),
        Mode::Shared { max } => ("shared", max.map_or(0, |max| i64::from(max.get()))),
    };
    let record = fields(record, request.id(), request.group(), request.note());
    doc! {
        "record": record,
        "id": crate::record::id_text(request.id()),
        "mode": name,
        "max": max,
        "term": milliseconds(term),
        "skew": milliseconds(skew.0),
    }
}

/// Takes a key, or confirms that the lease has it.
pub(crate) fn pipeline(given: Bson) -> Vec<Document> {
    stages(given, vec![usable(), found(), verdict(), outcome()])
}

/// Of the id's own records only a held one counts, which is confirmed, and a kept one, which blocks it too.
fn found() -> Document {
    let own = |of: Of<'_>| all(vec![of.is("lockId", "$lh.id"), of.is_ours()]);
    let held = |of: Of<'_>| all(vec![own(of), of.is_held()]);
    let blocks = |of: Of<'_>| {
        let own_and_over = all(vec![own(of), of.is_not_kept(), of.is_over()]);
        all(vec![of.excludes(), not(own_and_over)])
    };
    let own_kept = all(vec![own(EACH), not(EACH.is_not_kept()), EACH.excludes()]);
    let now = doc! { "$multiply": [{ "$toLong": "$$NOW" }, 1_000_i64] };
    let next =
        cond(has_type("$counter", super::INTEGERS), doc! { "$add": ["$counter", 1_i64] }, 1_i64);
    set(doc! {
        "lh.sound": is_sound(),
        "lh.heldExclusive": all(vec!["$lh.taken".into(), held(EXCLUSIVE)]),
        "lh.heldShared": any(locks(held(EACH))),
        "lh.blocked": all(vec!["$lh.taken".into(), blocks(EXCLUSIVE)]),
        "lh.blockers": { "$size": locks(blocks(EACH)) },
        "lh.ownKept": any(locks(own_kept)),
        "lh.token": { "$max": [now, next] },
    })
}

fn verdict() -> Document {
    let is_exclusive = eq("$lh.mode", "exclusive");
    let held = cond(is_exclusive.clone(), "$lh.heldExclusive", "$lh.heldShared");
    let is_full = all(vec![
        doc! { "$gt": ["$lh.max", 0] }.into(),
        doc! { "$gte": ["$lh.blockers", "$lh.max"] }.into(),
    ]);
    let any_blocker: Bson = doc! { "$gt": ["$lh.blockers", 0] }.into();
    let refused: Bson = doc! { "$or": [
        not("$lh.sound".into()),
        "$lh.heldExclusive",
        "$lh.heldShared",
        "$lh.blocked",
        cond(is_exclusive, any_blocker, doc! { "$or": ["$lh.ownKept", is_full] }),
        { "$gt": ["$lh.token", i64::try_from(FencingToken::MAX).unwrap_or(i64::MAX)] },
    ] }
    .into();
    let confirmed = all(vec!["$lh.sound".into(), held]);
    set(doc! { "lh.verdict": cond(confirmed, "confirmed", cond(refused, "refused", "granted")) })
}

fn outcome() -> Document {
    let record = doc! { "$mergeObjects": ["$lh.record", {
        "createdAt": "$$NOW",
        "renewedAt": null,
        "expiresAt": { "$add": ["$$NOW", "$lh.term"] },
        "acquired": true,
        "token": "$lh.token",
        "skew": "$lh.skew",
    }] };
    let longer = |of: Of<'_>| -> Bson {
        let mut extension = of.extension();
        extension.insert("skew", "$lh.skew");
        doc! { "$mergeObjects": [of.0, extension] }.into()
    };
    let own = all(vec![EACH.is("lockId", "$lh.id"), EACH.is_ours()]);
    let others = locks(all(vec![EACH.excludes(), not(own.clone())]));
    let with_own = doc! { "$concatArrays": [others, [record.clone()]] };
    let confirmed_locks = changed_locks(cond(own, longer(EACH), EACH.0));
    let mark_lives = all(vec![
        doc! { "$gt": ["$$mark.until", "$$NOW"] }.into(),
        doc! { "$ne": ["$$mark.lockId", "$lh.id"] }.into(),
    ]);
    let marks = doc! { "$filter": { "input": "$lh.marks", "as": "mark", "cond": mark_lives } };
    let granted = || eq("$lh.verdict", "granted");
    let confirmed = || eq("$lh.verdict", "confirmed");
    let is_exclusive = || eq("$lh.mode", "exclusive");
    let by_mode = |exclusive: Bson, shared: Bson| cond(is_exclusive(), exclusive, shared);
    let none = || shared(Bson::Array(Vec::new()));
    set(doc! {
        "counter": cond(granted(), "$lh.token", "$counter"),
        "exclusive": cond(granted(), by_mode(record.into(), nobody()),
            cond(all(vec![confirmed(), is_exclusive()]), longer(EXCLUSIVE), "$exclusive")),
        "shared": cond(granted(), by_mode(none(), shared(with_own)),
            cond(all(vec![confirmed(), not(is_exclusive())]), shared(confirmed_locks), "$shared")),
        "evicted": cond(granted(),
            cond(eq(marks.clone(), Bson::Array(Vec::new())), "$$REMOVE", marks), "$evicted"),
    })
}
