//! The crate `rslock`, another library's Redlock client, against ours, both ways: on one server, and on three that are
//! the nodes of our quorum.

use std::time::Duration;

use leasehold_core::{
    AcquireReply, AcquireRequest, Claims, LeaseId, Mode, RefusalReason, ReleaseEntry,
    ReleaseOutcome, ReleaseRequest, Remaining, RenewEntry, RenewOutcome, RenewRequest, Store, Ttl,
};
use leasehold_quorum::{QuorumConfig, QuorumStore};
use leasehold_redis::RedisStore;
use leasehold_testkit::redis::{DURABLE, Server};
use leasehold_testkit::requests::{acquire, granted, id, key, only, refused, release, renew};
use leasehold_testkit::{LONG, until};
use rslock::{Lock, LockError, LockManager};

/// The same servers through our store and through theirs.
struct Both<S> {
    servers: Vec<Server>,
    ours: S,
    theirs: LockManager,
}

impl Both<RedisStore> {
    async fn on_one_server() -> Self {
        let servers = vec![Server::start(DURABLE).await.unwrap()];
        let ours = servers[0].store().await;
        let theirs = theirs(&servers);
        Self { servers, ours, theirs }
    }
}

impl Both<QuorumStore> {
    async fn on_three_servers() -> Self {
        let mut servers = Vec::new();
        let mut config = QuorumConfig::new().node_timeout(Duration::from_secs(5));
        for _ in 0..3 {
            let server = Server::start(DURABLE).await.unwrap();
            config = config.node(server.url(), server.store().await);
            servers.push(server);
        }
        let ours = config.build().unwrap();
        let theirs = theirs(&servers);
        Self { servers, ours, theirs }
    }
}

/// It makes one try, so that a refusal shows.
fn theirs(servers: &[Server]) -> LockManager {
    let mut manager = LockManager::new(servers.iter().map(Server::url).collect());
    manager.set_retry(1, Duration::from_millis(100));
    manager
}

impl<S: Store> Both<S> {
    /// Waits until no server has `name`, including those whose answers were not awaited.
    async fn until_free(&self, name: &str) {
        for server in &self.servers {
            until(async || server.number(&["EXISTS", name]).await == 0).await;
        }
    }

    /// Waits until every server has it.
    async fn until_everywhere(&self, name: &str) {
        for server in &self.servers {
            until(async || server.number(&["EXISTS", name]).await == 1).await;
        }
    }

    async fn they_fail(&self, name: &str) {
        let refused = self.theirs.lock(name, LONG).await;
        assert!(matches!(refused, Err(LockError::Unavailable)), "{refused:?}");
    }

    async fn foreign_locks_exclude_ours(&self) {
        let lock = self.theirs.lock("k", LONG).await.unwrap();
        for mode in [Mode::Exclusive, Mode::SHARED] {
            let refused = refused(self.ours.acquire(&acquire("k", "ours", mode)).await);
            // The server keeps it through the millisecond of its end.
            let most = LONG + Duration::from_millis(1);
            assert!(refused.retry_after.is_some_and(|rest| rest <= most), "{refused:?}");
            let RefusalReason::Held(Some(holder)) = refused.why else {
                panic!("{:?}", refused.why)
            };
            assert_eq!(holder.id, Some(LeaseId::foreign(&lock.val).unwrap()));
        }
        let lock = self.theirs.extend(&lock, 2 * LONG).await.unwrap();
        let refused = refused(self.ours.acquire(&acquire("k", "ours", Mode::Exclusive)).await);
        assert!(refused.retry_after.is_some_and(|rest| rest > LONG), "{refused:?}");
        lock.release().await;
        self.until_free("k").await;
        granted(self.ours.acquire(&acquire("k", "ours", Mode::Exclusive)).await);
    }

    async fn our_locks_exclude_foreign_clients_shared_ones_too(&self) {
        granted(self.ours.acquire(&acquire("x", "ours", Mode::Exclusive)).await);
        granted(self.ours.acquire(&acquire("s", "one", Mode::SHARED)).await);
        granted(self.ours.acquire(&acquire("s", "two", Mode::SHARED)).await);
        for name in ["x", "s"] {
            self.until_everywhere(name).await;
            self.they_fail(name).await;
        }
        // A reader's id is not a value that they could end.
        self.theirs.unlock(&self.named("s", b"one")).await;
        self.ours.release(&release("s", "one")).await.unwrap();
        self.they_fail("s").await;
        self.ours.release(&release("s", "two")).await.unwrap();
        self.ours.release(&release("x", "ours")).await.unwrap();
        for name in ["x", "s"] {
            self.until_free(name).await;
            self.theirs.lock(name, LONG).await.unwrap().release().await;
        }
    }

