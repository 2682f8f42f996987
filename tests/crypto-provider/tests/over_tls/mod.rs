//! A store on a server that uses TLS and asks for a certificate.

use leasehold_core::{Mode, Store as _};
use leasehold_redis::RedisStore;
use leasehold_testkit::redis::authority::Authority;
use leasehold_testkit::requests::{acquire, granted};

pub async fn a_lock_is_granted() {
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
    let store = RedisStore::from_url(&url).await.unwrap();
    granted(store.acquire(&acquire("k", "a", Mode::Exclusive)).await);
}
