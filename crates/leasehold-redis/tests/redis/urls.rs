//! The ways to a server: TLS with a private authority, a Unix socket, and a name for its connections.

use std::path::Path;

use leasehold_core::{Effect, ErrorKind, Mode, Store as _};
use leasehold_redis::RedisStore;
use leasehold_testkit::authority::Authority;
use leasehold_testkit::redis::Server;
use leasehold_testkit::requests::{acquire, failed, granted, key, release};

#[tokio::test]
async fn tls_with_a_private_authority_and_a_client_certificate() {
    let (ours, other) = (Authority::private(), Authority::private());
    for (authority, name) in [(&ours, "server"), (&ours, "client"), (&other, "stranger")] {
        authority.sign(name);
    }
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let (server, port) = ours.server().await;
    let url = |authority: Option<&Authority>, client: Option<(&Authority, &str)>| {
        let mut options = Vec::new();
        if let Some(authority) = authority {
            options.push(format!("ca={}", text(&authority.file("ca.pem"))));
        }
        if let Some((authority, name)) = client {
            options.push(format!("cert={}", text(&authority.file(&format!("{name}.pem")))));
            options.push(format!("key={}", text(&authority.file(&format!("{name}.key")))));
        }
        format!("rediss://localhost:{port}/?{}", options.join("&"))
    };

    let store = RedisStore::connect(&url(Some(&ours), Some((&ours, "client")))).await.unwrap();
    let mut wakeups = store.subscribe(&[key("k")]).await.unwrap();
    granted(store.acquire(&acquire("k", "a", Mode::Exclusive)).await);
    store.release(&release("k", "a")).await.unwrap();
    assert_eq!(wakeups.next().await, key("k"));

    for wrong in [
        url(None, Some((&ours, "client"))),
        url(Some(&other), Some((&ours, "client"))),
        url(Some(&ours), None),
        url(Some(&ours), Some((&other, "stranger"))),
    ] {
        let error = RedisStore::connect(&wrong).await.unwrap_err();
        let kind = error.kind();
        // A server that refuses a client may close before it has sent the reason.
        assert!(matches!(kind, ErrorKind::Denied | ErrorKind::Unavailable), "{error:?}");
        assert_eq!(error.effect(), leasehold_core::Effect::NotApplied);
    }
    let error = RedisStore::connect(&url(None, None)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
    assert!(error.to_string().contains("certificate"), "{error}");
    drop(server);
}

#[tokio::test]
async fn a_unix_socket() {
    let server = Server::start(&[]).await.unwrap();
    server.ask(&["CONFIG", "SET", "requirepass", "hunter2"]).await.unwrap();
    let socket = server.directory().join("redis.sock");
    let url = format!("redis+unix://{}?pass=hunter2&prefix=app:", socket.display());
    let store = RedisStore::connect(&url).await.unwrap();
    granted(store.acquire(&acquire("k", "a", Mode::Exclusive)).await);
    let error = RedisStore::connect("redis+unix:///nowhere/redis.sock").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("/nowhere/redis.sock"), "{error}");
}

#[tokio::test]
async fn connections_have_the_name_that_was_given() {
    let server = Server::start(&[]).await.unwrap();
    let url = format!("{}?client_name=billing-1", server.url());
    let store = RedisStore::connect(&url).await.unwrap();
    granted(store.acquire(&acquire("k", "a", Mode::Exclusive)).await);
    assert!(server.has_client("name=billing-1").await);
    server.add_locker("").await;
    let url = url.replace("//", "//locker:PASSWORD@");
    failed(RedisStore::connect(&url).await, ErrorKind::Denied, Effect::NotApplied, "setname");
}
