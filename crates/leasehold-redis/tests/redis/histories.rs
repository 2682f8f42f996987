//! What clients believe while real servers are killed, paused and replaced, judged by the checker of histories.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use leasehold_conformance::history::{History, Violation, check};
use leasehold_conformance::{Fault, Proxy};
use leasehold_core::{AcquireReply, Claims, ErrorKind, Level, Mode, Store};
use leasehold_driver::TokioClock;
use leasehold_quorum::{QuorumConfig, QuorumStore};
use leasehold_redis::{RedisConfig, RedisStore};
use leasehold_testkit::contender::{Contender, Habit};
use leasehold_testkit::crowd::{Crowd, Tally};
use leasehold_testkit::faulty::{Faulty, Hook, Reply, Request};
use leasehold_testkit::redis::{DURABLE, Server};
use leasehold_testkit::requests::{acquire, granted, key};
use leasehold_testkit::{LONG, in_time, until};

/// The term that clients contend for while nodes fail one after the other.
const TERM: Duration = Duration::from_secs(1);
const CLIENTS: u64 = 4;

/// What happens to a node's leases when it is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Nodes {
    Durable,
    /// They are lost, and nothing is granted until they have ended.
    Quarantined,
    /// They are lost, and the node claims to be durable.
    Lying,
}

impl Nodes {
    async fn start(self) -> Vec<Server> {
        let settings = if self == Self::Durable { DURABLE } else { &[] };
        let mut servers = Vec::new();
        for _ in 0..3 {
            servers.push(Server::start(settings).await.unwrap());
        }
        servers
    }

    /// One client's store on these servers, which `check` accepts.
    async fn quorum(self, servers: &[Server], term: Duration) -> QuorumStore {
        let mut config = QuorumConfig::new().max_ttl(term).node_timeout(term / 4);
        for (at, server) in servers.iter().enumerate() {
            let (name, node) = (format!("n{at}"), self.node(server, term).await);
            config = match self {
                Self::Lying => config.node(name, Faulty(Lying(node))),
                _ => config.node(name, node),
            };
        }
        let store = config.build().unwrap();
        store.check().await.unwrap();
        store
    }

    async fn node(self, server: &Server, term: Duration) -> RedisStore {
        let quarantine = if self == Self::Quarantined { term } else { Duration::ZERO };
        let config = RedisConfig::parse(&server.url()).unwrap().timeout(LONG);
        config.quarantine(quarantine).durable(self == Self::Durable).connect().await.unwrap()
    }

    async fn until_it_grants(self, server: &Server, term: Duration) {
        let node = self.node(server, term).await;
        let probe = acquire("probe", "probe", Mode::Exclusive);
        until(async || node.acquire(&probe).await.is_ok()).await;
    }
}

/// A node that may forget and claims that it does not.
#[derive(Debug)]
struct Lying(RedisStore);

impl Hook for Lying {
    fn store(&self) -> impl Store {
        self.0.clone()
    }

    async fn handle(&self, request: Request) -> leasehold_core::Result<Reply> {
        let mut reply = request.send_to(self.0.clone()).await?;
        if let Reply::Check(health) = &mut reply {
            health.durable = true;
        }
        Ok(reply)
    }
}

fn habit(term: Duration) -> Habit {
    Habit { claims: Claims::one(key("job"), Mode::Exclusive), term, hold: 200, rest: 60 }
}

/// Kills and restarts, and then pauses, each of three nodes in turn, while clients contend.
async fn under_faults(nodes: Nodes) {
    let servers = nodes.start().await;
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push((nodes.quorum(&servers, TERM).await, habit(TERM)));
    }
    let crowd = Crowd::start(clients);
    crowd.continues(2).await;
    let (mut kills, mut pauses) = (0, 0);
    for server in &servers {
        server.ask(&["SET", "before", "the kill"]).await.unwrap();
        server.kill();
        assert!(server.ask(&["PING"]).await.is_err());
        crowd.continues(3).await;
        server.restart().await.unwrap();
        kills += 1;
        let is_kept = server.number(&["EXISTS", "before"]).await == 1;
        assert_eq!(is_kept, nodes == Nodes::Durable);
        server.pause();
        crowd.continues(3).await;
        server.resume();
        pauses += 1;
        // Without it the next two would not be a majority.
        nodes.until_it_grants(server, TERM).await;
    }
    let (history, stores) = crowd.stop().await;
    for store in stores {
        in_time(store.settled()).await;
    }
    let found = check(&history);
    assert!(found.is_empty(), "{nodes:?}: {found:?}");
    let tally = Tally::of(&history);
    println!("{nodes:?}: {kills} kills, {pauses} pauses, {tally}");
    // Without contention it would prove nothing.
    assert!(tally.beliefs >= 10 && tally.kept >= 10 && tally.refused >= 10);
}

#[tokio::test]
async fn killing_and_pausing_durable_nodes_lets_no_second_holder_in() {
    under_faults(Nodes::Durable).await;
}

#[tokio::test]
async fn forgetful_nodes_with_a_quarantine_let_no_second_holder_in() {
    under_faults(Nodes::Quarantined).await;
}

