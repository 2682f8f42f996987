//! What every store in the table does beside a client in PHP, in real time.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{
    AcquireReply, Effect, ErrorKind, EvictRequest, Expired, Filter, ListRequest, LostReason,
    ManualClock, Mode, RefusalReason, ReleaseOutcome, RenewOutcome, Store, Ttl,
};
use leasehold_driver::nene::NeneConfig;
use tokio::task::JoinSet;

use super::{Database, MARGIN, Php, Served, sides};
use crate::requests::{
    acquire_for, granted, key, names, only, purge_leaves, refused, release, renew,
};
use crate::{SECOND, until};

const TERM: Duration = Duration::from_secs(30);
const TTL: u64 = 30;
/// How many seconds ago a row of the year 2000 ended.
const LONG_AGO: i64 = -800_000_000;

/// The tests of the table, for a [`Database`](crate::nene::Database).
#[macro_export]
macro_rules! nene_tests {
    ($database:ty) => {
        $crate::nene_tests! { $database:
            acquire_of_a_new_resource_succeeds
            acquire_by_the_same_owner_again_succeeds
            acquire_by_another_owner_is_refused
            acquire_reclaims_a_row_of_the_year_2000
            two_resources_have_two_owners
            release_by_the_owner_succeeds
            release_by_another_owner_changes_nothing
            release_of_a_missing_row_is_reported
            after_a_release_another_owner_acquires
            renew_by_the_owner_succeeds
            renew_by_another_owner_fails
            renew_of_an_expired_row_fails
            renew_of_a_missing_row_fails
            a_held_resource_is_held
            a_resource_without_a_row_is_not_held
            a_released_resource_is_not_held
            an_expired_resource_is_not_held
            a_resource_is_held_as_long_as_for_php

            both_sides_exclude_each_other
            both_sides_contend_and_nobody_holds_beside_another
            of_contenders_for_an_expired_row_one_wins
            a_row_removed_between_read_and_write_is_added_again
            a_lease_removed_while_its_renewal_waited_is_gone
            a_lease_that_ended_while_its_renewal_waited_is_not_revived
            an_own_expired_row_is_acquired_afresh_and_released_as_expired
            renewing_twice_in_the_same_second_succeeds
            names_and_terms_that_do_not_fit_are_refused
            names_that_differ_in_case_or_spaces_are_different_locks
            rows_of_names_that_are_no_keys_are_counted_and_named
            a_purge_removes_rows_that_ended_and_no_other
            an_open_transaction_of_php_grants_nothing
            who_took_a_row_over_looks_again_whether_php_has_overwritten_it
            what_php_overwrites_unseen_is_gone_at_the_next_renewal
            a_php_client_under_our_own_name_shortens_our_term
            the_trigger_refuses_to_overwrite_a_row_that_has_not_ended
        }
    };
    ($database:ty: $($name:ident)+) => {$(
        #[tokio::test(flavor = "multi_thread")]
        async fn $name() {
            $crate::nene::cases::$name::<$database>().await;
        }
    )+};
}

/// The table without a pause after a row was taken over.
pub fn config() -> NeneConfig {
    NeneConfig::default().settle(Duration::ZERO)
}

/// A database with the table, and a store in it.
async fn table<D: Database>() -> (D, D::Store) {
    let database = D::new().await;
    let store = database.open(config()).await;
    (database, store)
}

async fn acquires(store: &impl Store, resource: &str, owner: &str) -> bool {
    let request = acquire_for(resource, owner, Mode::Exclusive, TERM);
    matches!(store.acquire(&request).await.unwrap(), AcquireReply::Granted(_))
}

async fn releases(store: &impl Store, resource: &str, owner: &str) -> ReleaseOutcome {
    only(store.release(&release(resource, owner)).await.unwrap().leases)
}

async fn renews_for(
    store: &impl Store,
    resource: &str,
    owner: &str,
    term: Duration,
) -> RenewOutcome {
    let renewal = renew(resource, owner, Mode::Exclusive, Ttl::new(term).unwrap());
    only(store.renew(&renewal).await.unwrap().leases)
}

async fn renews(store: &impl Store, resource: &str, owner: &str) -> RenewOutcome {
    renews_for(store, resource, owner, TERM).await
}

fn is(renewed: &RenewOutcome, why: LostReason) {
    let lost = RenewOutcome::Lost(Some(why));
    assert_eq!(format!("{renewed:?}"), format!("{lost:?}"));
}

async fn is_lost(store: &impl Store, resource: &str, owner: &str, why: LostReason) {
    is(&renews(store, resource, owner).await, why);
}

async fn is_held(store: &impl Store, resource: &str) -> bool {
    let filter = Filter::default().with_key(key(resource));
    !store.list(&ListRequest::new(filter)).await.unwrap().records.is_empty()
}

// The library's own 17 cases.

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

// Both sides.

