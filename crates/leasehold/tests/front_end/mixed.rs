//! A quorum of a server, a Redis server and a SQLite file.

use leasehold::Locker;
use leasehold_testkit::redis::{DURABLE, Server};
use leasehold_testkit::until;

/// `kill` ends the server whose URL this is.
pub(crate) async fn decides(server: String, kill: impl FnOnce()) {
    let redis = Server::start(DURABLE).await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let file = format!("sqlite:{}", directory.path().join("locks.db").display());
    let nodes = [server, redis.store_url(), file];
    let url = url(&nodes);
    let (locks, others) =
        (Locker::connect(&url).await.unwrap(), Locker::connect(&url).await.unwrap());
    let guard = locks.lock("k").await.unwrap();
    assert!(others.try_lock("k").await.unwrap().is_none());
    // A node that was late when the lease was granted has it once the lease is renewed.
    until(async || guard.renew().await.is_ok() && is_at_each(&nodes).await).await;
    kill();
    // A node that has not answered an earlier request yet takes no part in a renewal.
    until(async || guard.renew().await.is_ok()).await;
    assert!(others.try_lock("k").await.unwrap().is_none());
    guard.release().await.unwrap();
    until(async || others.try_lock("k").await.unwrap().is_some()).await;
}

/// The URL of a quorum of these nodes.
pub(crate) fn url(nodes: &[String]) -> String {
    let encoded = |url: &String| url.replace('?', "%3F").replace('&', "%26").replace('=', "%3D");
    format!("quorum:?node={}", nodes.iter().map(encoded).collect::<Vec<_>>().join("&node="))
}

async fn is_at_each(nodes: &[String]) -> bool {
    for node in nodes {
        if !Locker::connect_unchecked(node).await.unwrap().is_held("k").await.unwrap() {
            return false;
        }
    }
    true
}
