//! The program has chosen none of its two providers.

#[path = "../../../crates/leasehold-redis/tests/authority/mod.rs"]
mod authority;
#[path = "../../../crates/leasehold-redis/tests/requests/mod.rs"]
mod requests;
#[path = "../../../crates/leasehold-redis/tests/server/mod.rs"]
mod server;

use authority::Authority;
use leasehold_core::{Mode, Store as _};
use leasehold_redis::RedisStore;
use rustls::crypto::CryptoProvider;

#[tokio::test]
async fn tls_works_with_the_store_s_own() {
    assert!(CryptoProvider::get_default().is_none());
    let ours = Authority::new();
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
    let store = RedisStore::from_url(&url).await.unwrap();
    requests::granted(store.acquire(&requests::acquire("k", "a", Mode::Exclusive)).await);
}
