//! The library's defects, which the script has too.

use futures_util::future::join_all;

use super::*;
use crate::until;

#[tokio::test]
async fn an_unlock_whose_second_step_fails_is_reported_as_done() {
    let setup = Setup::new().await;
    setup.x_lock("r", "aaaa", 30).await.unwrap();
    // Refuses the second step and not the first.
    let keep_locked = doc! {
        "collMod": setup.collection.name(),
        "validator": { "exclusive.acquired": true, "exclusive.renewedAt": null },
    };
    let database = setup.collection.client().database(&setup.collection.namespace().db);
    database.run_command(keep_locked).await.unwrap();
    assert!(setup.client.unlock("aaaa").await.all().unwrap().is_empty());
    assert_eq!(setup.all().await, 1);
    assert!(setup.client.renew("aaaa", 60).await.error.unwrap().is_not_found());
}

#[tokio::test]
async fn an_expired_exclusive_lock_keeps_shared_ones_out() {
    let setup = Setup::new().await;
    setup.x_lock("r", "aaaa", 1).await.unwrap();
    setup.passes(10_000);
    refused(setup.s_lock("r", "bbbb", 0).await);
    let _ = setup.client.purge().await.all().unwrap();
    setup.s_lock("r", "bbbb", 0).await.unwrap();
}

#[tokio::test]
async fn an_expired_shared_lock_keeps_others_out() {
    let setup = Setup::new().await;
    setup.s_lock("r", "aaaa", 1).await.unwrap();
    setup.passes(10_000);
    refused(setup.x_lock("r", "bbbb", 0).await);
    refused(setup.client.s_lock("r", "bbbb", &NO_END, 1).await);
    let _ = setup.client.purge().await.all().unwrap();
    setup.x_lock("r", "bbbb", 0).await.unwrap();
}

#[tokio::test]
async fn an_unlock_removes_what_was_locked_again_since_its_first_step() {
    let setup = Setup::new().await;
    setup.x_lock("r", "aaaa", 1).await.unwrap();
    setup.passes(1_100);
    let expired = setup.client.status(&Filter::ttl_lt(1)).await.unwrap();
    setup.x_lock("r", "aaaa", 30).await.unwrap();
    assert!(setup.client.unlock_one(&expired[0]).await);
    setup.x_lock("r", "bbbb", 30).await.unwrap();
}

#[tokio::test]
async fn a_clock_that_is_ahead_takes_locks_away() {
    let setup = Setup::new().await;
    setup.x_lock("r", "aaaa", 30).await.unwrap();
    setup.s_lock("s", "aaaa", 60).await.unwrap();
    refused(setup.client.ahead(29_000).x_lock("r", "bbbb", &NO_END).await);
    setup.client.ahead(30_000).x_lock("r", "bbbb", &NO_END).await.unwrap();
    assert!(setup.client.ahead(61_000).purge().await.all().unwrap().len() == 1);
}

#[tokio::test]
async fn a_limit_of_none_admits_one_where_there_is_no_document() {
    let setup = Setup::new().await;
    setup.client.s_lock("r", "aaaa", &NO_END, 0).await.unwrap();
    let _ = setup.client.unlock("aaaa").await.all().unwrap();
    refused(setup.client.s_lock("r", "aaaa", &NO_END, 0).await);
}

#[tokio::test]
async fn ranges_do_not_apply_to_exclusive_locks() {
    let setup = Setup::new().await;
    setup.x_lock("x", "aaaa", 100).await.unwrap();
    setup.s_lock("s", "aaaa", 100).await.unwrap();
    setup.passes(10);
    let created = Filter {
        created_before: Some(setup.now().saturating_add_millis(-5_000)),
        created_after: Some(setup.now().saturating_add_millis(-10_000)),
        ..Filter::default()
    };
    assert_eq!(setup.found(&created).await, [exclusive("x", "aaaa")]);
    let ttl = Filter { ttl_lt: 50, ttl_gte: 10, ..Filter::default() };
    assert_eq!(setup.found(&ttl).await, [exclusive("x", "aaaa")]);
}

#[tokio::test]
async fn a_second_is_missing_between_ttl_filters() {
    let setup = Setup::new().await;
    setup.x_lock("r", "aaaa", 60).await.unwrap();
    setup.passes(500);
    assert_eq!(setup.found(&Filter::ttl_lt(60)).await, []);
    assert_eq!(setup.found(&Filter { ttl_gte: 60, ..Filter::default() }).await, []);
}

#[tokio::test]
async fn a_lock_without_an_end_fails_every_renewal() {
    let setup = Setup::new().await;
    setup.x_lock("r", "aaaa", 0).await.unwrap();
    assert!(setup.client.renew("aaaa", 60).await.error.unwrap().is_not_found());
}

#[tokio::test]
async fn a_renewal_may_shorten_and_end_a_lock() {
    let setup = Setup::new().await;
    setup.x_lock("r", "aaaa", 60).await.unwrap();
    assert_eq!(setup.client.renew("aaaa", 0).await.all().unwrap().len(), 1);
    setup.x_lock("r", "bbbb", 60).await.unwrap();
}

#[tokio::test]
async fn first_shared_locks_at_one_time_are_refused() {
    let setup = Setup::new().await;
    let mut round = 0;
    // They race only if the server begins two before it has ended one.
    until(async || {
        round += 1;
        let resource = format!("r{round}");
        let ids: Vec<_> = (0..16).map(|id| id.to_string()).collect();
        let locked = join_all(ids.iter().map(|id| setup.s_lock(&resource, id, 0))).await;
        let refused = locked.into_iter().filter_map(Result::err);
        refused.map(|error| assert!(error.is_already_locked())).count() > 0
    })
    .await;
}

#[tokio::test]
async fn without_the_index_two_hold_one_resource() {
    let setup = Setup::without_indexes().await;
    setup.x_lock("r", "aaaa", 30).await.unwrap();
    setup.x_lock("r", "bbbb", 30).await.unwrap();
    assert_eq!(setup.all().await, 2);
}

/// An empty field of a filter is ignored.
#[tokio::test]
async fn an_empty_id_means_every_lock_of_the_collection() {
    let setup = Setup::new().await;
    setup.x_lock("r", "aaaa", 30).await.unwrap();
    setup.s_lock("s", "bbbb", 30).await.unwrap();
    assert_eq!(setup.client.renew("", 60).await.all().unwrap().len(), 2);
    assert_eq!(setup.client.unlock("").await.all().unwrap().len(), 2);

    setup.x_lock("r", "aaaa", 30).await.unwrap();
    setup.x_lock("empty", "", 1).await.unwrap();
    setup.passes(1_100);
    assert_eq!(setup.client.purge().await.all().unwrap().len(), 2);
}

/// `Status` does not ask for the counter, so it does not fail; locks are refused for ever.
#[tokio::test]
async fn a_wrong_counter_breaks_locks_and_not_their_status() {
    let setup = Setup::new().await;
    setup.x_lock("r", "aaaa", 30).await.unwrap();
    setup.collection.update_one(doc! {}, doc! { "$set": { "shared.count": -1 } }).await.unwrap();
    assert_eq!(setup.all().await, 1);
    assert_eq!(setup.client.unlock("aaaa").await.all().unwrap().len(), 1);
    refused(setup.x_lock("r", "aaaa", 30).await);
}
