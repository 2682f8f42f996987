//! Mistakes of operators and callers, and their errors.

use futures_util::future::join_all;
use leasehold_core::{Effect, ErrorKind, EvictRequest, Filter, Key, ListRequest, Mode, Store, Ttl};

use super::SqlTestServer;
use crate::authority::Authority;
use crate::requests::{
    acquire, failed, granted, is_unreadable, purge_leaves, refused, release, renew,
};

#[macro_export]
macro_rules! sql_bad_input {
    ($server:ty) => {
        $crate::sql_tests!($server, bad_input, [
            without_the_schema_every_operation_names_the_command_that_creates_it,
            a_crowd_prepares_one_schema,
            older_and_newer_schemas_are_named,
            a_row_that_was_damaged_by_hand_is_never_granted,
            certificates_are_verified,
        ], on two threads []);
    };
}

pub async fn without_the_schema_every_operation_names_the_command_that_creates_it<
    S: SqlTestServer,
>() {
    let server = S::start(&[]).await.unwrap();
    let store = S::open(&server.url("")).await.unwrap();
    let fragment = "run `leasehold init`";
    let (kind, effect) = (ErrorKind::Incompatible, Effect::NotApplied);
    failed(store.check().await, kind, effect, fragment);
    failed(store.acquire(&acquire("k", "a", Mode::Exclusive)).await, kind, effect, fragment);
    failed(store.acquire(&acquire("k", "a", Mode::SHARED)).await, kind, effect, fragment);
    let renewal = renew("k", "a", Mode::Exclusive, Ttl::NEVER);
    failed(store.renew(&renewal).await, kind, effect, fragment);
    failed(store.release(&release("k", "a")).await, kind, effect, fragment);
    failed(store.list(&ListRequest::new(Filter::default())).await, kind, effect, fragment);
    failed(store.evict(&EvictRequest::expired(Filter::default())).await, kind, effect, fragment);
    store.prepare().await.unwrap();
    granted(store.acquire(&acquire("k", "a", Mode::Exclusive)).await);
}

pub async fn a_crowd_prepares_one_schema<S: SqlTestServer>() {
    let server = S::start(&[]).await.unwrap();
    // On a busy machine ten connections take longer than the usual limit.
    let url = server.url("timeout=30s");
    let prepares = (0..10).map(|_| async {
        let store = S::open(&url).await.unwrap();
        store.prepare().await
    });
    for prepared in join_all(prepares).await {
        prepared.unwrap();
    }
    let store = server.store().await;
    granted(store.acquire(&acquire("k", "a", Mode::Exclusive)).await);
    store.prepare().await.unwrap();
    refused(store.acquire(&acquire("k", "b", Mode::Exclusive)).await);
}

pub async fn older_and_newer_schemas_are_named<S: SqlTestServer>() {
    let (server, store) = S::with_store(&[]).await;
    for (version, fragment) in [(2, "update this program"), (0, "run `leasehold init`")] {
        server.ask(&format!("UPDATE {} SET version = {version}", S::VERSION)).await;
        failed(store.check().await, ErrorKind::Incompatible, Effect::NotApplied, fragment);
        failed(store.prepare().await, ErrorKind::Incompatible, Effect::NotApplied, fragment);
    }
}

