//! What works again when another server has become the primary, through clients that were connected to the old one.
#![expect(clippy::disallowed_methods, reason = "a waiter is a task of its own")]

use std::future::{IntoFuture as _, pending};
use std::time::Duration;

use futures_util::future::join_all;
use leasehold::inspect::{EvictRequest, EvictTarget};
use leasehold::{Candidate, Guard, LeadershipEvent, LeadershipEvents, Locker, Result, Wait};
use leasehold_conformance::Proxy;
use leasehold_testkit::postgres::{Server, url};
use leasehold_testkit::sql::SqlTestServer as _;
use leasehold_testkit::{mysql, until};
use tokio::task::JoinHandle;

/// How soon after the new primary accepts writes everything works.
pub(crate) const SOON: Duration = Duration::from_secs(5);
/// The limit of an operation: for so much longer an old primary that hangs may hold up everything.
const LIMIT: Duration = Duration::from_secs(2);

/// Longer than a switch-over on a busy machine.
const TERM: Duration = Duration::from_secs(20);
const HOUR: Duration = Duration::from_secs(3_600);

/// How many connections a client may have.
const SESSIONS: usize = 100;

/// A holder, a waiter, a candidate and an observer.
pub(crate) struct Clients {
    /// Of another process, which holds the other names.
    _others: (Locker, Vec<Guard>),
    holder: Guard,
    waiter: JoinHandle<Result<Guard>>,
    candidate: Candidate,
    observer: LeadershipEvents,
}

impl Clients {
    /// By this URL, while the old primary lives.
    pub(crate) async fn start(url: &str, old: &str) -> Self {
        let others = Locker::connect_unchecked(old).await.unwrap();
        let mut guards = Vec::new();
        for name in ["waited for", "job", "watched"] {
            guards.push(others.lock(name).ttl(HOUR).group("of a candidate").await.unwrap());
        }
        let locks = Locker::connect(url).await.unwrap();
        // More sessions than failures of one after the other could close in time.
        for status in join_all((0..SESSIONS).map(|_| locks.status("held"))).await {
            status.unwrap();
        }
        let holder = locks.lock("held").ttl(TERM).await.unwrap();
        let waits = locks.lock("waited for").wait(Wait::UpTo(Duration::from_secs(80)));
        let waiter = tokio::spawn(waits.into_future());
        let candidate = locks.election("job").spawn(pending()).unwrap();
        let mut observer = locks.election("watched").observe().unwrap();
        assert!(matches!(observer.next().await, Some(LeadershipEvent::Changed(Some(_)))));
        until(async || candidate.status().leader.is_some()).await;
        Self { _others: (others, guards), holder, waiter, candidate, observer }
    }

    /// All of them work within this time, now that the server of this URL is the primary.
    pub(crate) async fn work_within(mut self, limit: Duration, new: &str) {
        let work = async {
            // The nodes of a cluster learn of it one after the other.
            let mut others = None;
            until(async || {
                others = Locker::connect(new).await.ok();
                others.is_some()
            })
            .await;
            let others = others.expect("it is connected");
            for name in ["waited for", "job", "watched"] {
                let records = others.status(name).await.unwrap();
                let targets = records.iter().map(EvictTarget::of).collect();
                others.evict(&EvictRequest::exactly(targets, None)).await.unwrap();
            }
            let leader = others.election("watched").campaign().await.unwrap();
            until(async || self.holder.renew().await.is_ok()).await;
            drop(self.waiter.await.unwrap().unwrap());
            self.candidate.elected().await.unwrap();
            let is_seen = |event| match event {
                Some(LeadershipEvent::Changed(Some(seen))) => seen.token == leader.token(),
                Some(LeadershipEvent::Changed(None) | LeadershipEvent::Unknown(_)) => false,
                other => panic!("{other:?}"),
            };
            while !is_seen(self.observer.next().await) {}
        };
        tokio::time::timeout(limit, work).await.expect("all of them work by now");
        self.holder.verify().await.unwrap();
    }
}

/// A primary and its standby.
async fn pair() -> (Server, Server) {
    let old = Server::start(&[]).await.unwrap();
    Locker::connect_unchecked(&old.url()).await.unwrap().prepare().await.unwrap();
    let new = old.standby().await.unwrap();
    (old, new)
}

#[tokio::test]
async fn all_follow_an_address_that_leads_to_the_new_primary() {
    let (old, new) = pair().await;
    let address = Proxy::before(([127, 0, 0, 1], old.port()).into()).await.unwrap();
    let clients = Clients::start(&url(address.address().port()), &old.url()).await;
    new.has_all_of(&old).await;
    old.demote().await;
    new.promote().await;
    address.lead_to(([127, 0, 0, 1], new.port()).into());
    clients.work_within(SOON, &new.url()).await;
}

/// The servers in this order, of which the one that accepts writes is chosen.
fn both(first: &Server, second: &Server) -> String {
    format!(
        "postgres://postgres@127.0.0.1:{},127.0.0.1:{}/postgres?sslmode=disable&target_session_attrs=read-write&timeout={}s",
        first.port(),
        second.port(),
        LIMIT.as_secs()
    )
}

#[tokio::test]
async fn all_choose_the_new_primary_of_two_hosts() {
    let (old, new) = pair().await;
    let clients = Clients::start(&both(&old, &new), &old.url()).await;
    new.has_all_of(&old).await;
    old.demote().await;
    new.promote().await;
    clients.work_within(SOON, &new.url()).await;
}

#[tokio::test]
async fn all_leave_an_old_primary_that_hangs() {
    let (old, new) = pair().await;
    let clients = Clients::start(&both(&old, &new), &old.url()).await;
    new.has_all_of(&old).await;
    old.pause();
    new.promote().await;
    // Several limits pass one after the other. On a busy machine only `2 * SOON` is enough for what happens between them; who
    // waits for the host that hangs never connects.
    clients.work_within(2 * SOON + LIMIT, &new.url()).await;
    old.resume();
}

/// Also for a user whom a read-only server lets write.
#[tokio::test]
async fn all_follow_an_address_that_leads_to_the_new_primary_of_mariadb() {
    let old = mysql::Server::primary().await.unwrap();
    Locker::connect_unchecked(&old.url()).await.unwrap().prepare().await.unwrap();
    let new = old.replica().await.unwrap();
    let address = Proxy::before(([127, 0, 0, 1], old.port()).into()).await.unwrap();
    let url = mysql::url(address.address().port());
    let clients = Clients::start(&format!("{url}?connections={SESSIONS}"), &old.url()).await;
    new.has_all_of(&old).await;
    old.demote().await;
    new.promote().await;
    address.lead_to(([127, 0, 0, 1], new.port()).into());
    clients.work_within(SOON, &new.url()).await;
}
