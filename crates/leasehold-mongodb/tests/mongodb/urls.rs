//! The ways to a server: TLS with a private authority, passwords of any characters, and names that DNS does not know.

use std::path::Path;
use std::time::Duration;

use leasehold_core::{Effect, Error, ErrorKind, Mode, Store as _};
use leasehold_mongodb::mongodb::bson::doc;
use leasehold_mongodb::{MongodbConfig, MongodbStore};
use leasehold_testkit::authority::Authority;
use leasehold_testkit::mongodb::{DATABASE, Server};
use leasehold_testkit::requests::{acquire, granted};

/// The URL of a server with a certificate, for clients that trust this authority and have this certificate.
fn url(server: &Server, authority: Option<&Authority>, client: Option<&Path>) -> String {
    let mut url = format!("mongodb://localhost:{}/{DATABASE}?tls=true&timeout=2s", server.port());
    if let Some(authority) = authority {
        url += &format!("&tlsCAFile={}", authority.file("ca.pem").display());
    }
    if let Some(client) = client {
        url += &format!("&tlsCertificateKeyFile={}", client.display());
    }
    url
}

async fn locks(url: &str) {
    let store = MongodbStore::connect(url).await.unwrap();
    store.prepare().await.unwrap();
    granted(store.acquire(&acquire("k", "a", Mode::Exclusive)).await);
}

/// The failure to connect, which is of this kind and shows none of the words.
async fn refused(url: &str, kind: ErrorKind, hidden: &[&str]) -> Error {
    let error = MongodbStore::connect(url).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (kind, Effect::NotApplied), "{error}");
    let mut shown = format!("{error} {error:?} {:?}", MongodbConfig::parse(url).unwrap());
    let mut source = error.cause();
    while let Some(cause) = source {
        shown += &format!(" {cause} {cause:?}");
        source = cause.source();
    }
    for word in hidden {
        assert!(!shown.contains(word), "{word:?} is in {shown}");
    }
    error
}

#[tokio::test]
async fn tls_with_a_private_authority() {
    let (ours, other) = (Authority::private(), Authority::private());
    ours.sign("server");
    let any = ["--tlsAllowConnectionsWithoutCertificates"];
    let server = Server::start_with_certificate(&ours, "server", &any).await.unwrap();
    locks(&url(&server, Some(&ours), None)).await;
    for wrong in [None, Some(&other)] {
        let error = refused(&url(&server, wrong, None), ErrorKind::Denied, &[]).await;
        assert!(error.to_string().contains("is not trusted; the option tlsCAFile"), "{error}");
    }
    let missing = format!("mongodb://localhost/{DATABASE}?tls=true&tlsCAFile=/nowhere/ca.pem");
    let error = refused(&missing, ErrorKind::InvalidInput, &[]).await;
    assert!(error.to_string().contains("/nowhere/ca.pem"), "{error}");
}

#[tokio::test]
async fn tls_with_certificates_of_clients() {
    let (ours, other) = (Authority::private(), Authority::private());
    for (authority, name) in [(&ours, "server"), (&ours, "client"), (&other, "stranger")] {
        authority.sign(name);
    }
    let server = Server::start_with_certificate(&ours, "server", &[]).await.unwrap();
    locks(&url(&server, Some(&ours), Some(&ours.both("client")))).await;
    for wrong in [None, Some(other.both("stranger"))] {
        // The server closes the connection and gives no reason.
        let url = url(&server, Some(&ours), wrong.as_deref());
        let error = refused(&url, ErrorKind::Unavailable, &[]).await;
        assert!(error.to_string().contains("TLS"), "{error}");
    }
}

#[tokio::test]
async fn a_password_of_any_characters() {
    let server = Server::start_secured(&[]).await.unwrap();
    let roles = vec![doc! { "role": "readWrite", "db": DATABASE }];
    let user = doc! { "createUser": "locker", "pwd": "p@ss:w/rd%", "roles": roles };
    server.command("admin", user).await.unwrap();
    locks(&server.url_of("locker", "p%40ss%3Aw%2Frd%25")).await;
    for wrong in ["hunter2%40", "hunter2%25p%40ss%3Aw%2Frd"] {
        let url = server.url_of("locker", wrong);
        let error = refused(&url, ErrorKind::Denied, &["hunter2", "%40", "p@ss"]).await;
        assert!(error.to_string().contains("refuses the login"), "{error}");
    }
}

/// No name of this kind exists, and whether any server of DNS answers is no matter.
#[tokio::test(start_paused = true)]
async fn servers_that_dns_does_not_name() {
    let url = "mongodb+srv://locker:hunter2@cluster.test/app?timeout=1s";
    let refused = refused(url, ErrorKind::Unavailable, &["hunter2"]);
    let error = tokio::time::timeout(Duration::from_millis(1_100), refused).await;
    let error = error.expect("it ends within its time limit").to_string();
    assert!(error.contains("mongodb+srv://cluster.test/app") && error.contains("DNS"), "{error}");
}
