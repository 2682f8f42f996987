//! Requests that are sent in batches.

use futures_util::FutureExt as _;
use futures_util::future::{join, join_all};
use leasehold_core::{
    AcquireReply, AcquireRequest, Claim, Claims, Effect, ErrorKind, Filter, ListRequest, Mode,
    Note, RefusalReason, ReleaseEntry, ReleaseOutcome, ReleaseRequest, RenewEntry, RenewOutcome,
    RenewRequest, Store, Ttl,
};

use super::{SqlTestServer, commit, names, warm};
use crate::requests::{
    acquire, failed, granted, id, is_renewed, key, only, refused, release, released, renew,
};
use crate::{LONG, in_time};

#[macro_export]
macro_rules! sql_together {
    ($server:ty) => {
        $crate::sql_tests!($server, together, [
            many_callers_share_calls,
            each_member_has_its_own_outcome,
            acquires_and_releases_that_share_a_batch_have_their_own_outcomes,
            each_lease_is_listed_with_its_own_note,
            a_row_that_a_users_transaction_holds_delays_no_other_lease,
            an_acquire_of_a_row_that_a_users_transaction_holds_is_busy,
            a_failing_member_fails_alone,
        ], on two threads [
            of_crossing_sets_one_is_granted_at_most,
        ]);
    };
}

fn ttl() -> Ttl {
    Ttl::new(LONG).unwrap()
}

pub async fn many_callers_share_calls<S: SqlTestServer>() {
    let (server, store) = S::with_store(&[]).await;
    let names = names(64);
    for name in &names {
        granted(store.acquire(&acquire(name, "first", Mode::Exclusive)).await);
    }
    let before = server.calls().await;
    let ends: Vec<_> = names.iter().map(|name| release(name, "first")).collect();
    for outcome in join_all(ends.iter().map(|end| released(&store, end))).await {
        assert!(matches!(outcome, Ok(ReleaseOutcome::Released)), "{outcome:?}");
    }
    let requests: Vec<_> =
        names.iter().map(|name| acquire(name, "second", Mode::Exclusive)).collect();
    for reply in join_all(requests.iter().map(|request| store.acquire(request))).await {
        assert!(granted(reply).token.is_some());
    }
    // 128 requests.
    let used = server.calls().await - before;
    assert!(used < 20, "{used} calls");
}

/// On connections of the store's own and on those of a caller's pool, which may need other statements.
pub async fn each_member_has_its_own_outcome<S: SqlTestServer>() {
    let server = S::start(&[]).await.unwrap();
    has_its_own_outcome(&server.store().await).await;
    server.ask(&format!("DELETE FROM {}", S::LEASES)).await;
    has_its_own_outcome(&server.open_on(server.pool(4)).await).await;
}

async fn has_its_own_outcome(store: &impl Store) {
    warm(store, &["held", "free", "expired", "shared"].map(str::to_owned)).await;
    granted(store.acquire(&acquire("held", "a", Mode::Exclusive)).await);
    granted(store.acquire(&acquire("mine", "b", Mode::Exclusive)).await);
    granted(store.acquire(&acquire("shared", "c", Mode::SHARED)).await);
    let asks = ["first", "held", "free", "new", "mine", "shared", "expired"];
    let others = ["held", "shared"];
    let requests = asks.map(|name| acquire(name, "b", Mode::Exclusive));
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
        assert_eq!(is_granted, !others.contains(name), "{name}");
    }
    let renewals = asks.map(|name| renew(name, "b", Mode::Exclusive, ttl()));
    let replies = join_all(renewals.iter().map(|request| store.renew(request))).await;
    for (name, reply) in asks.iter().zip(replies) {
        let is_held = matches!(only(reply.unwrap().leases), RenewOutcome::Held(_));
        assert_eq!(is_held, !others.contains(name), "{name}");
    }
    let ends = asks.map(|name| release(name, "b"));
    let replies = join_all(ends.iter().map(|request| store.release(request))).await;
    for (name, reply) in asks.iter().zip(replies) {
        let outcome = only(reply.unwrap().leases);
        let is_released = matches!(outcome, ReleaseOutcome::Released);
        assert_eq!(is_released, !others.contains(name), "{name}: {outcome:?}");
    }
    refused(store.acquire(&acquire("held", "b", Mode::Exclusive)).await);
}

