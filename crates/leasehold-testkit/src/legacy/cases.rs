//! What every store in the table does beside a client in PHP, in real time.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{
    AcquireReply, Effect, ErrorKind, EvictRequest, Filter, ListRequest, LostReason, ManualClock,
    Mode, RefusalReason, ReleaseOutcome, RenewOutcome, Store, Ttl,
};
use leasehold_driver::legacy::LegacyConfig;
use tokio::task::JoinSet;

use super::Php;
use crate::requests::{acquire_for, granted, key, only, refused, release, renew};
use crate::{SECOND, until};

const TERM: Duration = Duration::from_secs(30);
const TTL: u64 = 30;
/// By default: a second, and as much for the clocks.
const MARGIN: Duration = Duration::from_secs(2);

/// The table without a pause after a row was taken over.
pub fn config() -> LegacyConfig {
    LegacyConfig::default().settle(Duration::ZERO)
}

async fn acquires(store: &impl Store, resource: &str, owner: &str) -> bool {
    let request = acquire_for(resource, owner, Mode::Exclusive, TERM);
    matches!(store.acquire(&request).await.unwrap(), AcquireReply::Granted(_))
}

async fn releases(store: &impl Store, resource: &str, owner: &str) -> ReleaseOutcome {
    only(store.release(&release(resource, owner)).await.unwrap().leases)
}

async fn renews(store: &impl Store, resource: &str, owner: &str) -> RenewOutcome {
    let to = Ttl::new(TERM).unwrap();
    only(store.renew(&renew(resource, owner, Mode::Exclusive, to)).await.unwrap().leases)
}

async fn is_lost(store: &impl Store, resource: &str, owner: &str, why: LostReason) {
    let renewed = renews(store, resource, owner).await;
    let lost = RenewOutcome::Lost(Some(why));
    assert_eq!(format!("{renewed:?}"), format!("{lost:?}"));
}

async fn is_held(store: &impl Store, resource: &str) -> bool {
    let filter = Filter::default().with_key(key(resource));
    !store.list(&ListRequest::new(filter)).await.unwrap().records.is_empty()
}

/// The library's own 17 cases, by their names.
pub async fn the_cases_of_the_library(store: &impl Store, php: &mut Php) {
    // acquire: a new resource; the same owner again; another owner; a row of long ago; two resources, two owners.
    assert!(acquires(store, "r", "a").await);
    assert!(acquires(store, "r", "a").await);
    assert!(!acquires(store, "r", "b").await);
    php.crafts("old", "dead", -800_000_000);
    assert!(acquires(store, "old", "b").await);
    assert!(acquires(store, "r2", "b").await);
    // renew: the right owner; the wrong one; an expired row; a missing one.
    assert!(matches!(renews(store, "r", "a").await, RenewOutcome::Held(_)));
    is_lost(store, "r", "b", LostReason::Gone).await;
    php.crafts("over", "a", -1);
    is_lost(store, "over", "a", LostReason::Expired).await;
    is_lost(store, "none", "a", LostReason::Gone).await;
    // isHeld: held; none; expired.
    assert!(is_held(store, "r").await);
    assert!(!is_held(store, "none").await);
    assert!(!is_held(store, "over").await);
    // release: the wrong owner; the right one; a missing row; then it is not held, and another acquires.
    assert!(matches!(releases(store, "r", "b").await, ReleaseOutcome::NotHeld));
    assert!(matches!(releases(store, "r", "a").await, ReleaseOutcome::Released));
    assert!(matches!(releases(store, "r", "a").await, ReleaseOutcome::NotHeld));
    assert!(!is_held(store, "r").await);
    assert!(acquires(store, "r", "b").await);
}

