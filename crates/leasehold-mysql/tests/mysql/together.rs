//! Requests that are sent in batches.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{join, join_all};
use leasehold_core::{
    AcquireReply, AcquireRequest, Claim, Claims, ErrorKind, EvictRequest, EvictTarget, Filter,
    ListRequest, Mode, Note, ReleaseEntry, ReleaseOutcome, ReleaseRequest, RenewEntry,
    RenewOutcome, RenewRequest, Store as _, Ttl,
};
use leasehold_mysql::mysql_async::prelude::Queryable as _;
use leasehold_mysql::{MysqlConfig, MysqlStore};
use leasehold_testkit::mysql::Server;
use leasehold_testkit::requests::{
    acquire, acquire_for, granted, id, key, only, refused, release, released, renew, renewed,
};
use leasehold_testkit::{LONG, in_time};

use crate::sessions::pool;

fn names(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("k{n}")).collect()
}

/// How many calls and statements clients have sent.
async fn calls(server: &Server) -> i64 {
    let status = "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS
                  WHERE VARIABLE_NAME = 'COM_STMT_EXECUTE'";
    server.rows(status).await[0].get::<String, _>(0).unwrap().parse().unwrap()
}

#[tokio::test]
async fn many_callers_share_calls() {
    let server = Server::start(&[]).await.unwrap();
    let store = server.store().await;
    let names = names(64);
    for name in &names {
        granted(store.acquire(&acquire(name, "first", Mode::Exclusive)).await);
    }
    let ends = || names.iter().map(|name| release(name, "first"));
    let requests: Vec<_> = ends().collect();
    let before = calls(&server).await;
    let released = join_all(requests.iter().map(|request| store.release(request))).await;
    assert!(
        released
            .into_iter()
            .all(|reply| matches!(only(reply.unwrap().leases), ReleaseOutcome::Released))
    );
    let requests: Vec<_> =
        names.iter().map(|name| acquire(name, "second", Mode::Exclusive)).collect();
    let acquired = join_all(requests.iter().map(|request| store.acquire(request))).await;
    let mut tokens: Vec<_> = acquired.into_iter().map(|reply| granted(reply).token).collect();
    assert!(tokens.iter().all(Option::is_some));
    tokens.dedup();
    // Of 128 requests.
    let used = calls(&server).await - before;
    assert!(used < 20, "{used} calls");
}

#[tokio::test]
async fn each_member_has_its_own_outcome() {
    let server = Server::start(&[]).await.unwrap();
    has_its_own_outcome(&server.store().await).await;
    // Statements of ours need sessions of ours: here, procedures do the same.
    server.run("DELETE FROM leasehold.leasehold_leases").await;
    let config = MysqlConfig::pool(pool(&server, 4), "leasehold");
    has_its_own_outcome(&config.connect().await.unwrap()).await;
}

async fn has_its_own_outcome(store: &MysqlStore) {
    for name in ["held", "free", "expired", "shared"] {
        granted(store.acquire(&acquire(name, "warm", Mode::Exclusive)).await);
        store.release(&release(name, "warm")).await.unwrap();
    }
    granted(store.acquire(&acquire("held", "a", Mode::Exclusive)).await);
    granted(store.acquire(&acquire("mine", "b", Mode::Exclusive)).await);
    granted(store.acquire(&acquire("shared", "c", Mode::SHARED)).await);
    let asks = ["first", "held", "free", "new", "mine", "shared", "expired"];
    let requests: Vec<_> = asks.iter().map(|name| acquire(name, "b", Mode::Exclusive)).collect();
    let replies = join_all(requests.iter().map(|request| store.acquire(request))).await;
    for (name, reply) in asks.iter().zip(replies) {
        let is_granted = match reply.unwrap() {
            AcquireReply::Granted(granted) => {
                assert_eq!(granted.fresh, *name != "mine", "{name}");
                true
            }
            AcquireReply::Refused(refused) => {
                assert_eq!(refused.key.as_str(), *name);
                false
            }
        };
        assert_eq!(is_granted, !["held", "shared"].contains(name), "{name}");
    }
    let ttl = Ttl::new(LONG).unwrap();
    let renewals = asks.map(|name| renew(name, "b", Mode::Exclusive, ttl));
    let replies = join_all(renewals.iter().map(|request| store.renew(request))).await;
    for (name, reply) in asks.iter().zip(replies) {
        let is_held = matches!(only(reply.unwrap().leases), RenewOutcome::Held(_));
        assert_eq!(is_held, !["held", "shared"].contains(name), "{name}");
    }
    let ends = asks.map(|name| release(name, "b"));
    let replies = join_all(ends.iter().map(|request| store.release(request))).await;
    for (name, reply) in asks.iter().zip(replies) {
        let outcome = only(reply.unwrap().leases);
        let is_released = matches!(outcome, ReleaseOutcome::Released);
        assert_eq!(is_released, !["held", "shared"].contains(name), "{name}: {outcome:?}");
    }
    refused(store.acquire(&acquire("held", "b", Mode::Exclusive)).await);
}

