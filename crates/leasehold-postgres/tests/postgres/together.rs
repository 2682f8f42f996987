//! Requests that are sent in batches.

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use leasehold_core::{
    AcquireReply, AcquireRequest, Claim, Claims, ErrorKind, Mode, ReleaseEntry, ReleaseOutcome,
    ReleaseRequest, RenewEntry, RenewOutcome, RenewRequest, Store as _, Ttl,
};
use leasehold_postgres::PostgresStore;
use leasehold_testkit::postgres::Server;
use leasehold_testkit::requests::{
    acquire, acquire_for, granted, id, key, only, refused, release, renew,
};
use leasehold_testkit::{LONG, in_time};

fn names(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("k{n}")).collect()
}

/// How many transactions of the server have written; this counts too.
async fn transactions(server: &Server) -> i64 {
    server.rows("SELECT (pg_current_xact_id()::text)::bigint").await[0].get(0)
}

#[tokio::test]
async fn many_callers_share_transactions() {
    let server = Server::start(&[]).await.unwrap();
    let store = server.store().await;
    let names = names(64);
    for name in &names {
        granted(store.acquire(&acquire(name, "first", Mode::Exclusive)).await);
    }
    let ends = || names.iter().map(|name| release(name, "first"));
    let requests: Vec<_> = ends().collect();
    let before = transactions(&server).await;
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
    // 128 requests, and this question.
    let used = transactions(&server).await - before;
    assert!(used < 20, "{used} transactions");
}

#[tokio::test]
async fn each_member_has_its_own_outcome() {
    let server = Server::start(&[]).await.unwrap();
    let store = server.store().await;
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
    let store = server.store().await;
    let names = names(100);
    for name in &names {
        granted(store.acquire(&acquire(name, "a", Mode::Exclusive)).await);
    }
    let user = server.connect().await.unwrap();
    user.batch_execute("BEGIN; SELECT * FROM leasehold.leases WHERE key = 'k42' FOR UPDATE")
        .await
        .unwrap();
    let ttl = Ttl::new(LONG).unwrap();
    // Each in a request of its own: the others do not wait for the one whose row is held.
    let requests: Vec<_> =
        names.iter().map(|name| renew(name, "a", Mode::Exclusive, ttl)).collect();
    let mut renewals: Vec<_> =
        requests.iter().map(|request| store.renew(request).boxed()).collect();
    for renewal in &mut renewals {
        assert!(renewal.now_or_never().is_none());
    }
    let mut waits = renewals.remove(42);
    for renewed in in_time(join_all(renewals)).await {
        assert!(matches!(only(renewed.unwrap().leases), RenewOutcome::Held(_)));
    }
    assert!((&mut waits).now_or_never().is_none());
    drop(waits);
    // In one request, its own outcome is a failure that changed nothing.
    let entries = names
        .iter()
        .map(|name| RenewEntry::extend(id("a"), Claims::one(key(name), Mode::Exclusive), ttl));
    let url = format!("{}&timeout=2s", server.url());
    let hurried = PostgresStore::connect(&url).await.unwrap();
    let before = transactions(&server).await;
    let renewed = in_time(hurried.renew(&RenewRequest::new(entries.collect()))).await.unwrap();
    let used = transactions(&server).await - before;
    assert!(used < 20, "{used} transactions");
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
    user.batch_execute("COMMIT").await.unwrap();
    let renewed = store.renew(&renew("k42", "a", Mode::Exclusive, ttl)).await.unwrap();
    assert!(matches!(only(renewed.leases), RenewOutcome::Held(_)));
}