/// As on a slow disk: with one connection for batches they share one.
pub async fn acquires_and_releases_that_share_a_batch_have_their_own_outcomes<S: SqlTestServer>() {
    let (server, _) = S::with_store(&[]).await;
    let store = server.prepared("connections=2").await;
    let names = names(20);
    let (held, free) = names.split_at(10);
    for name in held {
        granted(store.acquire(&acquire(name, "a", Mode::Exclusive)).await);
    }
    for (before, after, ends, asks) in [("a", "b", held, free), ("b", "a", free, held)] {
        let ends: Vec<_> = ends.iter().map(|name| release(name, before)).collect();
        let asks: Vec<_> = asks.iter().map(|name| acquire(name, after, Mode::Exclusive)).collect();
        let ended = join_all(ends.iter().map(|end| released(&store, end)));
        let asked = join_all(asks.iter().map(|ask| store.acquire(ask)));
        let (ended, asked) = join(ended, asked).await;
        for outcome in ended {
            assert!(matches!(outcome, Ok(ReleaseOutcome::Released)), "{outcome:?}");
        }
        let taken: Vec<_> =
            asked.into_iter().map(|reply| (Some(id(after)), granted(reply).token)).collect();
        let listed = store.list(&ListRequest::new(Filter::default())).await.unwrap().records;
        let listed: Vec<_> = listed.into_iter().map(|record| (record.id, record.token)).collect();
        assert_eq!(listed, taken);
    }
}

pub async fn each_lease_is_listed_with_its_own_note<S: SqlTestServer>() {
    let (_server, store) = S::with_store(&[]).await;
    let names = names(9);
    warm(&store, &names).await;
    let request = |(n, name): (usize, &String)| {
        let note = Note::default().with_host(&format!("host-{}", n % 3)).unwrap();
        let note = note.with_comment(&format!("comment {n}")).unwrap();
        acquire(name, "a", Mode::Exclusive).with_note(note)
    };
    let requests: Vec<_> = names.iter().enumerate().map(request).collect();
    let acquired = join_all(requests.iter().map(|request| store.acquire(request))).await;
    acquired.into_iter().for_each(|reply| drop(granted(reply)));
    let listed = store.list(&ListRequest::new(Filter::default())).await.unwrap();
    assert_eq!(listed.records.len(), 9);
    for (record, request) in listed.records.iter().zip(&requests) {
        assert_eq!(record.note, *request.note());
    }
}