#[tokio::test]
async fn each_lease_is_listed_with_its_own_note() {
    let server = Server::start(&[]).await.unwrap();
    let store = server.store().await;
    let names = names(9);
    for name in &names {
        granted(store.acquire(&acquire(name, "warm", Mode::Exclusive)).await);
        store.release(&release(name, "warm")).await.unwrap();
    }
    let requests: Vec<_> = (0..9)
        .map(|n| {
            let note = Note::default().with_host(&format!("host-{}", n % 3)).unwrap();
            let note = note.with_comment(&format!("comment {n}")).unwrap();
            acquire(&names[n], "a", Mode::Exclusive).with_note(note)
        })
        .collect();
    let acquired = join_all(requests.iter().map(|request| store.acquire(request))).await;
    acquired.into_iter().for_each(|reply| drop(granted(reply)));
    let listed = store.list(&ListRequest::new(Filter::default())).await.unwrap();
    assert_eq!(listed.records.len(), 9);
    for (record, request) in listed.records.iter().zip(&requests) {
        assert_eq!(record.note, *request.note());
    }
}

#[tokio::test]
async fn requests_for_one_key_take_effect_in_their_order() {
    let server = Server::start(&[]).await.unwrap();
    let store = server.store().await;
    granted(store.acquire(&acquire("k", "0", Mode::Exclusive)).await);
    let mut calls = Vec::new();
    for n in 0..20 {
        let (end, ask) =
            (release("k", &n.to_string()), acquire("k", &(n + 1).to_string(), Mode::Exclusive));
        let (one, other) = (store.clone(), store.clone());
        calls.push(
            async move {
                only(one.release(&end).await.unwrap().leases);
                true
            }
            .boxed(),
        );
        calls.push(
            async move { matches!(other.acquire(&ask).await, Ok(AcquireReply::Granted(_))) }
                .boxed(),
        );
    }
    assert!(join_all(calls).await.into_iter().all(|granted| granted));
}

#[tokio::test]
async fn a_member_whose_caller_has_gone_acts_and_disturbs_nobody() {
    let server = Server::start(&[]).await.unwrap();
    let store = server.store().await;
    for name in names(3) {
        granted(store.acquire(&acquire(&name, "warm", Mode::Exclusive)).await);
        store.release(&release(&name, "warm")).await.unwrap();
    }
    let asks: Vec<_> = names(3).iter().map(|name| acquire(name, "a", Mode::Exclusive)).collect();
    let mut calls: Vec<_> = asks.iter().map(|ask| store.acquire(ask).boxed()).collect();
    for call in &mut calls {
        assert!(call.now_or_never().is_none());
    }
    drop(calls.remove(1));
    for call in calls {
        granted(in_time(call).await);
    }
    refused(store.acquire(&acquire("k1", "b", Mode::Exclusive)).await);
}

