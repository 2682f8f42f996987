//! The program has chosen no provider, and rustls cannot.

mod over_tls;

use rustls::crypto::CryptoProvider;

#[tokio::test]
async fn tls_works_with_the_store_s_own() {
    assert!(CryptoProvider::get_default().is_none());
    over_tls::a_lock_is_granted().await;
}
