//! What stays in the table.

use std::time::Duration;

use leasehold_core::{
    AcquireRequest, Claim, Claims, EvictRequest, Filter, ListRequest, Mode, Store, Ttl,
};

use super::SqlTestServer;
use crate::LONG;
use crate::requests::{acquire, acquire_for, granted, id, key, refused, release};

#[macro_export]
macro_rules! sql_rows {
    ($server:ty) => {
        $crate::sql_tests!($server, rows, [
            a_refusal_leaves_no_row_of_a_new_key,
            nothing_is_left_of_keys_that_are_over,
        ], on two threads []);
    };
}

pub async fn a_refusal_leaves_no_row_of_a_new_key<S: SqlTestServer>() {
    let (server, store) = S::with_store(&[]).await;
    granted(store.acquire(&acquire("held", "a", Mode::Exclusive)).await);
    let both = ["held", "new"].map(|name| Claim { key: key(name), mode: Mode::Exclusive });
    let claims = Claims::new(both).unwrap();
    refused(store.acquire(&AcquireRequest::new(id("b"), claims, Ttl::new(LONG).unwrap())).await);
    assert_eq!(server.ask(&format!("SELECT slot FROM {}", S::LEASES)).await.len(), 1);
}

pub async fn nothing_is_left_of_keys_that_are_over<S: SqlTestServer>() {
    let (server, store) = S::with_store(S::UNSYNCED).await;
    for n in 0..300 {
        let (name, lease) = (format!("k{n}"), format!("l{n}"));
        let short = acquire_for(&name, &lease, Mode::SHARED, Duration::from_millis(10));
        granted(store.acquire(&short).await);
        granted(store.acquire(&acquire(&name, "other", Mode::SHARED)).await);
        store.release(&release(&name, "other")).await.unwrap();
    }
    // By the server's clock the terms are over.
    let all = ListRequest::new(Filter::default());
    while !store.list(&all).await.unwrap().records.is_empty() {}
    let purge = EvictRequest::expired(Filter::default()).with_limit(1_000);
    let purged = store.evict(&purge).await.unwrap();
    // Some leases were over before the next one of their key came, which removed them.
    assert!(purged.removed.len() <= 300, "{purged:?}");
    assert!(!purged.more);
    assert!(server.ask(&format!("SELECT slot FROM {}", S::LEASES)).await.is_empty());
}