#[tokio::test]
async fn a_row_that_a_users_transaction_holds_delays_no_other_lease() {
    let server = Server::start(&[]).await.unwrap();
    let url = format!("{}?timeout=2s", server.url());
    let store = MysqlStore::connect(&url).await.unwrap();
    store.prepare().await.unwrap();
    let names = names(100);
    for name in &names {
        granted(store.acquire(&acquire(name, "a", Mode::Exclusive)).await);
    }
    let mut user = server.connect().await.unwrap();
    user.query_drop("BEGIN").await.unwrap();
    let hold = "SELECT * FROM leasehold.leasehold_leases WHERE `key` = 'k42' FOR UPDATE";
    user.query_drop(hold).await.unwrap();
    let ttl = Ttl::new(LONG).unwrap();
    // Each in a request of its own: the others do not wait for the one whose row is held.
    let requests: Vec<_> =
        names.iter().map(|name| renew(name, "a", Mode::Exclusive, ttl)).collect();
    let mut held = 0;
    let renewals = requests.iter().zip(&names).map(|(request, name)| {
        let store = &store;
        async move {
            let renewed = tokio::time::timeout(Duration::from_secs(1), store.renew(request)).await;
            assert_eq!(renewed.is_ok(), name != "k42", "{name}");
            usize::from(renewed.is_ok())
        }
    });
    held += join_all(renewals).await.into_iter().sum::<usize>();
    assert_eq!(held, 99);
    // In one request, its own outcome is a failure that changed nothing.
    let entries = names
        .iter()
        .map(|name| RenewEntry::extend(id("a"), Claims::one(key(name), Mode::Exclusive), ttl));
    let before = calls(&server).await;
    let renewed = in_time(store.renew(&RenewRequest::new(entries.collect()))).await.unwrap();
    let used = calls(&server).await - before;
    // The one whose row is held is tried again and again.
    assert!(used < 90, "{used} calls");
    for (name, outcome) in names.iter().zip(&renewed.leases) {
        match outcome {
            RenewOutcome::Held(_) => assert_ne!(name, "k42"),
            RenewOutcome::Failed(error) => {
                assert_eq!(
                    (name.as_str(), error.kind()),
                    ("k42", ErrorKind::Unavailable),
                    "{error}"
                );
            }
            RenewOutcome::Lost(why) => panic!("{name} is lost: {why:?}"),
        }
    }
    user.query_drop("COMMIT").await.unwrap();
    let renewed = store.renew(&renew("k42", "a", Mode::Exclusive, ttl)).await.unwrap();
    assert!(matches!(only(renewed.leases), RenewOutcome::Held(_)));
}

/// In a small table the server would rather read every row than use the primary key.
#[tokio::test]
async fn a_row_that_a_users_transaction_holds_delays_no_other_key_of_a_small_table() {
    let server = Server::start(&[]).await.unwrap();
    server.store().await;
    let own = MysqlStore::connect(&format!("{}?timeout=2s", server.url())).await.unwrap();
    granted(own.acquire(&acquire("m", "user", Mode::SHARED)).await);
    granted(own.acquire(&acquire("a", "first", Mode::SHARED)).await);
    let mut user = server.connect().await.unwrap();
    user.query_drop("BEGIN").await.unwrap();
    let hold = "SELECT * FROM leasehold.leasehold_leases WHERE `key` = 'm' AND slot = 0 FOR UPDATE";
    user.query_drop(hold).await.unwrap();
    let config = MysqlConfig::pool(pool(&server, 4), "leasehold");
    let callers = config.timeout(Duration::from_secs(2)).connect().await.unwrap();
    let ttl = Ttl::new(LONG).unwrap();
    for (store, lease) in [(&own, "own"), (&callers, "callers")] {
        for name in ["a", "z"] {
            let ask = acquire(name, lease, Mode::SHARED);
            let renewal = renew(name, lease, Mode::SHARED, ttl);
            let end = release(name, lease);
            let keep = ReleaseEntry::new(id(lease), [key(name)]).with_keep(LONG);
            let keep = ReleaseRequest::new(vec![keep]);
            let target = EvictTarget::new(key(name), Some(id(lease)));
            let evict = EvictRequest::exactly(vec![target], None);
            // The second confirms the first.
            granted(store.acquire(&ask).await);
            granted(store.acquire(&ask).await);
            assert!(matches!(renewed(store, &renewal).await, Ok(RenewOutcome::Held(_))), "{name}");
            assert_eq!(store.evict(&evict).await.unwrap().removed.len(), 1, "{name}");
            granted(store.acquire(&ask).await);
            assert!(matches!(released(store, &end).await, Ok(ReleaseOutcome::Released)), "{name}");
            granted(store.acquire(&ask).await);
            assert!(matches!(released(store, &keep).await, Ok(ReleaseOutcome::Kept(_))), "{name}");
            assert_eq!(store.evict(&evict).await.unwrap().removed.len(), 1, "{name}");
        }
    }
    // What is over, in slot 0 and in another one.
    granted(own.acquire(&acquire("a", "second", Mode::SHARED)).await);
    server.run("UPDATE leasehold.leasehold_leases SET expires = 1 WHERE `key` = 'a'").await;
    let over = EvictRequest::expired(Filter::default().with_key(key("a")));
    assert_eq!(own.evict(&over).await.unwrap().removed.len(), 2);
    user.query_drop("ROLLBACK").await.unwrap();
}

