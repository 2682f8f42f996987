//! Documents that were damaged by hand, and what other clients wrote beyond the limits of this store.

use leasehold_core::{
    Error, ErrorKind, EvictRequest, EvictTarget, Filter, ListRequest, Mode, RecordTerm, Remaining,
    Store as _, Ttl,
};
use leasehold_mongodb::MongodbStore;
use leasehold_mongodb::mongodb::Collection;
use leasehold_mongodb::mongodb::bson::{Bson, DateTime, Document, RawDocumentBuf, doc};
use leasehold_testkit::LONG;
use leasehold_testkit::mongodb::DATABASE;
use leasehold_testkit::mongodb::replica_set::ReplicaSet;
use leasehold_testkit::requests::{
    acquire, evict, granted, is_renewed, is_unreadable, key, purge_leaves, refused, release,
    released, renew, renewed,
};

struct Setup {
    _set: ReplicaSet,
    store: MongodbStore,
    locks: Collection<Document>,
}

impl Setup {
    async fn new() -> Self {
        let set = ReplicaSet::start(1).await.unwrap();
        let store = MongodbStore::connect(&set.url()).await.unwrap();
        store.prepare().await.unwrap();
        let locks = set.nodes[0].client().unwrap().database(DATABASE).collection("locks");
        Self { _set: set, store, locks }
    }

    /// The document of `k`, as its bytes.
    async fn bytes(&self) -> RawDocumentBuf {
        let raw = self.locks.clone_with_type::<RawDocumentBuf>();
        raw.find_one(doc! { "resource": "k" }).await.unwrap().unwrap()
    }

    /// Puts these fields into an otherwise sound document of `k`, in which `lease` has a lock of this mode.
    async fn put(&self, mode: Mode, changed: &Document) {
        self.locks.delete_many(doc! { "resource": "k" }).await.unwrap();
        granted(self.store.acquire(&acquire("k", "lease", mode)).await);
        let is_gone =
            |value: &Bson| matches!(value, Bson::Document(update) if update.contains_key("$unset"));
        let (gone, set): (Vec<_>, Vec<_>) =
            changed.clone().into_iter().partition(|(_, value)| is_gone(value));
        let gone: Document = gone.into_iter().map(|(name, _)| (name, Bson::from(""))).collect();
        let mut update = Document::new();
        for (operator, fields) in [("$set", set.into_iter().collect()), ("$unset", gone)] {
            if !fields.is_empty() {
                update.insert(operator, fields);
            }
        }
        let updated = self.locks.update_one(doc! { "resource": "k" }, update).await.unwrap();
        assert_eq!(updated.matched_count, 1);
    }

    /// No request about the key changes anything, and all report what is wrong.
    async fn is_refused(&self, what: &Document) {
        let before = self.bytes().await;
        let damaged = |error: Error| {
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{what}: {error}");
            assert!(error.to_string().contains("\"k\""), "{what}: {error}");
        };
        for mode in [Mode::Exclusive, Mode::SHARED] {
            for lease in ["lease", "other"] {
                let acquired = self.store.acquire(&acquire("k", lease, mode)).await;
                damaged(acquired.expect_err(&what.to_string()));
                let renewal = renew("k", lease, mode, Ttl::new(LONG).unwrap());
                damaged(renewed(&self.store, &renewal).await.expect_err(&what.to_string()));
            }
        }
        for lease in ["lease", "other"] {
            let ended = released(&self.store, &release("k", lease)).await;
            damaged(ended.expect_err(&what.to_string()));
            let evicted = self.store.evict(&evict("k", lease)).await;
            damaged(evicted.expect_err(&what.to_string()));
        }
        is_unreadable(&self.store, "k").await;
        purge_leaves(&self.store, &["k"]).await;
        assert_eq!(self.bytes().await, before, "{what}");
        is_renewed(&self.store, "well", "lease", Mode::Exclusive).await;
    }
}

