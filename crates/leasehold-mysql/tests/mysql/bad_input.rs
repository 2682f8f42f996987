//! Mistakes of operators and callers, and what they are told.

use leasehold_core::{Effect, ErrorKind, EvictRequest, Filter, Key, ListRequest, Mode, Store as _};
use leasehold_mysql::MysqlStore;
use leasehold_testkit::authority::Authority;
use leasehold_testkit::mysql::Server;
use leasehold_testkit::page::privileges_of;
use leasehold_testkit::requests::{
    acquire, failed, granted, is_unreadable, purge_leaves, refused, release, renew,
};

#[tokio::test]
async fn without_the_schema_every_operation_names_the_command_that_creates_it() {
    let server = Server::start(&[]).await.unwrap();
    let store = MysqlStore::connect(&server.url()).await.unwrap();
    let says = "run `leasehold init`";
    let (kind, effect) = (ErrorKind::Incompatible, Effect::NotApplied);
    failed(store.check().await, kind, effect, says);
    failed(store.acquire(&acquire("k", "a", Mode::Exclusive)).await, kind, effect, says);
    failed(store.acquire(&acquire("k", "a", Mode::SHARED)).await, kind, effect, says);
    let ttl = leasehold_core::Ttl::NEVER;
    failed(store.renew(&renew("k", "a", Mode::Exclusive, ttl)).await, kind, effect, says);
    failed(store.release(&release("k", "a")).await, kind, effect, says);
    failed(store.list(&ListRequest::new(Filter::default())).await, kind, effect, says);
    failed(store.evict(&EvictRequest::expired(Filter::default())).await, kind, effect, says);
    store.prepare().await.unwrap();
    granted(store.acquire(&acquire("k", "a", Mode::Exclusive)).await);
}

#[tokio::test]
async fn a_crowd_prepares_one_schema() {
    let server = Server::start(&[]).await.unwrap();
    let prepares = (0..10).map(|_| async {
        let store = MysqlStore::connect(&server.url()).await.unwrap();
        store.prepare().await
    });
    for prepared in futures_util::future::join_all(prepares).await {
        prepared.unwrap();
    }
    let store = server.store().await;
    granted(store.acquire(&acquire("k", "a", Mode::Exclusive)).await);
    store.prepare().await.unwrap();
    refused(store.acquire(&acquire("k", "b", Mode::Exclusive)).await);
}

#[tokio::test]
async fn older_and_newer_schemas_are_named() {
    let server = Server::start(&[]).await.unwrap();
    let store = server.store().await;
    for (version, says) in [(2, "update this program"), (0, "run `leasehold init`")] {
        server.run(&format!("UPDATE leasehold.leasehold_version SET version = {version}")).await;
        failed(store.check().await, ErrorKind::Incompatible, Effect::NotApplied, says);
        failed(store.prepare().await, ErrorKind::Incompatible, Effect::NotApplied, says);
    }
}

/// The statements of the store's manual that give a user its least privileges.
fn grants() -> Vec<String> {
    let page = include_str!("../../MANUAL.md");
    let all = privileges_of(page).into_iter();
    all.filter(|statement| statement.ends_with(" TO app")).map(str::to_owned).collect()
}

#[tokio::test]
async fn the_least_privileges_suffice_and_without_them_the_error_names_the_page() {
    let server = Server::start(&[]).await.unwrap();
    server.store().await;
    server.run("CREATE USER app").await;
    let url = server.url().replace("root@", "app@");
    let store = MysqlStore::connect(&url).await.unwrap();
    let (kind, effect) = (ErrorKind::Denied, Effect::NotApplied);
    failed(
        store.acquire(&acquire("k", "a", Mode::Exclusive)).await,
        kind,
        effect,
        "docs.rs/leasehold-mysql",
    );
    failed(store.check().await, kind, effect, "docs.rs/leasehold-mysql");
    for grant in grants() {
        server.run(&grant).await;
    }
    store.check().await.unwrap();
    granted(store.acquire(&acquire("k", "a", Mode::Exclusive)).await);
    granted(store.acquire(&acquire("s", "a", Mode::SHARED)).await);
    store.release(&release("k", "a")).await.unwrap();
    store.evict(&EvictRequest::expired(Filter::default())).await.unwrap();
    store.list(&ListRequest::new(Filter::default())).await.unwrap();
    server.run("REVOKE UPDATE ON leasehold.* FROM app").await;
    let store = MysqlStore::connect(&url).await.unwrap();
    failed(
        store.acquire(&acquire("k", "a", Mode::Exclusive)).await,
        kind,
        effect,
        "docs.rs/leasehold-mysql",
    );
}