#[tokio::test]
async fn an_acquire_of_a_row_that_a_users_transaction_holds_is_busy() {
    let server = Server::start(&[]).await.unwrap();
    let url = format!("{}?timeout=1s", server.url());
    let store = MysqlStore::connect(&url).await.unwrap();
    store.prepare().await.unwrap();
    granted(store.acquire(&acquire("k", "a", Mode::Exclusive)).await);
    store.release(&release("k", "a")).await.unwrap();
    let mut user = server.connect().await.unwrap();
    user.query_drop("BEGIN").await.unwrap();
    user.query_drop("SELECT * FROM leasehold.leasehold_leases FOR UPDATE").await.unwrap();
    let why = refused(in_time(store.acquire(&acquire("k", "b", Mode::Exclusive))).await).why;
    assert!(matches!(why, leasehold_core::RefusalReason::Busy), "{why:?}");
    user.query_drop("COMMIT").await.unwrap();
    granted(store.acquire(&acquire("k", "b", Mode::Exclusive)).await);
}

#[tokio::test]
async fn a_failing_member_fails_alone() {
    let server = Server::start(&[]).await.unwrap();
    let store = server.store().await;
    let names = names(10);
    for name in &names {
        granted(store.acquire(&acquire(name, "warm", Mode::Exclusive)).await);
        store.release(&release(name, "warm")).await.unwrap();
    }
    // A trigger stands for whatever makes the server refuse one row.
    server
        .run(
            "CREATE TRIGGER leasehold.no BEFORE UPDATE ON leasehold.leasehold_leases FOR EACH ROW
             IF NEW.`key` = 'k3' THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'not this one'; END IF",
        )
        .await;
    let requests: Vec<_> = names.iter().map(|name| acquire(name, "a", Mode::Exclusive)).collect();
    let replies = join_all(requests.iter().map(|request| store.acquire(request))).await;
    for (name, reply) in names.iter().zip(replies) {
        match reply {
            Ok(reply) => drop(granted(Ok(reply))),
            Err(error) => assert!(
                name == "k3" && error.to_string().contains("not this one"),
                "{name}: {error}"
            ),
        }
    }
}

#[tokio::test]
async fn a_thousand_leases_are_renewed_and_released_in_few_calls() {
    let server = Server::start(&["--innodb-flush-log-at-trx-commit=2"]).await.unwrap();
    let store = Arc::new(server.store().await);
    let names = names(1_000);
    let requests: Vec<_> =
        names.iter().map(|name| acquire_for(name, "a", Mode::Exclusive, 20 * LONG)).collect();
    // New keys have a transaction each.
    for some in requests.chunks(100) {
        let acquired = join_all(some.iter().map(|request| store.acquire(request))).await;
        acquired.into_iter().for_each(|reply| drop(granted(reply)));
    }
    let before = calls(&server).await;
    let entries = names.iter().map(|name| {
        RenewEntry::extend(
            id("a"),
            Claims::one(key(name), Mode::Exclusive),
            Ttl::new(LONG).unwrap(),
        )
    });
    let renewed = store.renew(&RenewRequest::new(entries.collect())).await.unwrap();
    let other = renewed.leases.iter().find(|outcome| !matches!(outcome, RenewOutcome::Held(_)));
    assert!(other.is_none(), "{other:?}");
    let ends = names.iter().map(|name| ReleaseEntry::new(id("a"), [key(name)])).collect();
    let released = store.release(&ReleaseRequest::new(ends)).await.unwrap();
    assert!(released.leases.iter().all(|outcome| matches!(outcome, ReleaseOutcome::Released)));
    let used = calls(&server).await - before;
    assert!(used < 40, "{used} calls");
}

