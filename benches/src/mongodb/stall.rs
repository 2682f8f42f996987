//! How long others are stalled by a client that does not commit its transaction.

use std::process::Stdio;
use std::time::Duration;

use leasehold::store::{AcquireReply, AcquireRequest, Store as _};
use leasehold::{
    Claim, Claims, Error, Key, LeaseId, Locker, Mode, MongodbStore, Result, Ttl, Wait,
};
use leasehold_mongodb::mongodb::ClientSession;
use leasehold_mongodb::mongodb::bson::{Document, doc};
use leasehold_testkit::mongodb::Server;
use leasehold_testkit::mongodb::replica_set::{ReplicaSet, SetOptions};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::task::JoinSet;

use super::{failed, prepared, raw, refused, status};
use crate::measure::{now, or_few};
use crate::subjects::TTL;

/// The limits of the servers' transactions, in seconds. The second is the default.
const LIMITS: [u32; 2] = or_few([5, 60], [1, 2]);

pub(crate) async fn run() -> Result<()> {
    println!("## Others, while a client does not commit its transaction\n");
    println!(
        "A process has written the documents of three keys in a transaction. Others want one of the keys; two of them, in a \
         transaction of their own; and one by a `Locker` that waits for ever. From the end of the process until each has its \
         lease, with the number of failed tries and their last error.\n"
    );
    println!(
        "| limit, s | the client | one key, s | tries | two keys, s | tries | transactions/s | `Locker`, s | error |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    let mut all = JoinSet::new();
    for limit in LIMITS {
        for end in [End::Killed, End::Paused] {
            all.spawn(row(limit, end));
        }
    }
    all.spawn(row(LIMITS[1], End::Sessions));
    let mut rows = all.join_all().await.into_iter().collect::<Result<Vec<_>>>()?;
    rows.sort_unstable();
    println!("{}\n", rows.join("\n"));
    Ok(())
}

/// What becomes of the client.
#[derive(Debug, Clone, Copy)]
enum End {
    Killed,
    Paused,
    /// Somebody ends its session.
    Sessions,
}

impl End {
    fn name(self) -> &'static str {
        match self {
            Self::Killed => "is killed (`kill -9`)",
            Self::Paused => "is paused (`kill -STOP`)",
            Self::Sessions => "lives; an operator kills its session after 2 s",
        }
    }
}

async fn row(limit: u32, end: End) -> Result<String> {
    let setting = format!("transactionLifetimeLimitSeconds={limit}");
    let settings = ["--setParameter".to_owned(), setting].to_vec();
    let options = SetOptions { nodes: 1, settings, ..SetOptions::default() };
    let set = ReplicaSet::start_with(options).await.map_err(failed)?;
    let (url, server) = (set.url(), &set.nodes[0]);
    let store = prepared(&url).await?;
    for key in KEYS {
        crate::subjects::through_store(&store, &Key::new(key)?).await?;
    }
    let mut process = start(&url).await?;
    let start = now();
    match end {
        End::Killed => process.kill().await.map_err(crate::subjects::io)?,
        End::Paused => signal(&process, "-STOP").await?,
        End::Sessions => {}
    }
    let before = status(server, &["transactions", "totalStarted"]).await?;
    let killing = async {
        if matches!(end, End::Sessions) {
            tokio::time::sleep(Duration::from_secs(2)).await;
            kill_sessions(server).await?;
        }
        Result::Ok(())
    };
    let locker = async {
        drop(Locker::new(store.clone()).lock(KEYS[2]).ttl(TTL).wait(Wait::Forever).await?);
        Result::Ok(now() - start)
    };
    let two = async {
        let done = until_granted(&store, &[KEYS[1], "another"], start).await?;
        let started = status(server, &["transactions", "totalStarted"]).await? - before;
        Result::Ok((done, started))
    };
    let one = until_granted(&store, &KEYS[..1], start);
    let (one, (two, started), locker, ()) = tokio::try_join!(one, two, locker, killing)?;
    let [of_one, of_two, of_locker] =
        [one.took, two.took, locker].map(|took| format!("{:.1}", took.as_secs_f64()));
    let rate = f64::from(u32::try_from(started).unwrap_or(u32::MAX)) / two.took.as_secs_f64();
    Ok(format!(
        "| {limit} | {} | {of_one} | {} | {of_two} | {} | {rate:.0} | {of_locker} | {} |",
        end.name(),
        one.tries,
        two.tries,
        one.error
    ))
}

