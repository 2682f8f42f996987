//! What the library's queries make of a document, field by field.

use mongodb::bson::Bson;

use super::*;

impl Setup {
    async fn document(&self) -> Document {
        self.collection.find_one(doc! {}).await.unwrap().unwrap()
    }
}

fn fields(document: &Document) -> Vec<&str> {
    document.keys().map(String::as_str).collect()
}

fn is_null(document: &Document, field: &str) -> bool {
    document.get(field) == Some(&Bson::Null)
}

const LOCK: [&str; 9] = [
    "lockId",
    "owner",
    "host",
    "comment",
    "createdAt",
    "renewedAt",
    "expiresAt",
    "acquired",
    "_id",
];

#[tokio::test]
async fn an_exclusive_lock_and_what_is_left_of_it() {
    let setup = Setup::new().await;
    let details = LockDetails { comment: "why".into(), ..LockDetails::ttl(30) };
    setup.client.x_lock("r", "aaaa", &details).await.unwrap();
    let held = setup.document().await;
    assert_eq!(fields(&held), ["_id", "resource", "shared", "exclusive"]);
    assert_eq!(held.get("shared"), Some(&Bson::from(doc! { "count": 0_i64, "locks": [] })));
    let lock = held.get_document("exclusive").unwrap();
    assert_eq!(fields(lock), LOCK);
    let now = setup.now();
    let expected = doc! {
        "lockId": "aaaa",
        "owner": Bson::Null,
        "host": Bson::Null,
        "comment": "why",
        "createdAt": now,
        "renewedAt": Bson::Null,
        "expiresAt": now.saturating_add_millis(30_000),
        "acquired": true,
        "_id": lock.get_object_id("_id").unwrap(),
    };
    assert_eq!(*lock, expected);

    let _ = setup.client.unlock("aaaa").await.all().unwrap();
    let free = setup.document().await;
    assert_eq!(fields(&free), ["_id", "resource", "shared", "exclusive"]);
    let lock = free.get_document("exclusive").unwrap();
    assert_eq!(fields(lock), LOCK[..8]);
    assert!(LOCK[..7].iter().all(|field| is_null(lock, field)));
    assert!(!lock.get_bool("acquired").unwrap());
}

#[tokio::test]
async fn shared_locks_and_what_is_left_of_them() {
    let setup = Setup::new().await;
    setup.s_lock("r", "aaaa", 0).await.unwrap();
    setup.s_lock("r", "bbbb", 30).await.unwrap();
    let held = setup.document().await;
    assert_eq!(fields(&held), ["_id", "exclusive", "resource", "shared"]);
    assert_eq!(held.get("exclusive"), Some(&Bson::from(doc! { "acquired": false })));
    let shared = held.get_document("shared").unwrap();
    assert_eq!(fields(shared), ["count", "locks"]);
    assert_eq!(shared.get("count"), Some(&Bson::Int32(2)));
    let locks = shared.get_array("locks").unwrap();
    assert_eq!(fields(locks[0].as_document().unwrap()), LOCK);
    assert!(is_null(locks[0].as_document().unwrap(), "expiresAt"));

    let _ = setup.client.unlock("aaaa").await.all().unwrap();
    let _ = setup.client.unlock("bbbb").await.all().unwrap();
    let free = setup.document().await;
    assert_eq!(free.get("shared"), Some(&Bson::from(doc! { "count": 0, "locks": [] })));
    // An exclusive lock makes the counter an int64, and so it stays.
    setup.x_lock("r", "cccc", 0).await.unwrap();
    let _ = setup.client.unlock("cccc").await.all().unwrap();
    setup.s_lock("r", "aaaa", 0).await.unwrap();
    let held = setup.document().await;
    assert_eq!(held.get_document("shared").unwrap().get("count"), Some(&Bson::Int64(1)));
}

/// What stores beside the library may rely on.
#[tokio::test]
async fn fields_of_others_and_what_becomes_of_them() {
    let setup = Setup::new().await;
    setup.x_lock("r", "aaaa", 30).await.unwrap();
    let mark = doc! { "$set": { "top": 1, "exclusive.mine": 1, "shared.mine": 1 } };
    setup.collection.update_one(doc! {}, mark).await.unwrap();
    let _ = setup.client.renew("aaaa", 60).await.all().unwrap();
    let renewed = setup.document().await;
    assert!(renewed.get_document("exclusive").unwrap().contains_key("mine"));

    let _ = setup.client.unlock("aaaa").await.all().unwrap();
    let free = setup.document().await;
    assert!(!free.get_document("exclusive").unwrap().contains_key("mine"));
    assert!(free.get_document("shared").unwrap().contains_key("mine"));

    setup.x_lock("r", "bbbb", 30).await.unwrap();
    let held = setup.document().await;
    assert!(!held.get_document("shared").unwrap().contains_key("mine"));
    assert!(held.contains_key("top"));

    let _ = setup.client.unlock("bbbb").await.all().unwrap();
    setup.client.gc().await.unwrap();
    assert!(setup.collection.find_one(doc! {}).await.unwrap().is_none());
}

#[tokio::test]
async fn renewing_keeps_fields_of_others_in_a_shared_lock() {
    let setup = Setup::new().await;
    setup.s_lock("r", "aaaa", 30).await.unwrap();
    setup.s_lock("r", "bbbb", 30).await.unwrap();
    let mark = doc! { "$set": { "shared.locks.$[].mine": 1 } };
    setup.collection.update_one(doc! {}, mark).await.unwrap();
    setup.passes(5_000);
    let _ = setup.client.renew("bbbb", 60).await.all().unwrap();
    let held = setup.document().await;
    let locks = held.get_document("shared").unwrap().get_array("locks").unwrap();
    let lock = |at: usize| locks[at].as_document().unwrap();
    assert!(lock(0).contains_key("mine") && lock(1).contains_key("mine"));
    assert!(is_null(lock(0), "renewedAt"));
    assert_eq!(lock(1).get_datetime("renewedAt").unwrap(), &setup.now());
}