/// In a changed document: the field is not there.
fn missing() -> Bson {
    doc! { "$unset": 1 }.into()
}

fn sound_lock() -> Document {
    doc! { "lockId": "else", "expiresAt": null, "acquired": true }
}

#[tokio::test]
async fn a_damaged_document_is_reported_and_left_alone() {
    let setup = Setup::new().await;
    granted(setup.store.acquire(&acquire("well", "lease", Mode::Exclusive)).await);
    let either = [
        doc! { "exclusive.acquired": missing() },
        doc! { "exclusive.acquired": "true" },
        doc! { "exclusive.acquired": 1 },
        doc! { "exclusive": missing() },
        doc! { "exclusive": null },
        doc! { "exclusive": [{ "acquired": false }] },
        doc! { "exclusive": [{ "acquired": true, "lockId": "lease", "expiresAt": null }] },
        doc! { "shared": missing() },
        doc! { "shared": "none" },
        doc! { "shared": [{ "count": 0, "locks": [] }] },
        doc! { "shared": {} },
        doc! { "shared.count": -1 },
        doc! { "shared.count": 7 },
        doc! { "shared.count": 0.0 },
        doc! { "shared.count": 1.0 },
        doc! { "shared.count": missing() },
        doc! { "shared.locks": missing() },
        doc! { "shared.locks": { "0": sound_lock() } },
        doc! { "shared.locks": null, "shared.count": 0 },
        doc! { "shared.locks": [null], "shared.count": 1 },
        doc! { "shared.locks": ["lease"], "shared.count": 1 },
        doc! { "shared.locks": [[sound_lock()]], "shared.count": 1 },
        doc! { "counter": "1" },
        doc! { "counter": 0 },
        doc! { "counter": -1_i64 },
        doc! { "counter": 1_i64 << 53 },
        doc! { "counter": i64::MAX },
        doc! { "counter": 1.5e15 },
        doc! { "counter": null },
        doc! { "evicted": {} },
        doc! { "evicted": null },
        doc! { "evicted": "lease" },
        doc! { "evicted": [1] },
        doc! { "evicted": [{}] },
        doc! { "evicted": [{ "lockId": "e", "token": 0, "until": DateTime::MAX }] },
        doc! { "evicted": [{ "lockId": "e", "token": 1, "until": "later" }] },
        doc! { "evicted": [{ "lockId": "", "token": 1, "until": DateTime::MAX }] },
        doc! { "evicted": [{ "lockId": "x".repeat(256), "token": 1, "until": DateTime::MAX }] },
    ];
    for what in either {
        for mode in [Mode::Exclusive, Mode::SHARED] {
            setup.put(mode, &what).await;
            setup.is_refused(&what).await;
        }
    }
}

#[tokio::test]
async fn a_damaged_lock_is_reported_and_left_alone() {
    let setup = Setup::new().await;
    granted(setup.store.acquire(&acquire("well", "lease", Mode::Exclusive)).await);
    let fields = [
        ("lockId", missing()),
        ("lockId", Bson::Null),
        ("lockId", Bson::from(7)),
        ("expiresAt", Bson::from("2100-01-01")),
        ("expiresAt", Bson::from(1)),
        ("token", Bson::from(0)),
        ("token", Bson::from(-5_i64)),
        ("token", Bson::from(1_i64 << 53)),
        ("token", Bson::from(1.5e15)),
        ("token", Bson::from("1")),
        ("token", Bson::Null),
    ];
    for (field, value) in fields {
        for (mode, record) in [(Mode::Exclusive, "exclusive"), (Mode::SHARED, "shared.locks.0")] {
            let mut what = doc! { format!("{record}.{field}"): &value };
            setup.put(mode, &what).await;
            setup.is_refused(&what).await;
            // Nor if the lock is over.
            let over = DateTime::from_millis(1);
            what.entry(format!("{record}.expiresAt")).or_insert_with(|| over.into());
            setup.put(mode, &what).await;
            setup.is_refused(&what).await;
        }
    }
}