/// Each keeps the other out until its own clock must have said so, and takes over after that. `fast` has a clock that is
/// ahead by our term, `faster` one that is ahead by the margin and two seconds more.
pub async fn both_exclude_each_other(
    store: &impl Store,
    php: &mut Php,
    fast: &mut Php,
    faster: &mut Php,
) {
    assert!(php.acquired("r", "php", TTL));
    assert!(is_held(store, "r").await);
    let request = acquire_for("r", "ours", Mode::Exclusive, TERM);
    let refusal = refused(store.acquire(&request).await);
    assert!(matches!(&refusal.why, RefusalReason::Held(Some(_))), "{refusal:?}");
    // PHP truncates to whole seconds.
    let after = refusal.retry_after.unwrap();
    assert!(after > TERM && after <= TERM + MARGIN, "{after:?}");
    assert!(matches!(releases(store, "r", "ours").await, ReleaseOutcome::NotHeld));
    assert!(php.releases("r", "php"));
    granted(store.acquire(&request).await);

    assert!(!php.acquired("r", "php", TTL) && php.is_held("r"));
    assert!(!php.renews("r", "php", TTL) && !php.releases("r", "php"));
    assert!(!fast.acquired("r", "php", TTL));
    assert!(faster.acquired("r", "php", TTL));
    is_lost(store, "r", "ours", LostReason::Gone).await;
    assert!(faster.releases("r", "php"));

    // A row that has just ended, and one that ended longer ago than the margin.
    php.crafts("ended", "php", 0);
    let request = acquire_for("ended", "ours", Mode::Exclusive, TERM);
    refused(store.acquire(&request).await);
    php.crafts("over", "php", -3);
    granted(store.acquire(&acquire_for("over", "ours", Mode::Exclusive, TERM)).await);
    assert!(!php.renews("over", "php", TTL) && !php.releases("over", "php"));
}

/// How far ahead the clocks of the clients of [`both_exclude_each_other`] are, in seconds.
pub const FAST: i64 = 30;
pub const FASTER: i64 = 34;

/// Defects 3, 4, 5, 6, 10 and 13 of the library.
pub async fn its_defects_are_mended(store: &impl Store, php: &mut Php) {
    // A renewal, and an acquire, within the same second.
    assert!(acquires(store, "twice", "a").await);
    for _ in 0..2 {
        assert!(matches!(renews(store, "twice", "a").await, RenewOutcome::Held(_)));
        assert!(acquires(store, "twice", "a").await);
    }
    // One's own expired row.
    php.crafts("own", "a", -1);
    let request = acquire_for("own", "a", Mode::Exclusive, TERM);
    assert!(granted(store.acquire(&request).await).fresh);
    php.crafts("late", "a", -1);
    assert!(matches!(releases(store, "late", "a").await, ReleaseOutcome::Expired));
    // Names that do not fit, terms that are none.
    for (resource, term) in [("r".repeat(300), TERM), ("r".to_owned(), SECOND / 2)] {
        let acquired = store.acquire(&acquire_for(&resource, "a", Mode::Exclusive, term)).await;
        assert_eq!(acquired.unwrap_err().kind(), ErrorKind::Unsupported);
    }
    // Names that differ only a little.
    for name in ["job", "JOB", "jöb", "job "] {
        assert!(acquires(store, name, "a").await, "{name:?}");
        assert!(matches!(renews(store, name, "A").await, RenewOutcome::Lost(_)));
    }
    // Rows of locks that nobody uses any more.
    php.crafts("old", "dead", -800_000_000);
    let purged = store.evict(&EvictRequest::expired(Filter::default())).await.unwrap();
    let removed: Vec<_> = purged.removed.iter().map(|gone| gone.key.as_str()).collect();
    assert_eq!(removed, ["old"]);
}

/// What a PHP client with the owner of one of our leases may do, and what a renewal then finds.
pub async fn php_under_our_own_name_shortens_our_term(store: &impl Store, php: &mut Php) {
    assert!(acquires(store, "r", "ours").await);
    assert!(php.acquired("r", "ours", 1));
    is_lost(store, "r", "ours", LostReason::Expired).await;
    assert!(acquires(store, "r", "ours").await);
    assert!(php.releases("r", "ours"));
    is_lost(store, "r", "ours", LostReason::Gone).await;
}

/// Defect 1: a client that has read an expired row overwrites it after it was taken over. `open` opens the store with
/// these settings; the second look comes when the test says.
pub async fn who_took_a_row_over_looks_again<S: Store + Send + 'static>(
    open: impl AsyncFn(LegacyConfig) -> S,
    php: &mut Php,
) {
    let clock = ManualClock::new();
    let store = open(LegacyConfig::default().clock(Arc::new(clock.clone())).settle(SECOND)).await;
    php.crafts("r", "dead", -800_000_000);
    let mut taking = JoinSet::new();
    let request = acquire_for("r", "ours", Mode::Exclusive, TERM);
    taking.spawn(async move { store.acquire(&request).await });
    until(async || php.owner("r") == "ours").await;
    assert_eq!(php.overwrites("r", "php", TTL), Ok(1));
    let reply = loop {
        if let Some(reply) = taking.try_join_next() {
            break reply.unwrap();
        }
        clock.advance(SECOND);
        tokio::time::sleep(Duration::from_millis(1)).await;
    };
    let refusal = refused(reply);
    assert!(format!("{:?}", refusal.why).contains("php"), "{refusal:?}");
}

