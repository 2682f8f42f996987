//! The program has chosen no provider, and rustls cannot.

mod over_tls;

use leasehold_redis::RedisConfig;
use rustls::crypto::CryptoProvider;

#[tokio::test]
async fn tls_works_with_the_stores_provider() {
    RedisConfig::from_url("rediss://localhost").unwrap();
    assert!(CryptoProvider::get_default().is_none(), "reading a URL chooses none");
    over_tls::a_lock_is_granted().await;
}
