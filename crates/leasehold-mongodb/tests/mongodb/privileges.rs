//! The roles of the manual, on a server that lets nobody else in.

use std::time::Duration;

use leasehold_core::{
    AcquireReply, AcquireRequest, Claims, Effect, ErrorKind, EvictRequest, EvictTarget, Filter,
    Key, LeaseId, ListRequest, Mode, ReleaseEntry, ReleaseOutcome, ReleaseRequest, RenewEntry,
    RenewOutcome, RenewRequest, Result, Store as _, Ttl,
};
use leasehold_mongodb::mongodb::bson::{Bson, Document, doc};
use leasehold_mongodb::{MongodbConfig, MongodbStore};
use leasehold_testkit::mongodb::replica_set::{ReplicaSet, SetOptions};

const TTL: Duration = Duration::from_secs(60);

/// The database in the manual.
const APP: &str = "app";

/// The argument of each `db.createRole` in the manual.
fn roles() -> Vec<Document> {
    let manual = include_str!("../../MANUAL.md");
    let calls = manual.split("db.createRole(").skip(1);
    let role = |call: &str| {
        let (argument, _) = call.split_once(")\n").unwrap();
        serde_json::from_str(argument).unwrap()
    };
    calls.map(role).collect()
}

struct Setup {
    set: ReplicaSet,
}

impl Setup {
    /// A user for each role, of the role's name.
    async fn new() -> Self {
        let options = SetOptions { nodes: 1, is_secured: true, ..SetOptions::default() };
        let setup = Self { set: ReplicaSet::start_with(options).await.unwrap() };
        for role in roles() {
            let name = role.get_str("role").unwrap().to_owned();
            let mut create = doc! { "createRole": &name };
            create.extend(role.into_iter().filter(|(field, _)| field != "role"));
            setup.command(APP, create).await;
            let of = doc! { "role": &name, "db": APP };
            setup
                .command("admin", doc! { "createUser": name, "pwd": "secret", "roles": [of] })
                .await;
        }
        setup
    }

    async fn command(&self, database: &str, command: Document) {
        self.set.nodes[0].command(database, command).await.unwrap();
    }

    /// A store of a user, which forgets counters at once.
    async fn store(&self, user: &str) -> MongodbStore {
        let url = self.set.url_of(user, "secret").replace("/test?", &format!("/{APP}?"));
        let config = MongodbConfig::parse(&url).unwrap().timeout(TTL);
        config.forget_after(Some(Duration::from_millis(1))).connect().await.unwrap()
    }
}

fn id(text: &str) -> LeaseId {
    LeaseId::foreign(text.as_bytes()).unwrap()
}

fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

fn one(name: &str) -> Claims {
    Claims::one(key(name), Mode::Exclusive)
}

/// Whether it is granted.
async fn acquire(store: &MongodbStore, lease: &str, claims: Claims) -> Result<bool> {
    let request = AcquireRequest::new(id(lease), claims, Ttl::new(TTL).unwrap());
    Ok(matches!(store.acquire(&request).await?, AcquireReply::Granted(_)))
}

async fn release(store: &MongodbStore, lease: &str, keys: &[&str]) -> Result<bool> {
    let entry = ReleaseEntry::new(id(lease), keys.iter().map(|name| key(name)));
    let outcomes = store.release(&ReleaseRequest::new(vec![entry])).await?.leases;
    Ok(matches!(outcomes[..], [ReleaseOutcome::Released]))
}

/// Everything that an application does.
async fn use_it(store: &MongodbStore) -> Result<()> {
    store.check().await?;
    assert!(acquire(store, "a", one("k")).await?);
    assert!(!acquire(store, "b", one("k")).await?);
    drop(store.subscribe(&[key("k")]).await?);
    let entry = RenewEntry::extend(id("a"), one("k"), Ttl::new(TTL).unwrap());
    let renewed = store.renew(&RenewRequest::new(vec![entry])).await?.leases;
    assert!(matches!(renewed[..], [RenewOutcome::Held(_)]), "{renewed:?}");
    let found = store.list(&ListRequest::new(Filter::default())).await?.records;
    assert_eq!(found.len(), 1);
    assert!(release(store, "a", &["k"]).await?);
    let two = Claims::all(["x", "y"].map(key), Mode::Exclusive).unwrap();
    assert!(acquire(store, "c", two).await?);
    assert!(release(store, "c", &["x", "y"]).await?);
    assert!(acquire(store, "d", one("k")).await?);
    let listed = store.list(&ListRequest::new(Filter::default())).await?.records;
    let named = EvictRequest::exactly(vec![EvictTarget::of(&listed[0])], None);
    assert_eq!(store.evict(&named).await?.removed.len(), 1);
    let forgotten = store.evict(&EvictRequest::expired(Filter::default())).await?;
    assert!(forgotten.counters_forgotten > 0, "{forgotten:?}");
    Ok(())
}

#[tokio::test]
async fn the_roles_of_the_manual_are_enough_and_each_action_is_needed() {
    let setup = Setup::new().await;
    let owner = setup.store("leaseholdOwner").await;
    owner.prepare().await.unwrap();
    owner.prepare().await.unwrap();
    owner.check().await.unwrap();
    let user = setup.store("leasehold").await;
    use_it(&user).await.unwrap();
    let refused = user.prepare().await.unwrap_err();
    assert_eq!((refused.kind(), refused.effect()), (ErrorKind::Denied, Effect::NotApplied));
    assert!(refused.to_string().contains("privileges"), "{refused}");

    let roles = roles();
    let role = roles.iter().find(|role| role.get_str("role").unwrap() == "leasehold").unwrap();
    for privilege in role.get_array("privileges").unwrap() {
        let privilege = privilege.as_document().unwrap();
        let resource = privilege.get_document("resource").unwrap();
        for action in privilege.get_array("actions").unwrap() {
            let one = doc! { "resource": resource.clone(), "actions": [action.clone()] };
            let change = async |command: &str| {
                let command = doc! { command: "leasehold", "privileges": [one.clone()] };
                setup.command(APP, command).await;
            };
            change("revokePrivilegesFromRole").await;
            let used = use_it(&user).await;
            if *action == Bson::from("changeStream") {
                used.expect("waiters poll");
            } else {
                assert_eq!(used.unwrap_err().kind(), ErrorKind::Denied, "{action}");
            }
            change("grantPrivilegesToRole").await;
            release(&user, "a", &["k"]).await.unwrap();
            release(&user, "d", &["k"]).await.unwrap();
        }
    }
    use_it(&user).await.unwrap();
}
