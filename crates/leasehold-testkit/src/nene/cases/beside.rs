//! What the stores in the table and a client in PHP do to each other.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{
    LostReason, ManualClock, Mode, RefusalReason, ReleaseOutcome, RenewOutcome, Store,
};
use leasehold_driver::nene::NeneConfig;
use tokio::task::JoinSet;

use super::calls::{
    LONG_AGO, TERM, TTL, acquires, config, is_held, is_lost, releases, renews, table,
};
use crate::nene::{Database, MARGIN, sides};
use crate::requests::{acquire_for, granted, refused};
use crate::{SECOND, until};

/// How far ahead the clock of a PHP client is, in seconds: by our term; by the margin too, and two seconds more.
const FAST: i64 = 30;
const FASTER: i64 = 34;

/// Each keeps the other out until its row has expired by its own clock, and takes over after that.
pub async fn both_sides_exclude_each_other<D: Database>() {
    let (database, store) = table::<D>().await;
    let (mut php, mut fast) = (database.php(), database.php_ahead(FAST));
    let mut faster = database.php_ahead(FASTER);
    assert!(php.acquired("r", "php", TTL));
    assert!(is_held(&store, "r").await);
    let request = acquire_for("r", "ours", Mode::Exclusive, TERM);
    let refusal = refused(store.acquire(&request).await);
    assert!(matches!(&refusal.why, RefusalReason::Held(Some(_))), "{refusal:?}");
    // PHP truncates to whole seconds.
    let after = refusal.retry_after.unwrap();
    assert!(after > TERM && after <= TERM + MARGIN, "{after:?}");
    assert!(matches!(releases(&store, "r", "ours").await, ReleaseOutcome::NotHeld));
    assert!(php.releases("r", "php"));
    granted(store.acquire(&request).await);

    assert!(!php.acquired("r", "php", TTL) && php.is_held("r"));
    assert!(!php.renews("r", "php", TTL) && !php.releases("r", "php"));
    assert!(!fast.acquired("r", "php", TTL));
    assert!(faster.acquired("r", "php", TTL));
    is_lost(&store, "r", "ours", LostReason::Gone).await;
    assert!(faster.releases("r", "php"));

    // A row that has just ended, and one that ended longer ago than the margin.
    php.crafts("ended", "php", 0);
    let request = acquire_for("ended", "ours", Mode::Exclusive, TERM);
    refused(store.acquire(&request).await);
    php.crafts("over", "php", -3);
    granted(store.acquire(&acquire_for("over", "ours", Mode::Exclusive, TERM)).await);
    assert!(!php.renews("over", "php", TTL) && !php.releases("over", "php"));
}

pub async fn both_sides_contend_and_nobody_holds_beside_another<D: Database>() {
    for guard in [false, true] {
        let contest = sides::contend::<D>(guard, sides::duration() / 2).await;
        println!("with a trigger: {guard}; {contest}");
        contest.is_telling();
    }
}

/// Defect 1: a client that has read an expired row overwrites it after it was taken over.
pub async fn who_took_a_row_over_looks_again_whether_php_has_overwritten_it<D: Database>() {
    let (database, _) = table::<D>().await;
    let (clock, mut php) = (ManualClock::new(), database.php());
    let settles = NeneConfig::default().clock(Arc::new(clock.clone())).settle(SECOND);
    let store = database.open_table(settles).await;
    php.crafts("r", "dead", LONG_AGO);
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

/// What nobody can exclude: a client overwrites what it read too long ago, or what was removed and added since, or believes
/// in a row that is not there.
pub async fn what_php_overwrites_unseen_is_gone_at_the_next_renewal<D: Database>() {
    let (database, store) = table::<D>().await;
    let mut php = database.php();
    php.crafts("r", "dead", LONG_AGO);
    assert!(acquires(&store, "r", "ours").await);
    assert_eq!(php.overwrites("r", "php", TTL), Ok(1));
    is_lost(&store, "r", "ours", LostReason::Gone).await;
    assert!(php.releases("r", "php"));
    // Who adds a row does not look again.
    let settles = database.open_table(NeneConfig::default().settle(60 * SECOND)).await;
    assert!(acquires(&settles, "r", "ours").await);
    assert_eq!(php.overwrites("r", "php", TTL), Ok(1));
    is_lost(&settles, "r", "ours", LostReason::Gone).await;
    assert!(php.releases("r", "php"));
    // The library's `acquire` returns true after this all the same.
    assert_eq!(php.overwrites("r", "php", TTL), Ok(0));
    assert!(acquires(&store, "r", "ours").await);
}

/// What a PHP client with the owner of one of our leases may do, and what a renewal then finds.
pub async fn a_php_client_under_our_own_name_shortens_our_term<D: Database>() {
    let (database, store) = table::<D>().await;
    let mut php = database.php();
    assert!(acquires(&store, "r", "ours").await);
    assert!(php.acquired("r", "ours", 1));
    is_lost(&store, "r", "ours", LostReason::Expired).await;
    assert!(acquires(&store, "r", "ours").await);
    assert!(php.releases("r", "ours"));
    is_lost(&store, "r", "ours", LostReason::Gone).await;
}

/// A client that would overwrite a row which has not ended fails. Whatever either side does by its rules stays possible.
pub async fn the_trigger_refuses_to_overwrite_a_row_that_has_not_ended<D: Database>() {
    let (database, _) = table::<D>().await;
    let (store, mut php) = (database.open_table(config().guard(true)).await, database.php());
    let hazards = store.check().await.unwrap().hazards;
    assert!(!hazards.iter().any(|hazard| hazard.contains("overwrites")), "{hazards:?}");
    php.crafts("r", "dead", LONG_AGO);
    assert!(acquires(&store, "r", "ours").await);
    let refusal = php.overwrites("r", "php", TTL).unwrap_err();
    assert!(refusal.contains("the lock is held"), "{refusal}");
    assert!(matches!(renews(&store, "r", "ours").await, RenewOutcome::Held(_)));
    assert!(acquires(&store, "r", "ours").await);
    assert!(matches!(releases(&store, "r", "ours").await, ReleaseOutcome::Released));
    assert!(php.acquired("r", "php", TTL) && php.acquired("r", "php", TTL));
    assert!(php.renews("r", "php", TTL + 1) && php.releases("r", "php"));
    php.crafts("old", "dead", -1);
    assert!(php.acquired("old", "php", TTL));
}