/// The printed statements of the `schema`, and the privileges of the manual's `page`, suffice for a new user; without
/// these, errors name the page. Returns the server and the user's URL.
pub async fn the_least_privileges_suffice<S: SqlTestServer>(
    schema: &str,
    user: &str,
    grants: &str,
    page: &str,
) -> (S, String) {
    let server = S::start(&[]).await.unwrap();
    // Whole, as a migration tool sends them; and again, as a migration that was interrupted.
    server.ask(schema).await;
    server.ask(schema).await;
    server.ask(user).await;
    let url = server.url("").replace(&format!("{}@", S::ADMINISTRATOR), "app@");
    let store = S::open(&url).await.unwrap();
    let (kind, effect) = (ErrorKind::Denied, Effect::NotApplied);
    failed(store.acquire(&acquire("k", "a", Mode::Exclusive)).await, kind, effect, page);
    failed(store.check().await, kind, effect, page);
    assert!(!grants.is_empty());
    server.ask(grants).await;
    store.check().await.unwrap();
    store.prepare().await.unwrap();
    granted(store.acquire(&acquire("k", "a", Mode::Exclusive)).await);
    granted(store.acquire(&acquire("s", "a", Mode::SHARED)).await);
    drop(store.subscribe(&[Key::new("k").unwrap()]).await.unwrap());
    store.release(&release("k", "a")).await.unwrap();
    store.evict(&EvictRequest::expired(Filter::default())).await.unwrap();
    store.list(&ListRequest::new(Filter::default())).await.unwrap();
    (server, url)
}

pub async fn a_row_that_was_damaged_by_hand_is_never_granted<S: SqlTestServer>() {
    let (server, store) = S::with_store(&[]).await;
    let (kind, effect) = (ErrorKind::Corrupt, Effect::NotApplied);
    let counts = "counter = 9007199254740991";
    for damage in S::DAMAGES.iter().copied().chain([counts]) {
        server.ask(&format!("TRUNCATE {}", S::LEASES)).await;
        granted(store.acquire(&acquire("k", "a", Mode::Exclusive)).await);
        granted(store.acquire(&acquire("well", "a", Mode::Exclusive)).await);
        server.ask(&format!("UPDATE {} SET {damage} WHERE {} = 'k'", S::LEASES, S::KEY)).await;
        for mode in [Mode::Exclusive, Mode::SHARED] {
            match store.acquire(&acquire("k", "b", mode)).await {
                Err(error) => assert_eq!(error.kind(), kind, "{damage}: {error}"),
                Ok(reply) => assert_eq!(damage, counts, "{:?}", refused(Ok(reply))),
            }
        }
        let listed = store.list(&ListRequest::new(Filter::default())).await.unwrap();
        assert!(listed.records.iter().any(|record| record.key.as_str() == "well"), "{damage}");
        if damage == counts {
            store.release(&release("k", "a")).await.unwrap();
            let acquired = store.acquire(&acquire("k", "b", Mode::Exclusive)).await;
            failed(acquired, kind, effect, "maximum");
        } else {
            is_unreadable(&store, "k").await;
            let ended = "expires = CASE WHEN expires > 1000000 THEN 1000000 END";
            server.ask(&format!("UPDATE {} SET {ended}", S::LEASES)).await;
            purge_leaves(&store, &["k"]).await;
        }
    }
}

pub async fn certificates_are_verified<S: SqlTestServer>() {
    let [require, verify, file] = S::TLS;
    let denied = |opened: leasehold_core::Result<S::Store>, fragment: &str| {
        failed(opened, ErrorKind::Denied, Effect::NotApplied, fragment)
    };
    let authority = Authority::private();
    authority.sign("server");
    authority.sign_expired("expired");
    let trusting = format!("{verify}&{file}={}", authority.file("ca.pem").display());
    for (name, is_good) in [("server", true), ("expired", false)] {
        let server = S::start_with_certificate(&authority, name).await.unwrap();
        let open = async |host: &str, options: &str| {
            S::open(&S::url_at(host, server.port(), options)).await
        };
        let trusted = open("localhost", &trusting).await;
        if is_good {
            trusted.unwrap().prepare().await.unwrap();
        } else {
            let error = denied(trusted, "certificates");
            assert!(error.to_string().to_lowercase().contains("expired"), "{error}");
        }
        // An unknown authority, and a host that the certificate does not name.
        denied(open("localhost", verify).await, file);
        denied(open("127.0.0.1", &trusting).await, "certificates");
    }
    let plain = S::start(&[]).await.unwrap();
    denied(S::open(&S::url_at("127.0.0.1", plain.port(), require)).await, "does not use TLS");
}