#[tokio::test]
async fn every_key_is_its_own() {
    let server = Server::start(&[]).await.unwrap();
    let store = server.store().await;
    let (wide, longest) = ("\u{1F511}".repeat(255), "x".repeat(Key::MAX_BYTES));
    let names = [
        "job",
        "JOB",
        "job ",
        " job",
        "jób",
        "jo\u{301}b",
        "%",
        "_",
        "'",
        "\\",
        "\"",
        &wide,
        &longest,
    ];
    for name in names {
        granted(store.acquire(&acquire(name, "a", Mode::Exclusive)).await);
    }
    let listed = store.list(&ListRequest::new(Filter::default())).await.unwrap();
    assert_eq!(listed.records.len(), names.len());
    for name in names {
        refused(store.acquire(&acquire(name, "b", Mode::Exclusive)).await);
    }
}

#[tokio::test]
async fn a_row_that_was_damaged_by_hand_is_never_granted() {
    let server = Server::start(&[]).await.unwrap();
    let store = server.store().await;
    for damage in [
        "state = 'x'",
        "id = NULL",
        "shared = NULL",
        "token = NULL",
        "host = UNHEX('ff')",
        "counter = 9007199254740991",
    ] {
        server.run("TRUNCATE leasehold.leasehold_leases").await;
        granted(store.acquire(&acquire("k", "a", Mode::Exclusive)).await);
        granted(store.acquire(&acquire("well", "a", Mode::Exclusive)).await);
        server
            .run(&format!("UPDATE leasehold.leasehold_leases SET {damage} WHERE `key` = 'k'"))
            .await;
        for mode in [Mode::Exclusive, Mode::SHARED] {
            match store.acquire(&acquire("k", "b", mode)).await {
                Err(error) => assert_eq!(error.kind(), ErrorKind::Corrupt, "{damage}: {error}"),
                Ok(reply) => {
                    assert!(damage.starts_with("counter"), "{damage}: {:?}", refused(Ok(reply)))
                }
            }
        }
        let listed = store.list(&ListRequest::new(Filter::default())).await.unwrap();
        assert!(listed.records.iter().any(|record| record.key.as_str() == "well"), "{damage}");
        if !damage.starts_with("counter") {
            is_unreadable(&store, "k").await;
            let ended = "expires = CASE WHEN expires > 1000000 THEN 1000000 END";
            server.run(&format!("UPDATE leasehold.leasehold_leases SET {ended}")).await;
            purge_leaves(&store, &["k"]).await;
        }
        if damage.starts_with("counter") {
            store.release(&release("k", "a")).await.unwrap();
            let (kind, effect) = (ErrorKind::Corrupt, Effect::NotApplied);
            failed(
                store.acquire(&acquire("k", "b", Mode::Exclusive)).await,
                kind,
                effect,
                "maximum",
            );
        }
    }
}

#[tokio::test]
async fn certificates_are_verified() {
    let authority = Authority::private();
    authority.sign("server");
    authority.sign_expired("expired");
    for (name, is_good) in [("server", true), ("expired", false)] {
        let server = Server::start_with_certificate(&authority, name).await.unwrap();
        let ca = authority.file("ca.pem");
        let url = |host: &str, options: &str| {
            format!(
                "mysql://root@{host}:{}/leasehold?ssl-mode=verify_identity{options}",
                server.port()
            )
        };
        let trusted =
            MysqlStore::connect(&url("localhost", &format!("&ssl-ca={}", ca.display()))).await;
        if is_good {
            trusted.unwrap().prepare().await.unwrap();
        } else {
            let error = failed(trusted, ErrorKind::Denied, Effect::NotApplied, "certificates");
            assert!(error.to_string().to_lowercase().contains("expired"), "{error}");
        }
        // An unknown authority, and a host that the certificate does not name.
        let unknown = MysqlStore::connect(&url("localhost", "")).await;
        failed(unknown, ErrorKind::Denied, Effect::NotApplied, "ssl-ca");
        let other =
            MysqlStore::connect(&url("127.0.0.1", &format!("&ssl-ca={}", ca.display()))).await;
        failed(other, ErrorKind::Denied, Effect::NotApplied, "certificates");
    }
    let plain = Server::start(&[]).await.unwrap();
    let url = format!("{}?ssl-mode=required", plain.url());
    failed(
        MysqlStore::connect(&url).await,
        ErrorKind::Denied,
        Effect::NotApplied,
        "does not use TLS",
    );
}