/// What nobody can exclude: a client overwrites what it read too long ago, or believes in a row that is not there.
pub async fn what_php_writes_too_late_is_seen_at_the_next_renewal(
    store: &impl Store,
    php: &mut Php,
) {
    php.crafts("r", "dead", -800_000_000);
    assert!(acquires(store, "r", "ours").await);
    assert_eq!(php.overwrites("r", "php", TTL), Ok(1));
    is_lost(store, "r", "ours", LostReason::Gone).await;
    assert!(php.releases("r", "php"));
    // It returns true after this all the same.
    assert_eq!(php.overwrites("r", "php", TTL), Ok(0));
    assert!(acquires(store, "r", "ours").await);
}

/// The same beside the trigger, which lets nobody overwrite a row that has not ended.
pub async fn the_trigger_refuses_to_overwrite<S: Store>(
    open: impl AsyncFn(LegacyConfig) -> S,
    php: &mut Php,
) {
    let store = open(config().guard(true)).await;
    store.prepare().await.unwrap();
    let hazards = store.check().await.unwrap().hazards;
    assert!(!hazards.iter().any(|hazard| hazard.contains("overwrites")), "{hazards:?}");
    php.crafts("r", "dead", -800_000_000);
    assert!(acquires(&store, "r", "ours").await);
    let refusal = php.overwrites("r", "php", TTL).unwrap_err();
    assert!(refusal.contains("the lock is held"), "{refusal}");
    assert!(matches!(renews(&store, "r", "ours").await, RenewOutcome::Held(_)));
    // Whatever either side does by its rules stays possible.
    assert!(acquires(&store, "r", "ours").await);
    assert!(matches!(releases(&store, "r", "ours").await, ReleaseOutcome::Released));
    assert!(php.acquired("r", "php", TTL) && php.acquired("r", "php", TTL));
    assert!(php.renews("r", "php", TTL + 1) && php.releases("r", "php"));
    php.crafts("old", "dead", -1);
    assert!(php.acquired("old", "php", TTL));
}

/// Defect 12: what a PHP application has not committed is no grant, and keeps nobody out once it is rolled back.
pub async fn an_open_transaction_of_php_grants_nothing(store: &impl Store, php: &mut Php) {
    php.ask(&["begin"]).unwrap();
    assert!(php.acquired("r", "php", TTL));
    let request = acquire_for("r", "ours", Mode::Exclusive, TERM);
    match store.acquire(&request).await {
        Ok(reply) => drop(refused(Ok(reply))),
        Err(error) => {
            let unavailable = (ErrorKind::Unavailable, Effect::NotApplied);
            assert_eq!((error.kind(), error.effect()), unavailable, "{error}");
        }
    }
    php.ask(&["rollback"]).unwrap();
    granted(store.acquire(&request).await);
}

/// Defect 1: of those who find one expired row, one gets it.
pub async fn of_contenders_for_expired_rows_one_wins<S: Store + Clone + Send + Sync + 'static>(
    stores: [S; 2],
    rounds: usize,
) {
    let won = |reply: &AcquireReply| matches!(reply, AcquireReply::Granted(_));
    let mut both = 0;
    for round in 0..rounds {
        let mut contenders = JoinSet::new();
        for (n, store) in stores.iter().enumerate() {
            let (store, owner) = (store.clone(), format!("owner {n}"));
            let request = acquire_for(&format!("r{round}"), &owner, Mode::Exclusive, TERM);
            contenders.spawn(async move { store.acquire(&request).await.unwrap() });
        }
        let winners = contenders.join_all().await.iter().filter(|reply| won(reply)).count();
        assert_eq!(winners, 1, "round {round}");
        both += winners;
    }
    assert_eq!(both, rounds);
}
