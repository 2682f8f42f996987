//! The library's defects, which the stores in the table do not have.

use std::time::Duration;

use leasehold_core::{
    AcquireReply, Effect, ErrorKind, EvictRequest, Expired, Filter, ListRequest, LostReason, Mode,
    ReleaseOutcome, RenewOutcome, Store,
};
use tokio::task::JoinSet;

use super::calls::{
    LONG_AGO, TERM, TTL, acquires, config, is, is_lost, releases, renews, renews_for, table,
};
use crate::nene::{Database, Php};
use crate::requests::{
    acquire, acquire_for, failed, granted, is_unreadable, key, names, purge_leaves, refused,
};
use crate::{SECOND, until};

/// Defect 1: of those who find one expired row, one gets it.
pub async fn of_contenders_for_an_expired_row_one_wins<D: Database>() {
    const ROUNDS: usize = 10_000;
    let (database, store) = table::<D>().await;
    let stores = [store, database.open_table(config()).await];
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
    let mut renewing = renewal_that_waits(&database, &mut php, 4 * SECOND, false).await;
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

pub async fn a_row_that_cannot_be_read_is_corrupt_and_no_grant<D: Database>() {
    let (database, store) = table::<D>().await;
    database.put_unreadable().await;
    let acquired = store.acquire(&acquire("r", "ours", Mode::Exclusive)).await;
    failed(acquired, ErrorKind::Corrupt, Effect::NotApplied, D::UNREADABLE);
    granted(store.acquire(&acquire("well", "ours", Mode::Exclusive)).await);
    is_unreadable(&store, "r").await;
    purge_leaves(&store, &["r"]).await;
    let page = store.list(&ListRequest::new(Filter::default())).await.unwrap();
    assert_eq!(page.records.len(), 1, "one damaged row hides no other");
}

pub async fn a_page_ends_with_a_row_that_cannot_be_read_and_the_next_begins_after_it<
    D: Database,
>() {
    // With the damaged row, as many as the store reads at a time.
    const BEFORE: usize = 999;
    let (database, store) = table::<D>().await;
    database.put_unreadable().await;
    let mut php = database.php();
    php.ask(&["begin"]).unwrap();
    for nth in 0..BEFORE {
        php.crafts(&format!("before {nth}"), "php", 60);
    }
    php.crafts("the last", "php", 60);
    php.ask(&["commit"]).unwrap();
    let request = ListRequest::new(Filter::default()).with_limit(BEFORE + 1);
    let page = store.list(&request).await.unwrap();
    assert_eq!((page.records.len(), names(&page.unreadable)), (BEFORE, vec!["r"]));
    let next = store.list(&request.with_cursor(page.next.unwrap())).await.unwrap();
    let shown: Vec<_> = next.records.iter().map(|record| record.key.as_str()).collect();
    assert_eq!((shown, names(&next.unreadable)), (vec!["the last"], vec![]));
}
