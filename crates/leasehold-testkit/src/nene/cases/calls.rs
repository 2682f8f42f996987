//! Short forms of the calls that the cases make.

use std::time::Duration;

use leasehold_core::{
    AcquireReply, Filter, ListRequest, LostReason, Mode, ReleaseOutcome, RenewOutcome, Store, Ttl,
};
use leasehold_driver::nene::NeneConfig;

use crate::nene::Database;
use crate::requests::{acquire_for, key, only, release, renew};

pub(super) const TERM: Duration = Duration::from_secs(30);
pub(super) const TTL: u64 = 30;
/// How many seconds ago a row of the year 2000 ended.
pub(super) const LONG_AGO: i64 = -800_000_000;

/// The table without a pause after a row was taken over.
pub fn config() -> NeneConfig {
    NeneConfig::default().settle(Duration::ZERO)
}

/// A database with the table, and a store in it.
pub(crate) async fn table<D: Database>() -> (D, D::Store) {
    let database = D::new().await;
    let store = database.open_table(config()).await;
    (database, store)
}

pub(crate) async fn acquires(store: &impl Store, resource: &str, owner: &str) -> bool {
    let request = acquire_for(resource, owner, Mode::Exclusive, TERM);
    matches!(store.acquire(&request).await.unwrap(), AcquireReply::Granted(_))
}

pub(crate) async fn releases(store: &impl Store, resource: &str, owner: &str) -> ReleaseOutcome {
    only(store.release(&release(resource, owner)).await.unwrap().leases)
}

pub(super) async fn renews_for(
    store: &impl Store,
    resource: &str,
    owner: &str,
    term: Duration,
) -> RenewOutcome {
    let renewal = renew(resource, owner, Mode::Exclusive, Ttl::new(term).unwrap());
    only(store.renew(&renewal).await.unwrap().leases)
}

pub(crate) async fn renews(store: &impl Store, resource: &str, owner: &str) -> RenewOutcome {
    renews_for(store, resource, owner, TERM).await
}

pub(super) fn is(renewed: &RenewOutcome, why: LostReason) {
    let lost = RenewOutcome::Lost(Some(why));
    assert_eq!(format!("{renewed:?}"), format!("{lost:?}"));
}

pub(super) async fn is_lost(store: &impl Store, resource: &str, owner: &str, why: LostReason) {
    is(&renews(store, resource, owner).await, why);
}

pub(super) async fn is_held(store: &impl Store, resource: &str) -> bool {
    let filter = Filter::default().with_key(key(resource));
    !store.list(&ListRequest::new(filter)).await.unwrap().records.is_empty()
}
