//! The program has chosen no provider, and rustls cannot.

mod over_tls;

use leasehold_redis::RedisConfig;
use rustls::crypto::CryptoProvider;

#[tokio::test]
async fn tls_works_with_the_stores_provider() {
    RedisConfig::parse("rediss://localhost").unwrap();
    over_tls::postgres_grants_a_lock().await;
    assert!(CryptoProvider::get_default().is_none(), "neither chooses one for the program");
    over_tls::redis_grants_a_lock().await;
}