/// How far ahead the clock of a PHP client is, in seconds: by our term; by the margin too, and two seconds more.
const FAST: i64 = 30;
const FASTER: i64 = 34;

/// Each keeps the other out until its own clock must have said so, and takes over after that.
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

// The library's defects.

/// Defect 1: of those who find one expired row, one gets it.
pub async fn of_contenders_for_an_expired_row_one_wins<D: Database>() {
    const ROUNDS: usize = 10_000;
    let (database, store) = table::<D>().await;
    let stores = [store, database.open(config()).await];
    let mut php = database.php();
    php.ask(&["begin"]).unwrap();
    for round in 0..ROUNDS {
        php.crafts(&format!("r{round}"), "dead", LONG_AGO);
    }
    php.ask(&["commit"]).unwrap();
    for round in 0..ROUNDS {
        let mut contenders = JoinSet::new();
        for (n, store) in stores.iter().enumerate() {
            let (store, owner) = (store.clone(), format!("owner {n}"));
            let request = acquire_for(&format!("r{round}"), &owner, Mode::Exclusive, TERM);
            contenders.spawn(async move { store.acquire(&request).await.unwrap() });
        }
        let won = |reply: &AcquireReply| matches!(reply, AcquireReply::Granted(_));
        let winners = contenders.join_all().await.iter().filter(|reply| won(reply)).count();
        assert_eq!(winners, 1, "round {round}");
    }
}

/// Defect 2. The row is removed after the acquire has read it.
pub async fn a_row_removed_between_read_and_write_is_added_again<D: Database>() {
    let (database, _) = table::<D>().await;
    let (store, mut php) = (database.open_patient(config()).await, database.php());
    php.crafts("r", "dead", LONG_AGO);
    php.ask(&["begin"]).unwrap();
    assert!(php.releases("r", "dead"));
    let acquire = async move {
        let request = acquire_for("r", "ours", Mode::Exclusive, TERM);
        granted(store.acquire(&request).await)
    };
    let mut acquiring = database.until_it_waits(acquire).await;
    php.ask(&["commit"]).unwrap();
    assert!(acquiring.join_next().await.unwrap().unwrap().fresh);
    assert_eq!(php.owner("r"), "ours");
    assert!(!php.acquired("r", "php", TTL));
}

/// Begins to renew a lease of so many seconds whose row a transaction of PHP holds. Returns once the write waits.
async fn renewal_that_waits<D: Database>(
    database: &D,
    php: &mut Php,
    term: Duration,
    remove: bool,
) -> JoinSet<RenewOutcome> {
    let store = database.open_patient(config()).await;
    granted(store.acquire(&acquire_for("r", "ours", Mode::Exclusive, term)).await);
    php.ask(&["begin"]).unwrap();
    let sent = if remove { php.releases("r", "ours") } else { php.renews("r", "ours", TTL) };
    assert!(sent);
    database.until_it_waits(async move { renews_for(&store, "r", "ours", 2 * TERM).await }).await
}

/// Defect 2, for a renewal.
pub async fn a_lease_removed_while_its_renewal_waited_is_gone<D: Database>() {
    let (database, _) = table::<D>().await;
    let mut php = database.php();
    let mut renewing = renewal_that_waits(&database, &mut php, TERM, true).await;
    php.ask(&["commit"]).unwrap();
    is(&renewing.join_next().await.unwrap().unwrap(), LostReason::Gone);
}

/// The clock is read when the row is locked, not when the renewal was sent.
pub async fn a_lease_that_ended_while_its_renewal_waited_is_not_revived<D: Database>() {
    let (database, _) = table::<D>().await;
    let (mut php, mut another) = (database.php(), database.php());
    let mut renewing = renewal_that_waits(&database, &mut php, 2 * SECOND, false).await;
    until(async || !another.is_held("r")).await;
    php.ask(&["rollback"]).unwrap();
    is(&renewing.join_next().await.unwrap().unwrap(), LostReason::Expired);
}

/// Defects 3 and 5.
pub async fn an_own_expired_row_is_acquired_afresh_and_released_as_expired<D: Database>() {
    let (database, store) = table::<D>().await;
    let mut php = database.php();
    php.crafts("r", "a", -1);
    let request = acquire_for("r", "a", Mode::Exclusive, TERM);
    assert!(granted(store.acquire(&request).await).fresh);
    php.crafts("late", "a", -1);
    assert!(matches!(releases(&store, "late", "a").await, ReleaseOutcome::Expired));
}

/// Defect 4.
pub async fn renewing_twice_in_the_same_second_succeeds<D: Database>() {
    let (_database, store) = table::<D>().await;
    assert!(acquires(&store, "r", "a").await);
    for _ in 0..3 {
        assert!(matches!(renews(&store, "r", "a").await, RenewOutcome::Held(_)));
        assert!(acquires(&store, "r", "a").await);
    }
}

