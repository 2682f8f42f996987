//! The same work by the driver alone.

use std::sync::Arc;

use leasehold::store::SystemClock;
use leasehold::{Error, LeaseId, Result};
use leasehold_mongodb::mongodb::bson::{DateTime, Document, doc};
use leasehold_mongodb::mongodb::options::{
    Acknowledgment, ClientOptions, ServerMonitoringMode, WriteConcern,
};
use leasehold_mongodb::mongodb::{Client, Collection};
use leasehold_testkit::mongodb::DATABASE;
use leasehold_testkit::mongodb::mongo_lock::{LockDetails, MongoLock};

use super::{POOL, refused};
use crate::sides::Side;
use crate::subjects::{Keys, TTL};

/// A client whose writes are answered when a majority has them in its journal.
pub(crate) async fn client(url: &str) -> Result<Client> {
    let mut options = ClientOptions::parse(url).await.map_err(refused)?;
    options.max_pool_size = Some(POOL);
    options.write_concern =
        Some(WriteConcern::builder().w(Acknowledgment::Majority).journal(true).build());
    Client::with_options(options).map_err(refused)
}

/// A collection with this name by a client of its own, whose monitor of the server sends nothing that a proxy would count.
pub(crate) async fn collection(url: &str, name: &str) -> Result<Collection<Document>> {
    Ok(client(url).await?.database(DATABASE).collection(name))
}

/// A pair by two `findOneAndUpdate` on the least document.
pub(crate) async fn plain(url: &str, keys: Keys) -> Result<Side> {
    let locks = collection(url, "plain").await?;
    Ok(Side::new("plain `findOneAndUpdate`", move |task, pairs| {
        let locks = locks.clone();
        async move {
            for _ in 0..pairs {
                plain_pair(&locks, &keys.of(task)).await?;
            }
            Ok(())
        }
    }))
}

/// Acquires and releases by the client's clock.
async fn plain_pair(locks: &Collection<Document>, key: &str) -> Result<()> {
    let id = LeaseId::mint()?.to_string();
    let now = DateTime::now();
    let term = i64::try_from(TTL.as_millis()).unwrap_or(i64::MAX);
    let end = DateTime::from_millis(now.timestamp_millis() + term);
    let free = doc! { "_id": key, "$or": [{ "lockId": null }, { "expiresAt": { "$lte": now } }] };
    let taken = doc! { "$set": { "lockId": &id, "expiresAt": end } };
    locks.find_one_and_update(free, taken).upsert(true).await.map_err(refused)?;
    let own = doc! { "_id": key, "lockId": id };
    let released = locks.find_one_and_update(own, doc! { "$set": { "lockId": null } }).await;
    match released.map_err(refused)? {
        Some(_) => Ok(()),
        None => Err(Error::unexpected("a lock was not there")),
    }
}

/// A pair by the queries of mongo-lock.
pub(crate) async fn mongo_lock(url: &str) -> Result<Side> {
    let locks = MongoLock::new(collection(url, "mongo_lock").await?, Arc::new(SystemClock::new()));
    locks.create_indexes().await.map_err(failed)?;
    Ok(Side::new("mongo-lock's queries", move |task, pairs| {
        let locks = locks.clone();
        async move {
            let (key, details) = (format!("k{task}"), LockDetails::ttl(30));
            for _ in 0..pairs {
                let id = LeaseId::mint()?.to_string();
                locks.x_lock(&key, &id, &details).await.map_err(failed)?;
                let released = locks.unlock(&id).await.all().map_err(failed)?;
                if released.len() != 1 {
                    return Err(Error::unexpected("a lock was not there"));
                }
            }
            Ok(())
        }
    }))
}

fn failed(error: leasehold_testkit::mongodb::mongo_lock::MongoLockError) -> Error {
    Error::unexpected(format!("mongo-lock's queries failed ({error:?})"))
}

/// Options of a client of the server behind this address alone, which asks for the server's state at intervals.
pub(crate) async fn options_of(address: &str) -> Result<ClientOptions> {
    let mut options =
        ClientOptions::parse(format!("mongodb://{address}/{DATABASE}")).await.map_err(refused)?;
    options.direct_connection = Some(true);
    options.server_monitoring_mode = Some(ServerMonitoringMode::Poll);
    options.max_pool_size = Some(POOL);
    Ok(options)
}
