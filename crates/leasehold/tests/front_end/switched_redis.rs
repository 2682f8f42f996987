//! What works again when a replica has become the master, through clients that were connected to the old one.

use leasehold::Locker;
use leasehold_conformance::Proxy;
use leasehold_testkit::redis::cluster::{Cluster, ClusterOptions, MASTERS};
use leasehold_testkit::redis::sentinel::{SERVICE, Sentinels};
use leasehold_testkit::redis::{Server, ask};
use leasehold_testkit::until;

use crate::switched::{Clients, SOON};

/// Whether a server has this line about replication. A sentinel ends all connections to a new master.
async fn reports(server: &Server, line: &str) -> bool {
    let told = server.try_text(&["INFO", "replication"]).await.ok().flatten();
    told.is_some_and(|told| told.contains(line))
}

/// A master and its replica.
async fn pair() -> (Server, Server) {
    let old = Server::start(&[]).await.unwrap();
    let new = Server::start(&["--replicaof", "127.0.0.1", &old.port().to_string()]).await.unwrap();
    until(async || reports(&new, "master_link_status:up").await).await;
    (old, new)
}

async fn has_all_of(new: &Server, old: &Server) {
    let written = old.text(&["INFO", "replication"]).await.unwrap();
    let offset = written.lines().find_map(|line| line.strip_prefix("master_repl_offset:")).unwrap();
    let least: u64 = offset.trim().parse().unwrap();
    until(async || {
        let told = new.text(&["INFO", "replication"]).await.unwrap();
        let has = told.lines().find_map(|line| line.strip_prefix("slave_repl_offset:")).unwrap();
        has.trim().parse::<u64>().unwrap() >= least
    })
    .await;
}

#[tokio::test]
async fn all_follow_an_address_that_leads_to_the_new_master() {
    let (old, new) = pair().await;
    let address = Proxy::before(([127, 0, 0, 1], old.port()).into()).await.unwrap();
    let url = format!("redis://{}/", address.address());
    let clients = Clients::start(&url, &old.url()).await;
    has_all_of(&new, &old).await;
    new.ask(&["REPLICAOF", "NO", "ONE"]).await.unwrap();
    old.ask(&["REPLICAOF", "127.0.0.1", &new.port().to_string()]).await.unwrap();
    address.lead_to(([127, 0, 0, 1], new.port()).into());
    clients.work_within(SOON, &new.url()).await;
}

#[tokio::test]
async fn all_follow_the_sentinels_to_the_new_master() {
    let (old, new) = pair().await;
    let sentinels = Sentinels::watch(&old, 1, 600_000).await.unwrap();
    let clients = Clients::start(&sentinels.url(), &old.url()).await;
    has_all_of(&new, &old).await;
    let asked = format!("redis://127.0.0.1:{}/", sentinels.ports[0]);
    until(async || ask(&asked, &["SENTINEL", "FAILOVER", SERVICE]).await.is_ok()).await;
    until(async || reports(&new, "role:master").await).await;
    // The sentinels do so some seconds later. Until then it accepts writes, too.
    old.ask(&["REPLICAOF", "127.0.0.1", &new.port().to_string()]).await.unwrap();
    clients.work_within(SOON, &new.url()).await;
}

#[tokio::test]
async fn all_follow_the_nodes_of_a_cluster_to_the_new_masters() {
    let options = ClusterOptions { replicas: 1, ..ClusterOptions::default() };
    let cluster = Cluster::start(options).await.unwrap();
    let url = |at: usize| format!("redis+cluster://127.0.0.1:{}/", cluster.nodes[at].port());
    let clients = Clients::start(&url(0), &url(0)).await;
    for new in &cluster.nodes[MASTERS..] {
        new.ask(&["CLUSTER", "FAILOVER"]).await.unwrap();
        until(async || reports(new, "role:master").await).await;
    }
    // Each node learns of it from the others.
    until(async || Locker::connect(&url(MASTERS)).await.is_ok()).await;
    clients.work_within(SOON, &url(MASTERS)).await;
}