#[tokio::test]
async fn an_acquire_of_a_row_that_a_users_transaction_holds_is_busy() {
    let server = Server::start(&[]).await.unwrap();
    let url = format!("{}&timeout=1s", server.url());
    let store = PostgresStore::connect(&url).await.unwrap();
    store.prepare().await.unwrap();
    granted(store.acquire(&acquire("k", "a", Mode::Exclusive)).await);
    store.release(&release("k", "a")).await.unwrap();
    let user = server.connect().await.unwrap();
    user.batch_execute("BEGIN; SELECT * FROM leasehold.leases FOR UPDATE").await.unwrap();
    let why = refused(in_time(store.acquire(&acquire("k", "b", Mode::Exclusive))).await).why;
    assert!(matches!(why, leasehold_core::RefusalReason::Busy), "{why:?}");
    user.batch_execute("COMMIT").await.unwrap();
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
            "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not this one'; END $$;
             CREATE TRIGGER no BEFORE UPDATE ON leasehold.leases FOR EACH ROW WHEN (NEW.key = 'k3') EXECUTE FUNCTION no()",
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
async fn a_thousand_leases_are_renewed_and_released_in_few_transactions() {
    let server = Server::start(&["fsync=off"]).await.unwrap();
    let store = Arc::new(server.store().await);
    let names = names(1_000);
    let requests: Vec<_> =
        names.iter().map(|name| acquire_for(name, "a", Mode::Exclusive, 20 * LONG)).collect();
    join_all(requests.iter().map(|request| store.acquire(request)))
        .await
        .into_iter()
        .for_each(|reply| drop(granted(reply)));
    let before = transactions(&server).await;
    let entries = names.iter().map(|name| {
        RenewEntry::extend(
            id("a"),
            Claims::one(key(name), Mode::Exclusive),
            Ttl::new(LONG).unwrap(),
        )
    });
    let renewed = store.renew(&RenewRequest::new(entries.collect())).await.unwrap();
    assert!(renewed.leases.iter().all(|outcome| matches!(outcome, RenewOutcome::Held(_))));
    let ends = names.iter().map(|name| ReleaseEntry::new(id("a"), [key(name)])).collect();
    let released = store.release(&ReleaseRequest::new(ends)).await.unwrap();
    assert!(released.leases.iter().all(|outcome| matches!(outcome, ReleaseOutcome::Released)));
    let used = transactions(&server).await - before;
    assert!(used < 40, "{used} transactions");
}

/// Each pair of sets has a key in common. In every second round nobody has used the keys before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_crossing_sets_one_is_granted_at_most() {
    let server = Server::start(&["fsync=off"]).await.unwrap();
    let stores = [server.store().await, server.store().await, server.store().await];
    let mut granted = 0;
    for round in 0..300 {
        let names = ["a", "b", "c"].map(|name| key(&format!("{name}{}", round / 2)));
        let sets = [0, 1, 2].map(|n| [names[n].clone(), names[(n + 1) % 3].clone()]);
        let lease = |n: usize| id(&n.to_string());
        let tries = stores.iter().zip(&sets).enumerate().map(|(n, (store, keys))| {
            let exclusive = |key| Claim { key, mode: Mode::Exclusive };
            let claims = Claims::new(keys.clone().map(exclusive)).unwrap();
            let request = AcquireRequest::new(lease(n), claims, Ttl::new(LONG).unwrap());
            let store = store.clone();
            #[expect(clippy::disallowed_methods, reason = "clients run at the same time")]
            tokio::spawn(async move { store.acquire(&request).await.unwrap() })
        });
        let replies = join_all(tries).await.into_iter().map(|reply| reply.unwrap());
        let of_round = replies.filter(|reply| matches!(reply, AcquireReply::Granted(_))).count();
        assert!(of_round <= 1, "{of_round} in round {round}");
        granted += of_round;
        let all = sets.into_iter().enumerate().map(|(n, keys)| ReleaseEntry::new(lease(n), keys));
        stores[0].release(&ReleaseRequest::new(all.collect())).await.unwrap();
    }
    assert!(granted > 200, "{granted}");
    // Who loses loses without a word in the server's log.
    assert_eq!(server.logged_errors(), Vec::<String>::new());
}