#[tokio::test]
async fn a_counter_that_has_no_successor_grants_nothing() {
    let setup = Setup::new().await;
    setup.put(Mode::Exclusive, &doc! { "counter": (1_i64 << 53) - 1 }).await;
    released(&setup.store, &release("k", "lease")).await.unwrap();
    let before = setup.bytes().await;
    for mode in [Mode::Exclusive, Mode::SHARED] {
        let error = setup.store.acquire(&acquire("k", "other", mode)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    }
    assert_eq!(setup.bytes().await, before);
}

#[tokio::test]
async fn integers_of_both_kinds_are_read() {
    let setup = Setup::new().await;
    for count in [Bson::Int32(1), Bson::Int64(1)] {
        for token in [Bson::Int32(7), Bson::Int64(7)] {
            let what = doc! { "shared.count": &count, "shared.locks.0.token": &token, "counter": token, "shared.locks.0.skew": 1_000 };
            setup.put(Mode::SHARED, &what).await;
            is_renewed(&setup.store, "k", "lease", Mode::SHARED).await;
            refused(setup.store.acquire(&acquire("k", "other", Mode::Exclusive)).await);
            granted(setup.store.acquire(&acquire("k", "other", Mode::SHARED)).await);
        }
    }
}

#[tokio::test]
async fn what_others_wrote_beyond_our_limits_is_cut_and_excludes() {
    let setup = Setup::new().await;
    let long = |count| Bson::from("x".repeat(count));
    let what = doc! {
        "exclusive.token": missing(),
        "exclusive.skew": missing(),
        "exclusive.lockId": long(300),
        "exclusive.owner": long(600),
        "exclusive.host": long(600),
        "exclusive.comment": long(5_000),
        "exclusive.expiresAt": null,
    };
    setup.put(Mode::Exclusive, &what).await;
    for mode in [Mode::Exclusive, Mode::SHARED] {
        refused(setup.store.acquire(&acquire("k", "other", mode)).await);
    }
    let listed = setup.store.list(&ListRequest::new(Filter::default())).await.unwrap();
    assert!(listed.unreadable.is_empty(), "{listed:?}");
    let [lock] = &listed.records[..] else { panic!("{listed:?}") };
    assert_eq!((&lock.id, &lock.token, &lock.group), (&None, &None, &None));
    assert!(lock.note.host().is_none() && lock.note.comment().is_none());
    assert!(matches!(lock.term, RecordTerm::Live(Remaining::Never)), "{lock:?}");
    purge_leaves(&setup.store, &[]).await;
    let any = EvictTarget::new(key("k"), None);
    let evicted = setup.store.evict(&EvictRequest::exactly(vec![any], None)).await.unwrap();
    assert_eq!(evicted.removed.len(), 1);
    granted(setup.store.acquire(&acquire("k", "other", Mode::Exclusive)).await);
}

/// It is no key of ours, so it is named and left alone.
#[tokio::test]
async fn a_resource_that_is_no_key_is_named() {
    let setup = Setup::new().await;
    granted(setup.store.acquire(&acquire("well", "lease", Mode::Exclusive)).await);
    let over = DateTime::from_millis(0);
    let lock = doc! { "lockId": "a", "expiresAt": over, "acquired": true };
    let empty = doc! { "resource": "", "exclusive": lock, "shared": { "count": 0, "locks": [] } };
    setup.locks.insert_one(empty).await.unwrap();
    let listed = setup.store.list(&ListRequest::new(Filter::default())).await.unwrap();
    assert_eq!((listed.records.len(), listed.unreadable.len()), (1, 1), "{listed:?}");
    let purged = EvictRequest::expired(Filter::default());
    let purged = setup.store.evict(&purged).await.unwrap();
    assert_eq!((purged.removed.len(), purged.unreadable.len()), (0, 1), "{purged:?}");
    is_renewed(&setup.store, "well", "lease", Mode::Exclusive).await;
}
