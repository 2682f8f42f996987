//! The library's own 17 cases.

use std::time::Duration;

use leasehold_core::{Filter, ListRequest, LostReason, Mode, ReleaseOutcome, RenewOutcome, Store};

use super::calls::{LONG_AGO, TERM, acquires, is_held, is_lost, releases, renews, table};
use crate::SECOND;
use crate::nene::Database;
use crate::requests::{acquire_for, key, only, refused};

/// Of a new resource; by the same owner again; by another; of a row of the year 2000; two resources.
pub async fn acquire_passes_the_librarys_cases<D: Database>() {
    let (database, store) = table::<D>().await;
    assert!(acquires(&store, "r", "a").await && acquires(&store, "r", "a").await);
    assert!(!acquires(&store, "r", "b").await);
    let mut php = database.php();
    php.crafts("old", "dead", LONG_AGO);
    assert!(acquires(&store, "old", "b").await);
    assert_eq!(php.owner("old"), "b");
    assert!(acquires(&store, "s", "b").await);
}

/// By the owner; by another; of a missing row; then another owner acquires.
pub async fn release_passes_the_librarys_cases<D: Database>() {
    let (_database, store) = table::<D>().await;
    assert!(matches!(releases(&store, "r", "a").await, ReleaseOutcome::NotHeld));
    assert!(acquires(&store, "r", "a").await);
    assert!(matches!(releases(&store, "r", "b").await, ReleaseOutcome::NotHeld));
    assert!(is_held(&store, "r").await);
    assert!(matches!(releases(&store, "r", "a").await, ReleaseOutcome::Released));
    assert!(acquires(&store, "r", "b").await);
}

/// By the owner; by another; of an expired row; of a missing row.
pub async fn renew_passes_the_librarys_cases<D: Database>() {
    let (database, store) = table::<D>().await;
    is_lost(&store, "r", "a", LostReason::Gone).await;
    assert!(acquires(&store, "r", "a").await);
    assert!(matches!(renews(&store, "r", "a").await, RenewOutcome::Held(_)));
    is_lost(&store, "r", "b", LostReason::Gone).await;
    database.php().crafts("expired", "a", -1);
    is_lost(&store, "expired", "a", LostReason::Expired).await;
}

/// Held; without a row; after a release; expired.
pub async fn is_held_passes_the_librarys_cases<D: Database>() {
    let (database, store) = table::<D>().await;
    assert!(!is_held(&store, "r").await);
    assert!(acquires(&store, "r", "a").await && is_held(&store, "r").await);
    releases(&store, "r", "a").await;
    assert!(!is_held(&store, "r").await);
    database.php().crafts("expired", "a", -1);
    assert!(!is_held(&store, "expired").await);
}

/// A row is reported until its `expires_at`, of either side and however short its TTL; a holder of ours stops earlier, and
/// others begin later.
pub async fn a_resource_is_held_as_long_as_for_php<D: Database>() {
    let (database, store) = table::<D>().await;
    let mut php = database.php();
    assert!(php.acquired("php", "php", 2));
    let filter = Filter::default().with_key(key("php"));
    let listed = only(store.list(&ListRequest::new(filter)).await.unwrap().records);
    let left = listed.remaining().duration().unwrap();
    assert!(left <= 2 * SECOND && left > Duration::ZERO, "{left:?}");
    php.crafts("ours", "ours", 2);
    is_lost(&store, "ours", "ours", LostReason::Expired).await;
    assert!(php.is_held("ours") && is_held(&store, "ours").await);
    php.crafts("ended", "php", 0);
    assert!(!php.is_held("ended") && !is_held(&store, "ended").await);
    refused(store.acquire(&acquire_for("ended", "next", Mode::Exclusive, TERM)).await);
}