/// Each pair of sets has a key in common, and nobody has used the keys before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_crossing_sets_of_new_keys_one_is_granted_at_most() {
    let server = Server::start(&["--innodb-flush-log-at-trx-commit=2"]).await.unwrap();
    let stores = [server.store().await, server.store().await, server.store().await];
    let mut granted = 0;
    for round in 0..300 {
        let names = ["a", "b", "c"].map(|name| key(&format!("{name}{round}")));
        let tries = stores.iter().enumerate().map(|(n, store)| {
            let keys = [names[n].clone(), names[(n + 1) % 3].clone()];
            let claims = Claims::new(keys.map(|key| Claim { key, mode: Mode::Exclusive })).unwrap();
            let request = AcquireRequest::new(id(&n.to_string()), claims, Ttl::new(LONG).unwrap());
            let store = store.clone();
            #[expect(clippy::disallowed_methods, reason = "clients run at the same time")]
            tokio::spawn(async move { store.acquire(&request).await.unwrap() })
        });
        let replies = join_all(tries).await.into_iter().map(|reply| reply.unwrap());
        let of_round = replies.filter(|reply| matches!(reply, AcquireReply::Granted(_))).count();
        assert!(of_round <= 1, "{of_round} in round {round}");
        granted += of_round;
    }
    assert!(granted > 200, "{granted}");
}

/// A batch begins anywhere and counts: another store's may have the same number.
#[tokio::test]
async fn a_batch_of_the_same_number_grants_nothing_of_another() {
    let server = Server::start(&[]).await.unwrap();
    let store = server.store().await;
    granted(store.acquire(&acquire("k", "warm", Mode::Exclusive)).await);
    store.release(&release("k", "warm")).await.unwrap();
    let batch = async |name: &str, values: &str| {
        server.rows(&format!("CALL leasehold.leasehold_{name}(7, {values})")).await.len()
    };
    let lease = |id: &str| format!("'[[\"6b\",\"{id}\",60000000,null,null]]'");
    let ask = |id: &str| format!("{}, NULL, NULL, NULL", lease(id));
    assert_eq!(batch("acquire_batch", &ask("61")).await, 1);
    assert_eq!(batch("acquire_batch", &ask("62")).await, 0);
    assert_eq!(batch("renew_batch", &lease("62")).await, 0);
    assert_eq!(batch("renew_batch", &lease("61")).await, 1);
    assert_eq!(batch("release_batch", "'[[\"6b\",\"62\",null]]'").await, 0);
    assert_eq!(batch("release_batch", "'[[\"6b\",\"61\",null]]'").await, 1);
}

/// Another client's transaction uses a key for the first time: others that want it wait in the client, not on a connection.
#[tokio::test]
async fn waiters_for_a_new_key_of_another_hold_no_connection() {
    let server = Server::start(&[]).await.unwrap();
    server.store().await;
    let own = MysqlStore::connect(&format!("{}?timeout=2s", server.url())).await.unwrap();
    let config = MysqlConfig::pool(pool(&server, 4), "leasehold");
    let callers = config.timeout(Duration::from_secs(2)).connect().await.unwrap();
    let stores = [("own", &own), ("callers", &callers)];
    for (name, store) in stores {
        granted(store.acquire(&acquire(name, "a", Mode::SHARED)).await);
    }
    let mut user = server.connect().await.unwrap();
    user.query_drop("BEGIN").await.unwrap();
    user.query_drop("INSERT INTO leasehold.leasehold_leases (`key`, slot) VALUES ('new', 0)")
        .await
        .unwrap();
    let waited = async || {
        let rows = server.rows("SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_time'").await;
        rows[0].get::<String, _>(1).unwrap().parse::<u64>().unwrap()
    };
    let before = waited().await;
    let asks: Vec<_> = (0..12).map(|n| acquire("new", &n.to_string(), Mode::SHARED)).collect();
    let replies = asks.iter().flat_map(|ask| [own.acquire(ask), callers.acquire(ask)]);
    // What goes in no batch needs one of their connections.
    let others = stores.map(async |(name, store)| {
        store.renew(&renew(name, "a", Mode::SHARED, Ttl::new(LONG).unwrap())).await.unwrap();
        store.list(&ListRequest::new(Filter::default())).await.unwrap();
        store.check().await.unwrap();
    });
    let (replies, _) = in_time(join(join_all(replies), join_all(others))).await;
    // On a busy machine the last try may go unanswered.
    for reply in replies.into_iter().filter(Result::is_ok) {
        let why = refused(reply).why;
        assert!(matches!(why, leasehold_core::RefusalReason::Busy), "{why:?}");
    }
    let waited = waited().await - before;
    assert!(waited < 500, "{waited} ms");
}
