use leasehold_core::{FencingToken, RenewEntry};
use mongodb::bson::{Bson, Document, doc};

use super::{
    EACH, EXCLUSIVE, Of, all, any, changed_locks, cond, eq, has_type, is_sound, locks, set, shared,
    stages, usable,
};
use crate::record::{Skew, id_text, milliseconds};

/// What a renewal gives.
pub(crate) fn given(lease: &RenewEntry, skew: Skew) -> Document {
    let token =
        |token: Option<FencingToken>| token.map_or(Bson::Null, |token| i64::from(token).into());
    let term = lease.term().duration().map(|term| milliseconds(term + skew.0));
    doc! {
        "id": id_text(lease.id()),
        "shared": lease.claims().first().mode.is_shared(),
        "term": term,
        "token": token(lease.token()),
        "raise": token(lease.raise()),
        "skew": milliseconds(skew.0),
    }
}

/// Extends a lease of one key.
pub(crate) fn pipeline(given: Bson) -> Vec<Document> {
    stages(given, vec![usable(), set(doc! { "lh.sound": is_sound() }), found(), outcome()])
}

fn found() -> Document {
    set(doc! {
        "lh.inExclusive": all(vec!["$lh.sound".into(), not_shared(), "$lh.taken".into(), held(EXCLUSIVE)]),
        "lh.inShared": all(vec!["$lh.sound".into(), "$lh.shared".into(), any(locks(held(EACH)))]),
    })
}

fn not_shared() -> Bson {
    eq("$lh.shared", false)
}

fn held(of: Of<'_>) -> Bson {
    all(vec![of.is_named(), of.is_held()])
}

fn outcome() -> Document {
    let raised = has_type("$lh.raise", super::INTEGERS);
    let longer = |of: Of<'_>| -> Bson {
        let mut extension = of.extension();
        let token = of.field("token");
        extension
            .insert("token", cond(raised.clone(), doc! { "$max": [&token, "$lh.raise"] }, token));
        extension.insert("skew", cond(of.is_ours(), "$lh.skew", "$$REMOVE"));
        doc! { "$mergeObjects": [of.0, extension] }.into()
    };
    let renewed: Bson = doc! { "$or": ["$lh.inExclusive", "$lh.inShared"] }.into();
    let changed = changed_locks(cond(held(EACH), longer(EACH), EACH.0));
    set(doc! {
        "counter": cond(all(vec![renewed, raised.clone()]), doc! { "$max": ["$counter", "$lh.raise"] }, "$counter"),
        "exclusive": cond("$lh.inExclusive", longer(EXCLUSIVE), "$exclusive"),
        "shared": cond("$lh.inShared", shared(changed), "$shared"),
    })
}
