//! Stores on servers that use TLS.

use leasehold_core::{Mode, Store};
use leasehold_postgres::PostgresStore;
use leasehold_redis::RedisStore;
use leasehold_testkit::authority::Authority;
use leasehold_testkit::postgres;
use leasehold_testkit::requests::{acquire, granted};
use leasehold_testkit::sql::SqlTestServer as _;

/// The server asks for a certificate.
pub async fn redis_grants_a_lock() {
    let ours = Authority::private();
    ours.sign("server");
    ours.sign("client");
    let (_server, port) = ours.server().await;
    let [ca, cert, key] = ["ca.pem", "client.pem", "client.key"].map(|name| ours.file(name));
    let url = format!(
        "rediss://localhost:{port}/?ca={}&cert={}&key={}",
        ca.display(),
        cert.display(),
        key.display()
    );
    grants_a_lock(RedisStore::connect(&url).await.unwrap()).await;
}

pub async fn postgres_grants_a_lock() {
    let ours = Authority::private();
    ours.sign("server");
    let server = postgres::Server::start_with_certificate(&ours, "server").await.unwrap();
    let url = format!(
        "postgres://postgres@localhost:{}/postgres?sslmode=verify-full&sslrootcert={}",
        server.port(),
        ours.file("ca.pem").display()
    );
    grants_a_lock(PostgresStore::connect(&url).await.unwrap()).await;
}

async fn grants_a_lock(store: impl Store) {
    store.prepare().await.unwrap();
    granted(store.acquire(&acquire("k", "a", Mode::Exclusive)).await);
}