/// Defects 6 and 10.
pub async fn names_and_terms_that_do_not_fit_are_refused<D: Database>() {
    let (_database, store) = table::<D>().await;
    for (resource, owner, term) in [
        ("r".repeat(300), "a".to_owned(), TERM),
        ("r".repeat(256), "a".to_owned(), TERM),
        ("r".to_owned(), "a".to_owned(), SECOND / 2),
    ] {
        let acquired = store.acquire(&acquire_for(&resource, &owner, Mode::Exclusive, term)).await;
        assert_eq!(acquired.unwrap_err().kind(), ErrorKind::Unsupported);
    }
    let longest = "r".repeat(255);
    assert!(acquires(&store, &longest, "a").await);
    assert!(matches!(releases(&store, &longest, "a").await, ReleaseOutcome::Released));
}

/// Defect 7, in a table of ours.
pub async fn names_that_differ_in_case_or_spaces_are_different_locks<D: Database>() {
    let (_database, store) = table::<D>().await;
    for (name, owner) in [("job", "a"), ("JOB", "b"), ("jöb", "c"), ("job ", "d")] {
        assert!(acquires(&store, name, owner).await, "{name:?}");
        is_lost(&store, name, &owner.to_uppercase(), LostReason::Gone).await;
    }
}

/// A PHP client may lock a name that is no key.
pub async fn rows_of_names_that_are_no_keys_are_counted_and_named<D: Database>() {
    let (database, store) = table::<D>().await;
    let mut php = database.php();
    php.crafts("live\u{1}", "php", 60);
    php.crafts("over\u{1}", "php", LONG_AGO);
    php.crafts("over", "php", LONG_AGO);
    let list = async |filter| store.list(&ListRequest::new(filter)).await.unwrap();
    let of = |expired| Filter::default().with_expired(expired);
    for (filter, named) in [
        (of(Expired::Out), &["live\u{1}"][..]),
        (of(Expired::In), &["live\u{1}", "over\u{1}"]),
        (of(Expired::Only).with_prefix("over"), &["over\u{1}"]),
        (of(Expired::Out).with_prefix("over"), &[]),
        (of(Expired::In).with_key(key("over")), &[]),
    ] {
        assert_eq!(names(&list(filter.clone()).await.unreadable), named, "{filter:?}");
    }
    purge_leaves(&store, &["over\u{1}"]).await;
    assert_eq!((php.owner("over"), php.owner("over\u{1}")), (String::new(), "php".to_owned()));
}

/// Defect 13.
pub async fn a_purge_removes_rows_that_ended_and_no_other<D: Database>() {
    let (database, store) = table::<D>().await;
    let mut php = database.php();
    php.crafts("old", "dead", LONG_AGO);
    assert!(php.acquired("r", "php", TTL) && acquires(&store, "s", "ours").await);
    let purged = store.evict(&EvictRequest::expired(Filter::default())).await.unwrap();
    let removed: Vec<_> = purged.removed.iter().map(|gone| gone.key.as_str()).collect();
    assert_eq!(removed, ["old"]);
    assert!(php.is_held("r") && php.is_held("s"));
}

/// Defect 12: what a PHP application has not committed is no grant, and keeps nobody out once it is rolled back.
pub async fn an_open_transaction_of_php_grants_nothing<D: Database>() {
    let (database, store) = table::<D>().await;
    let mut php = database.php();
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

/// A failure is no refusal and no loss, and the store connects again.
pub async fn a_server_that_is_away_fails_every_operation_until_it_is_back<D: Served>() {
    let (database, store) = table::<D>().await;
    assert!(acquires(&store, "r", "a").await);
    database.kill();
    let request = acquire_for("r", "a", Mode::Exclusive, TERM);
    assert_eq!(store.acquire(&request).await.unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(store.check().await.unwrap_err().kind(), ErrorKind::Unavailable);
    let renewed = renews(&store, "r", "a").await;
    assert!(matches!(renewed, RenewOutcome::Failed(_)), "{renewed:?}");
    let released = releases(&store, "r", "a").await;
    assert!(matches!(released, ReleaseOutcome::Failed(_)), "{released:?}");
    database.restart().await;
    assert!(matches!(renews(&store, "r", "a").await, RenewOutcome::Held(_)));
    assert!(!acquires(&store, "r", "b").await);
}

// What a PHP client does to us.

/// Defect 1: a client that has read an expired row overwrites it after it was taken over.
pub async fn who_took_a_row_over_looks_again_whether_php_has_overwritten_it<D: Database>() {
    let (database, _) = table::<D>().await;
    let (clock, mut php) = (ManualClock::new(), database.php());
    let settles = NeneConfig::default().clock(Arc::new(clock.clone())).settle(SECOND);
    let store = database.open(settles).await;
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
    let settles = database.open(NeneConfig::default().settle(60 * SECOND)).await;
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
    let (store, mut php) = (database.open(config().guard(true)).await, database.php());
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
