//! A lease of several keys, which is a transaction.

use std::sync::Arc;

use futures_util::future::try_join_all;
use leasehold::store::{AcquireReply, AcquireRequest, ReleaseEntry, ReleaseRequest, Store};
use leasehold::{Claim, Claims, Error, Key, LeaseId, Mode, MongodbStore, Result, Ttl};
use leasehold_mongodb::mongodb::bson::{Bson, Document, doc};
use leasehold_mongodb::mongodb::{Client, ClientSession};
use leasehold_testkit::mongodb::DATABASE;
use leasehold_testkit::mongodb::replica_set::ReplicaSet;

use super::{prepared, raw, refused};
use crate::sides::{Amount, Side, head, rows};
use crate::subjects::{TTL, through_store};

pub(crate) async fn run(set: &ReplicaSet) -> Result<()> {
    let url = set.url();
    let store = Arc::new(prepared(&url).await?);
    let client = raw::client(&url).await?;
    for count in [2, 10, 100] {
        println!("## Acquire and release of {count} keys\n");
        println!(
            "The first row is one lease of all keys, by the store. \"a transaction by the driver\": two transactions of one \
             `update` command each, which decide nothing. Each task has its own keys.\n"
        );
        head();
        let sides = sides(&store, &client, count);
        for tasks in [1, 16] {
            rows(&sides, Amount { tasks, pairs: (80 / count).max(4), rounds: 5 }).await?;
        }
        println!();
    }
    Ok(())
}

fn sides(store: &Arc<MongodbStore>, client: &Client, count: usize) -> Vec<Side> {
    let of_store = |name, pair: fn(Arc<MongodbStore>, Vec<Key>) -> Pair| {
        let store = Arc::clone(store);
        Side::new(name, move |task, pairs| {
            let store = Arc::clone(&store);
            async move {
                for _ in 0..pairs {
                    pair(Arc::clone(&store), keys(task, count)?).await?;
                }
                Ok(())
            }
        })
    };
    let client = client.clone();
    vec![
        of_store("one lease of all", |store, keys| Box::pin(together(store, keys))),
        of_store("a lease each, one after the other", |store, keys| {
            Box::pin(one_by_one(store, keys))
        }),
        of_store("a lease each, all at once", |store, keys| Box::pin(at_once(store, keys))),
        Side::new("a transaction by the driver", move |task, pairs| {
            let client = client.clone();
            async move {
                for _ in 0..pairs {
                    by_driver(&client, &keys(task, count)?).await?;
                }
                Ok(())
            }
        }),
    ]
}

type Pair = leasehold_core::BoxFuture<'static, Result<()>>;

/// The keys of a task.
fn keys(task: usize, count: usize) -> Result<Vec<Key>> {
    (0..count).map(|n| Ok(Key::new(&format!("several-{task}-{n}"))?)).collect()
}

async fn together(store: Arc<MongodbStore>, keys: Vec<Key>) -> Result<()> {
    let id = LeaseId::mint()?;
    let claims = keys.iter().map(|key| Claim { key: key.clone(), mode: Mode::Exclusive });
    let request = AcquireRequest::new(id.clone(), Claims::new(claims)?, Ttl::new(TTL)?);
    let AcquireReply::Granted(_) = store.acquire(&request).await? else {
        return Err(Error::unexpected("free keys were refused"));
    };
    store.release(&ReleaseRequest::new(vec![ReleaseEntry::new(id, keys)])).await?;
    Ok(())
}

async fn one_by_one(store: Arc<MongodbStore>, keys: Vec<Key>) -> Result<()> {
    for key in &keys {
        through_store(&*store, key).await?;
    }
    Ok(())
}

async fn at_once(store: Arc<MongodbStore>, keys: Vec<Key>) -> Result<()> {
    try_join_all(keys.iter().map(|key| through_store(&*store, key))).await?;
    Ok(())
}

async fn by_driver(client: &Client, keys: &[Key]) -> Result<()> {
    let mut session = client.start_session().await.map_err(refused)?;
    let id = LeaseId::mint()?.to_string();
    for lock_id in [Bson::from(id), Bson::Null] {
        let update = |key: &Key| {
            let set = doc! { "$set": { "lockId": lock_id.clone() } };
            doc! { "q": { "_id": key.as_str() }, "u": set, "upsert": true }
        };
        let updates: Vec<_> = keys.iter().map(update).collect();
        transact(client, &mut session, doc! { "update": "plain", "updates": updates }).await?;
    }
    Ok(())
}

async fn transact(client: &Client, session: &mut ClientSession, command: Document) -> Result<()> {
    session.start_transaction().await.map_err(refused)?;
    let database = client.database(DATABASE);
    database.run_command(command).session(&mut *session).await.map_err(refused)?;
    session.commit_transaction().await.map_err(refused)
}
