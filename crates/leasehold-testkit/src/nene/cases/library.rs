//! The library's own 17 cases.

use std::time::Duration;

use leasehold_core::{Filter, ListRequest, LostReason, Mode, ReleaseOutcome, RenewOutcome, Store};

use super::calls::{LONG_AGO, TERM, acquires, is_held, is_lost, releases, renews, table};
use crate::SECOND;
use crate::nene::Database;
use crate::requests::{acquire_for, key, only, refused};

pub async fn acquire_of_a_new_resource_succeeds<D: Database>() {
    let (_database, store) = table::<D>().await;
    assert!(acquires(&store, "r", "a").await);
}

pub async fn acquire_by_the_same_owner_again_succeeds<D: Database>() {
    let (_database, store) = table::<D>().await;
    assert!(acquires(&store, "r", "a").await && acquires(&store, "r", "a").await);
}

pub async fn acquire_by_another_owner_is_refused<D: Database>() {
    let (_database, store) = table::<D>().await;
    assert!(acquires(&store, "r", "a").await && !acquires(&store, "r", "b").await);
}

pub async fn acquire_reclaims_a_row_of_the_year_2000<D: Database>() {
    let (database, store) = table::<D>().await;
    let mut php = database.php();
    php.crafts("r", "dead", LONG_AGO);
    assert!(acquires(&store, "r", "b").await);
    assert_eq!(php.owner("r"), "b");
}

pub async fn two_resources_have_two_owners<D: Database>() {
    let (_database, store) = table::<D>().await;
    assert!(acquires(&store, "r", "a").await && acquires(&store, "s", "b").await);
}

pub async fn release_by_the_owner_succeeds<D: Database>() {
    let (_database, store) = table::<D>().await;
    assert!(acquires(&store, "r", "a").await);
    assert!(matches!(releases(&store, "r", "a").await, ReleaseOutcome::Released));
}

pub async fn release_by_another_owner_changes_nothing<D: Database>() {
    let (_database, store) = table::<D>().await;
    assert!(acquires(&store, "r", "a").await);
    assert!(matches!(releases(&store, "r", "b").await, ReleaseOutcome::NotHeld));
    assert!(is_held(&store, "r").await);
}

pub async fn release_of_a_missing_row_is_reported<D: Database>() {
    let (_database, store) = table::<D>().await;
    assert!(matches!(releases(&store, "r", "a").await, ReleaseOutcome::NotHeld));
}

pub async fn after_a_release_another_owner_acquires<D: Database>() {
    let (_database, store) = table::<D>().await;
    assert!(acquires(&store, "r", "a").await);
    releases(&store, "r", "a").await;
    assert!(acquires(&store, "r", "b").await);
}

pub async fn renew_by_the_owner_succeeds<D: Database>() {
    let (_database, store) = table::<D>().await;
    assert!(acquires(&store, "r", "a").await);
    assert!(matches!(renews(&store, "r", "a").await, RenewOutcome::Held(_)));
}

pub async fn renew_by_another_owner_fails<D: Database>() {
    let (_database, store) = table::<D>().await;
    assert!(acquires(&store, "r", "a").await);
    is_lost(&store, "r", "b", LostReason::Gone).await;
}

pub async fn renew_of_an_expired_row_fails<D: Database>() {
    let (database, store) = table::<D>().await;
    database.php().crafts("r", "a", -1);
    is_lost(&store, "r", "a", LostReason::Expired).await;
}

pub async fn renew_of_a_missing_row_fails<D: Database>() {
    let (_database, store) = table::<D>().await;
    is_lost(&store, "r", "a", LostReason::Gone).await;
}

pub async fn a_held_resource_is_held<D: Database>() {
    let (_database, store) = table::<D>().await;
    assert!(acquires(&store, "r", "a").await && is_held(&store, "r").await);
}

pub async fn a_resource_without_a_row_is_not_held<D: Database>() {
    let (_database, store) = table::<D>().await;
    assert!(!is_held(&store, "r").await);
}

pub async fn a_released_resource_is_not_held<D: Database>() {
    let (_database, store) = table::<D>().await;
    assert!(acquires(&store, "r", "a").await);
    releases(&store, "r", "a").await;
    assert!(!is_held(&store, "r").await);
}

pub async fn an_expired_resource_is_not_held<D: Database>() {
    let (database, store) = table::<D>().await;
    database.php().crafts("r", "a", -1);
    assert!(!is_held(&store, "r").await);
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