pub async fn a_row_that_a_users_transaction_holds_delays_no_other_lease<S: SqlTestServer>() {
    let (server, store) = S::with_store(&[]).await;
    let names = names(100);
    for name in &names {
        granted(store.acquire(&acquire(name, "a", Mode::Exclusive)).await);
    }
    let mut user = server.hold(&format!("{} = 'k42'", S::KEY)).await;
    // Each in a request of its own: the others do not wait for the one whose row is held.
    let requests: Vec<_> =
        names.iter().map(|name| renew(name, "a", Mode::Exclusive, ttl())).collect();
    let mut renewals: Vec<_> =
        requests.iter().map(|request| store.renew(request).boxed()).collect();
    for renewal in &mut renewals {
        assert!(renewal.now_or_never().is_none());
    }
    let mut waits = renewals.remove(42);
    let others = tokio::time::timeout(LONG / 3, join_all(renewals)).await;
    for renewed in others.expect("the others do not wait") {
        assert!(matches!(only(renewed.unwrap().leases), RenewOutcome::Held(_)));
    }
    assert!((&mut waits).now_or_never().is_none());
    drop(waits);
    // In one request, its own outcome is a failure that changed nothing.
    let entries = names
        .iter()
        .map(|name| RenewEntry::extend(id("a"), Claims::one(key(name), Mode::Exclusive), ttl()));
    let hurried = server.prepared("timeout=4s").await;
    let before = server.calls().await;
    let reply = in_time(hurried.renew(&RenewRequest::new(entries.collect()))).await.unwrap();
    let used = server.calls().await - before;
    assert!(used < S::CALLS_WHILE_HELD, "{used} calls");
    for (name, outcome) in names.iter().zip(&reply.leases) {
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
    commit::<S>(&mut user).await;
    is_renewed(&store, "k42", "a", Mode::Exclusive).await;
}

pub async fn an_acquire_of_a_row_that_a_users_transaction_holds_is_busy<S: SqlTestServer>() {
    let (server, _) = S::with_store(&[]).await;
    let store = server.prepared("timeout=4s").await;
    granted(store.acquire(&acquire("k", "a", Mode::Exclusive)).await);
    server.ask(&format!("UPDATE {} SET expires = 1", S::LEASES)).await;
    let mut user = server.hold("slot >= 0").await;
    let why = refused(in_time(store.acquire(&acquire("k", "b", Mode::Exclusive))).await).why;
    assert!(matches!(why, RefusalReason::Busy), "{why:?}");
    commit::<S>(&mut user).await;
    granted(store.acquire(&acquire("k", "b", Mode::Exclusive)).await);
}

/// A trigger stands for whatever makes the server refuse one row.
pub async fn a_failing_member_fails_alone<S: SqlTestServer>() {
    let (server, store) = S::with_store(&[]).await;
    let names = names(10);
    warm(&store, &names).await;
    server.ask(S::REFUSE_K3).await;
    let requests: Vec<_> = names.iter().map(|name| acquire(name, "a", Mode::Exclusive)).collect();
    let replies = join_all(requests.iter().map(|request| store.acquire(request))).await;
    for (name, reply) in names.iter().zip(replies) {
        match reply {
            Err(error) if name == "k3" => {
                assert!(error.to_string().contains("not this one"), "{error}");
            }
            reply => {
                granted(reply);
                assert_ne!(name, "k3");
            }
        }
    }
}

/// Each pair of sets has a key in common. In every second round nobody has used the keys before, in the others leases of them are
/// over.
pub async fn of_crossing_sets_one_is_granted_at_most<S: SqlTestServer>() {
    let server = S::start(S::UNSYNCED).await.unwrap();
    let stores = [server.store().await, server.store().await, server.store().await];
    let mut grants = 0;
    for round in 0..300 {
        let names = ["a", "b", "c"].map(|name| key(&format!("{name}{}", round / 2)));
        if round % 2 == 1 {
            for name in &names {
                granted(stores[0].acquire(&acquire(name.as_str(), "over", Mode::Exclusive)).await);
            }
            server.ask(&format!("UPDATE {} SET expires = 1", S::LEASES)).await;
        }
        let sets = [0, 1, 2].map(|n| [names[n].clone(), names[(n + 1) % 3].clone()]);
        let lease = |n: usize| id(&n.to_string());
        let tries = stores.iter().zip(&sets).enumerate().map(|(n, (store, keys))| {
            let exclusive = |key| Claim { key, mode: Mode::Exclusive };
            let claims = Claims::new(keys.clone().map(exclusive)).unwrap();
            let request = AcquireRequest::new(lease(n), claims, ttl());
            let store = store.clone();
            #[expect(clippy::disallowed_methods, reason = "clients run at the same time")]
            tokio::spawn(async move { store.acquire(&request).await.unwrap() })
        });
        let replies = join_all(tries).await.into_iter().map(|reply| reply.unwrap());
        let of_round = replies.filter(|reply| matches!(reply, AcquireReply::Granted(_))).count();
        assert!(of_round <= 1, "{of_round} in round {round}");
        grants += of_round;
        let all = sets.into_iter().enumerate().map(|(n, keys)| ReleaseEntry::new(lease(n), keys));
        stores[0].release(&ReleaseRequest::new(all.collect())).await.unwrap();
    }
    assert!(grants > 200, "{grants}");
    // A try that loses leaves no error in the server's log.
    assert_eq!(server.logged_errors(), Vec::<String>::new());
}

/// Releases in one batch, after `breaks` has replaced its routine by one that acts, but whose rows name no member, or all the
/// first.
pub async fn rows_that_name_no_member_are_unexpected(
    server: &impl SqlTestServer,
    store: &impl Store,
    breaks: &[&str],
) {
    let names = names(3);
    for name in &names {
        granted(store.acquire(&acquire(name, "a", Mode::Exclusive)).await);
    }
    for statement in breaks {
        server.ask(statement).await;
    }
    let ends: Vec<_> = names.iter().map(|name| release(name, "a")).collect();
    let replies = join_all(ends.iter().map(|end| released(store, end))).await;
    for (nth, reply) in replies.into_iter().enumerate() {
        if nth == 0 && matches!(reply, Ok(ReleaseOutcome::Released)) {
            continue;
        }
        // Sent again, it would not be held any more.
        failed(reply, ErrorKind::Unexpected, Effect::Unknown, "of another version");
    }
}
