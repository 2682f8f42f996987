//! A client that is killed, or stands still, before it commits a lease of several keys.

use std::time::Duration;

use leasehold_conformance::{Fault, Process, Proxy};
use leasehold_core::{
    AcquireReply, AcquireRequest, Claim, Claims, ErrorKind, Filter, ListRequest, Mode, Store as _,
    Ttl,
};
use leasehold_mongodb::MongodbStore;
use leasehold_mongodb::mongodb::bson::doc;
use leasehold_testkit::mongodb::DATABASE;
use leasehold_testkit::mongodb::replica_set::{ReplicaSet, SetOptions};
use leasehold_testkit::requests::{acquire, granted, id, is_renewed, key, release};
use leasehold_testkit::{LONG, in_time, until};
use tempfile::TempDir;

/// The server's limit for a transaction, in seconds; 60 by default, which is longer than anything here may take.
const LIMIT: u32 = 6;

/// The store of the other process, which has no other task.
const OTHER: &str = "LEASEHOLD_TEST_STALL";

/// A server and a store of others, while a process has written both keys and has not committed.
struct Stalled {
    set: ReplicaSet,
    store: MongodbStore,
    directory: TempDir,
    _proxy: Proxy,
}

fn of(names: [&str; 2], lease: &str) -> AcquireRequest {
    let claims = names.map(|name| Claim { key: key(name), mode: Mode::Exclusive });
    AcquireRequest::new(id(lease), Claims::new(claims).unwrap(), Ttl::new(LONG).unwrap())
}

/// What the other process does.
async fn ask(url: &str) {
    let store = MongodbStore::connect(url).await.unwrap();
    println!("{:?}", store.acquire(&of(["k", "l"], "stalled")).await);
}

impl Stalled {
    /// With the other process, which stands still. In it `test` calls [`ask`].
    async fn start(test: &str) -> (Self, Process) {
        let settings = ["--setParameter", &format!("transactionLifetimeLimitSeconds={LIMIT}")];
        let settings = settings.map(str::to_owned).to_vec();
        let options = SetOptions { nodes: 1, settings, ..SetOptions::default() };
        let set = ReplicaSet::start_with(options).await.unwrap();
        let store = MongodbStore::connect(&set.url()).await.unwrap();
        store.prepare().await.unwrap();
        // The other key has no document yet.
        granted(store.acquire(&acquire("k", "before", Mode::Exclusive)).await);
        store.release(&release("k", "before")).await.unwrap();

        let proxy = Proxy::before(set.nodes[0].address().parse().unwrap()).await.unwrap();
        // The write of a transaction; the commit that follows is on time.
        proxy.ignore(|sent| !sent.windows(8).any(|part| part == b"updates\0"));
        proxy.once(Fault::Delay(Duration::from_millis(500)));
        let updates = ["metrics", "commands", "update", "total"];
        let before = status(&set, &updates).await;
        let (directory, this) = (tempfile::tempdir().unwrap(), std::env::current_exe().unwrap());
        let options = "directConnection=true&serverMonitoringMode=poll&timeout=30s";
        let url = format!("{OTHER}=mongodb://{}/{DATABASE}?{options}", proxy.address());
        let test = format!("stall::{test}");
        let arguments = [&url, this.to_str().unwrap(), "--exact", &test, "--nocapture"];
        let process = Process::start("env", arguments, directory.path()).unwrap();
        until(async || proxy.exchanges() == 1).await;
        // It gets no answer any more.
        process.pause().unwrap();
        until(async || {
            status(&set, &updates).await > before
                && status(&set, &["transactions", "currentActive"]).await == 0
        })
        .await;
        assert_eq!(status(&set, &["transactions", "currentOpen"]).await, 1);
        (Self { set, store, directory, _proxy: proxy }, process)
    }

    /// Others see no holder, and become holders once the server has ended the transaction.
    async fn is_granted_to_others(&self) {
        let listed = self.store.list(&ListRequest::new(Filter::default())).await.unwrap();
        assert!(listed.records.is_empty(), "{listed:?}");
        let one = self.until_granted(acquire("k", "other", Mode::Exclusive));
        let two = self.until_granted(of(["l", "m"], "others"));
        tokio::join!(one, two);
    }

    /// A try may fail, but never reports a holder.
    async fn until_granted(&self, request: AcquireRequest) {
        until(async || match self.store.acquire(&request).await {
            Ok(AcquireReply::Granted(_)) => true,
            Ok(AcquireReply::Refused(refused)) => panic!("{refused:?}"),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
                false
            }
        })
        .await;
    }
}

async fn status(set: &ReplicaSet, path: &[&str]) -> i64 {
    let status = set.nodes[0].command("admin", doc! { "serverStatus": 1 }).await.unwrap();
    let (last, before) = path.split_last().unwrap();
    let at = before.iter().fold(&status, |at, name| at.get_document(name).unwrap());
    at.get_i64(last).unwrap()
}

#[tokio::test]
async fn what_a_killed_client_did_not_commit_is_granted_to_others() {
    if let Ok(url) = std::env::var(OTHER) {
        return ask(&url).await;
    }
    let (stalled, process) =
        Stalled::start("what_a_killed_client_did_not_commit_is_granted_to_others").await;
    process.kill();
    stalled.is_granted_to_others().await;
}

#[tokio::test]
async fn a_client_that_commits_too_late_is_refused() {
    if let Ok(url) = std::env::var(OTHER) {
        return ask(&url).await;
    }
    let (stalled, process) = Stalled::start("a_client_that_commits_too_late_is_refused").await;
    stalled.is_granted_to_others().await;
    process.resume().unwrap();
    let log = stalled.directory.path().join("server.log");
    let said = async || std::fs::read_to_string(&log).unwrap_or_default();
    in_time(until(async || said().await.contains("Ok(Refused("))).await;
    is_renewed(&stalled.store, "k", "other", Mode::Exclusive).await;
    assert_eq!(status(&stalled.set, &["transactions", "currentOpen"]).await, 0);
}
