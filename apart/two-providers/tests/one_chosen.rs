//! The program has chosen one of its two providers, and not the one that the store would bring.

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
async fn tls_works_with_what_the_program_chose() {
    rustls::crypto::aws_lc_rs::default_provider().install_default().unwrap();
    let chosen = CryptoProvider::get_default().cloned().unwrap();
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
    assert!(std::sync::Arc::ptr_eq(&chosen, CryptoProvider::get_default().unwrap()));
}
