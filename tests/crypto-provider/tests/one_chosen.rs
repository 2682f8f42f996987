//! The program has chosen another provider than the store's own.

mod over_tls;

use std::sync::atomic::{AtomicUsize, Ordering};

use rustls::crypto::{CryptoProvider, GetRandomFailed, SecureRandom, ring};

static ASKED: AtomicUsize = AtomicUsize::new(0);

/// Counts its uses.
#[derive(Debug)]
struct Counting(&'static dyn SecureRandom);

impl SecureRandom for Counting {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), GetRandomFailed> {
        ASKED.fetch_add(1, Ordering::SeqCst);
        self.0.fill(bytes)
    }
}

#[tokio::test]
async fn tls_works_with_the_programs_own_provider() {
    let ours = ring::default_provider();
    let random: &'static Counting = Box::leak(Box::new(Counting(ours.secure_random)));
    CryptoProvider { secure_random: random, ..ours }.install_default().unwrap();
    over_tls::redis_grants_a_lock().await;
    assert!(ASKED.swap(0, Ordering::SeqCst) > 0, "the Redis store used another provider");
    over_tls::postgres_grants_a_lock().await;
    assert!(ASKED.load(Ordering::SeqCst) > 0, "the PostgreSQL store used another provider");
}