    async fn their_lock_is_renewed_and_released_by_its_value(&self) {
        let lock = self.theirs.lock("k", LONG).await.unwrap();
        let theirs = LeaseId::foreign(&lock.val).unwrap();
        assert_eq!(theirs.to_bytes().len(), 20);
        let claims = Claims::one(key("k"), Mode::Exclusive);
        let to = Ttl::new(2 * LONG).unwrap();
        let renewed = self
            .ours
            .renew(&RenewRequest::new(vec![RenewEntry::extend(theirs.clone(), claims, to)]))
            .await;
        let renewed = only(renewed.unwrap().leases);
        assert!(matches!(renewed, RenewOutcome::Held(Remaining::For(rest)) if rest > LONG));
        assert!(!self.theirs.is_freed(&lock).await.unwrap());
        self.theirs.extend(&lock, LONG).await.unwrap();
        let released = self
            .ours
            .release(&ReleaseRequest::new(vec![ReleaseEntry::new(theirs, [key("k")])]))
            .await;
        assert!(matches!(only(released.unwrap().leases), ReleaseOutcome::Released));
        self.until_free("k").await;
        let freed = self.theirs.is_freed(&lock).await;
        assert!(matches!(freed, Err(LockError::RedisKeyNotFound)), "{freed:?}");
    }

    async fn our_lock_is_extended_and_released_by_its_id(&self) {
        granted(self.ours.acquire(&acquire("k", "ours", Mode::Exclusive)).await);
        self.until_everywhere("k").await;
        let lock = self.named("k", b"ours");
        self.theirs.extend(&lock, 2 * LONG).await.unwrap();
        for server in &self.servers {
            assert!(server.number(&["PTTL", "k"]).await > 30_000);
        }
        let renewal = renew("k", "ours", Mode::Exclusive, Ttl::new(LONG).unwrap());
        let renewed = only(self.ours.renew(&renewal).await.unwrap().leases);
        assert!(matches!(renewed, RenewOutcome::Held(Remaining::For(rest)) if rest > LONG));
        self.theirs.unlock(&lock).await;
        let renewed = only(self.ours.renew(&renewal).await.unwrap().leases);
        assert!(matches!(renewed, RenewOutcome::Lost(_)), "{renewed:?}");
        let released = only(self.ours.release(&release("k", "ours")).await.unwrap().leases);
        assert!(matches!(released, ReleaseOutcome::NotHeld), "{released:?}");
    }

    /// How many times each won when both tried at once.
    async fn contend(&self, rounds: usize) -> (usize, usize) {
        let (mut we, mut they) = (0, 0);
        for round in 0..rounds {
            let own = format!("round-{round}");
            let request = AcquireRequest::new(
                id(&own),
                Claims::one(key("k"), Mode::Exclusive),
                Ttl::new(LONG).unwrap(),
            );
            // They take turns to ask first.
            let (ours, theirs) = if round % 2 == 0 {
                tokio::join!(self.ours.acquire(&request), self.theirs.lock("k", LONG))
            } else {
                let (theirs, ours) =
                    tokio::join!(self.theirs.lock("k", LONG), self.ours.acquire(&request));
                (ours, theirs)
            };
            let ours = matches!(ours.unwrap(), AcquireReply::Granted(_));
            assert!(!(ours && theirs.is_ok()), "both hold it in round {round}");
            if ours {
                we += 1;
                self.ours.release(&release("k", &own)).await.unwrap();
            }
            if let Ok(lock) = theirs {
                they += 1;
                lock.release().await;
            }
            self.until_free("k").await;
        }
        (we, they)
    }

    /// What they would have if they had taken our lock with this value.
    fn named(&self, name: &str, value: &[u8]) -> Lock {
        Lock {
            resource: name.as_bytes().to_vec(),
            val: value.to_vec(),
            validity_time: 0,
            lock_manager: self.theirs.clone(),
        }
    }
}

#[tokio::test]
async fn rslock_excludes_us_on_one_server() {
    Both::on_one_server().await.foreign_locks_exclude_ours().await;
}

#[tokio::test]
async fn rslock_excludes_us_on_three_servers() {
    Both::on_three_servers().await.foreign_locks_exclude_ours().await;
}

#[tokio::test]
async fn we_exclude_rslock_on_one_server() {
    Both::on_one_server().await.our_locks_exclude_foreign_clients_shared_ones_too().await;
}

#[tokio::test]
async fn we_exclude_rslock_on_three_servers() {
    Both::on_three_servers().await.our_locks_exclude_foreign_clients_shared_ones_too().await;
}

#[tokio::test]
async fn a_lock_of_rslock_is_adopted_on_one_server() {
    Both::on_one_server().await.their_lock_is_renewed_and_released_by_its_value().await;
}

#[tokio::test]
async fn a_lock_of_rslock_is_adopted_on_three_servers() {
    Both::on_three_servers().await.their_lock_is_renewed_and_released_by_its_value().await;
}

#[tokio::test]
async fn rslock_ends_our_lock_by_its_id_on_one_server() {
    Both::on_one_server().await.our_lock_is_extended_and_released_by_its_id().await;
}

#[tokio::test]
async fn rslock_ends_our_lock_by_its_id_on_three_servers() {
    Both::on_three_servers().await.our_lock_is_extended_and_released_by_its_id().await;
}

#[tokio::test]
async fn one_of_us_and_rslock_wins_on_one_server() {
    let (we, they) = Both::on_one_server().await.contend(40).await;
    assert!(we + they == 40 && we > 0 && they > 0, "{we} {they}");
}

#[tokio::test]
async fn at_most_one_of_us_and_rslock_wins_on_three_servers() {
    let (we, they) = Both::on_three_servers().await.contend(40).await;
    assert!((1..=40).contains(&(we + they)), "{we} {they}");
}