/// One client takes two nodes, one of which is killed and restarted. Another asks that one and the third.
async fn two_majorities(nodes: Nodes, term: Duration) -> Vec<Violation> {
    let servers = nodes.start().await;
    let (instant, clock) = (Arc::new(AtomicU64::new(1)), TokioClock::new());
    let mut clients = Vec::new();
    for seed in 0..2 {
        let store = nodes.quorum(&servers, term).await;
        clients.push(Contender::new(
            store,
            habit(term),
            clock,
            fastrand::Rng::with_seed(seed),
            &instant,
        ));
    }
    let [mut one, mut other] = <[_; 2]>::try_from(clients).ok().unwrap();
    for server in &servers {
        nodes.until_it_grants(server, term).await;
    }
    servers[2].kill();
    let held = one.take().await.expect("two of three are a majority");
    one.store.settled().await;
    servers[1].restart().await.unwrap();
    servers[2].restart().await.unwrap();
    let second = other.take().await;
    assert!(one.look(&held) || nodes == Nodes::Quarantined);
    if let Some(second) = second {
        assert!(other.look(&second));
    }
    let mut history = History::new(Vec::new(), Vec::new());
    one.tell(&mut history);
    other.tell(&mut history);
    assert_eq!(history.calls.len(), 2);
    check(&history)
}

#[tokio::test]
async fn a_forgetful_node_without_a_quarantine_lets_a_second_holder_in() {
    let found = two_majorities(Nodes::Lying, LONG).await;
    assert!(matches!(found[..], [Violation::Overlap(..)]), "{found:?}");
    assert_eq!(two_majorities(Nodes::Durable, LONG).await, []);
    // As long as a quarantine that the test waits for. On a slower machine the first lease has ended.
    assert_eq!(two_majorities(Nodes::Quarantined, Duration::from_secs(4)).await, []);
}

/// Documented: a fail-over loses what the replica had not received.
#[tokio::test]
async fn a_fail_over_loses_the_newest_leases_and_lets_second_holders_in() {
    const EACH: usize = 50;
    let at_once = [DURABLE, &["--repl-diskless-sync-delay", "0"]].concat();
    let master = Server::start(&at_once).await.unwrap();
    let link = Proxy::before(([127, 0, 0, 1], master.port()).into()).await.unwrap();
    let port = link.address().port().to_string();
    let replica = [DURABLE, &["--replicaof", "127.0.0.1", &port]].concat();
    let replica = Server::start(&replica).await.unwrap();
    until(async || {
        let info = replica.text(&["INFO", "replication"]).await.unwrap();
        info.contains("master_link_status:up")
    })
    .await;
    let before = master.store().await;
    let health = before.check().await.unwrap();
    assert_eq!((health.level, health.fails_over), (Level::BestEffort, true));
    let quorum = QuorumConfig::new().node("n", before.clone()).build().unwrap();
    assert_eq!(quorum.check().await.unwrap_err().kind(), ErrorKind::Incompatible);

    let names: Vec<_> = (0..2 * EACH).map(|at| format!("k{at}")).collect();
    for name in &names[..EACH] {
        granted(before.acquire(&acquire(name, "first", Mode::Exclusive)).await);
    }
    until(async || replica.number(&["EXISTS", &names[EACH - 1]]).await == 1).await;
    link.set(Fault::BlackHole);
    for name in &names[EACH..] {
        granted(before.acquire(&acquire(name, "first", Mode::Exclusive)).await);
    }
    let (instant, clock) = (Arc::new(AtomicU64::new(1)), TokioClock::new());
    let mut one = Contender::new(before, habit(LONG), clock, fastrand::Rng::with_seed(0), &instant);
    let held = one.take().await.unwrap();

    master.pause();
    replica.ask(&["REPLICAOF", "NO", "ONE"]).await.unwrap();
    let after = RedisStore::connect(&replica.url()).await.unwrap();
    let mut let_in = Vec::new();
    for name in &names {
        let acquired = after.acquire(&acquire(name, "second", Mode::Exclusive)).await.unwrap();
        let_in.push(matches!(acquired, AcquireReply::Granted(_)));
    }
    println!(
        "of {EACH} leases before the link hung {}, of {EACH} after {} were granted to a second holder",
        let_in[..EACH].iter().filter(|is| **is).count(),
        let_in[EACH..].iter().filter(|is| **is).count(),
    );
    assert!(let_in[..EACH].iter().all(|is| !is) && let_in[EACH..].iter().all(|is| *is));
    let mut other =
        Contender::new(after, habit(LONG), clock, fastrand::Rng::with_seed(1), &instant);
    let second = other.take().await.unwrap();
    assert!(one.look(&held) && other.look(&second));
    let mut history = History::new(Vec::new(), Vec::new());
    one.tell(&mut history);
    other.tell(&mut history);
    let found = check(&history);
    assert!(matches!(found[..], [Violation::Overlap(..)]), "{found:?}");
}

#[tokio::test]
async fn a_node_that_may_forget_or_fail_over_is_refused_by_a_quorum() {
    let server = Server::start(&[]).await.unwrap();
    let quorum = QuorumConfig::new().node("n", server.store().await).build().unwrap();
    let error = quorum.check().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible);
    assert!(error.to_string().contains("may lose leases"), "{error}");
}