/// What the process writes, and others want.
const KEYS: [&str; 3] = ["one", "two", "waited-for"];

struct Done {
    took: Duration,
    tries: u32,
    error: String,
}

async fn until_granted(store: &MongodbStore, keys: &[&str], start: Duration) -> Result<Done> {
    let (mut tries, mut error) = (0, "none".to_owned());
    loop {
        let claims =
            keys.iter().map(|key| Ok(Claim { key: Key::new(key)?, mode: Mode::Exclusive }));
        let claims = Claims::new(claims.collect::<Result<Vec<_>>>()?)?;
        let request = AcquireRequest::new(LeaseId::mint()?, claims, Ttl::new(TTL)?);
        match store.acquire(&request).await {
            Ok(AcquireReply::Granted(_)) => return Ok(Done { took: now() - start, tries, error }),
            Ok(AcquireReply::Refused(_)) => {
                return Err(Error::unexpected("a key without a holder was refused"));
            }
            Err(failure) => {
                tries += 1;
                error = format!("{:?}, effect {:?}: {failure}", failure.kind(), failure.effect());
            }
        }
    }
}

/// Kills the session of each open transaction, as an operator does.
async fn kill_sessions(server: &Server) -> Result<()> {
    let stages = vec![
        doc! { "$currentOp": { "allUsers": true, "idleSessions": true } },
        doc! { "$match": { "transaction": { "$exists": true }, "type": "idleSession" } },
    ];
    let command = doc! { "aggregate": 1, "pipeline": stages, "cursor": {} };
    let found = server.command("admin", command).await.map_err(failed)?;
    let cursor = found.get_document("cursor").map_err(|_| Error::unexpected("no cursor"))?;
    let found = cursor.get_array("firstBatch").map_err(|_| Error::unexpected("no batch"))?;
    let sessions = found.iter().filter_map(|one| one.as_document()?.get_document("lsid").ok());
    let sessions: Vec<_> = sessions.map(|id| doc! { "lsid": id.clone() }).collect();
    let command = doc! { "killAllSessionsByPattern": sessions };
    server.command("admin", command).await.map_err(failed)?;
    Ok(())
}

/// Starts a process of this program that is a [`child`], and waits until it has written.
async fn start(url: &str) -> Result<Child> {
    let this = std::env::current_exe().map_err(crate::subjects::io)?;
    let mut child = Command::new(this)
        .args(["child", "mongodb", url])
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(crate::subjects::io)?;
    let stdout = child.stdout.take().ok_or_else(|| Error::unexpected("a process has no pipe"))?;
    let line = BufReader::new(stdout).lines().next_line().await.map_err(crate::subjects::io)?;
    line.ok_or_else(|| Error::unexpected("a process of the benchmark ended"))?;
    Ok(child)
}

async fn signal(process: &Child, signal: &str) -> Result<()> {
    let id = process.id().unwrap_or_default().to_string();
    let sent = Command::new("kill").args([signal, &id]).status().await;
    sent.map_err(crate::subjects::io)?;
    Ok(())
}

/// Writes in a transaction, says so, and never commits.
pub(crate) async fn child(url: &str) -> Result<()> {
    let locks = raw::collection(url, "locks").await?;
    let mut session: ClientSession = locks.client().start_session().await.map_err(refused)?;
    session.start_transaction().await.map_err(refused)?;
    for key in KEYS {
        let update: Document = doc! { "$set": { "unrelated": 1 } };
        let of_key = doc! { "resource": key };
        locks.update_one(of_key, update).session(&mut session).await.map_err(refused)?;
    }
    println!("written");
    std::future::pending().await
}
