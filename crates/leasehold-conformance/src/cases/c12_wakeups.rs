//! C12: wake-ups are hints; waiters also poll.

use std::time::Duration;

use futures_util::FutureExt;
use leasehold_core::{Filter, Key, ReleaseRequest, Store, Wakeups};

use crate::attempt::key;
use crate::case::{CaseResult, PASSED, behind_proxies, cases};
use crate::failure::{ensure, ensure_eq};
use crate::fixture::Fixture;
use crate::{Backing, Failure, Proxy, Result};

cases! {
    c12_a_release_wakes [Notifications],
    c12_a_release_of_another_client_wakes [Notifications],
    c12_an_eviction_wakes [Notifications],
    c12_every_subscriber_is_woken [Notifications],
    c12_one_of_several_keys_wakes [Notifications],
    c12_a_release_without_wakeup_wakes_nobody [Notifications, QuietReleases],
    c12_a_hint_names_a_requested_key [Notifications],
    c12_a_dropped_subscription_disturbs_nobody [Notifications],
    c12_a_hint_missed_before_the_subscription_does_no_harm [Notifications],
    c12_a_cut_connection_wakes_waiters [Notifications],
    c12_a_waiter_that_polls_needs_no_hint,
    c12_subscribing_changes_nothing,
}

/// How long a hint may take where nothing is lost.
const SOON: Duration = Duration::from_secs(10);

/// Waits for a hint.
async fn woken(wakeups: &mut Wakeups) -> Result<Key> {
    match tokio::time::timeout(SOON, wakeups.next()).await {
        Ok(key) => Ok(key),
        Err(_) => Err(Failure::new(format!("no wake-up within {SOON:?}"))),
    }
}

async fn c12_a_release_wakes<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let lease = fixture.exclusive("job");
    fixture.client.grant(&lease).await?;
    let mut wakeups = fixture.client.store().subscribe(&[key("job")]).await?;
    fixture.client.released(&lease).await?;
    ensure_eq!(woken(&mut wakeups).await?, key("job"), "the key of the hint");
    let next = fixture.exclusive("job");
    fixture.client.grant(&next).await?;
    fixture.client.released(&next).await?;
    woken(&mut wakeups).await?;
    PASSED
}

async fn c12_a_release_of_another_client_wakes<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let other = fixture.another().await?;
    let lease = fixture.exclusive("job");
    other.grant(&lease).await?;
    let mut wakeups = fixture.client.store().subscribe(&[key("job")]).await?;
    other.released(&lease).await?;
    woken(&mut wakeups).await?;
    fixture.client.grant(&fixture.exclusive("job")).await?;
    PASSED
}

async fn c12_an_eviction_wakes<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let lease = fixture.exclusive("job");
    fixture.client.grant(&lease).await?;
    let mut wakeups = fixture.client.store().subscribe(&[key("job")]).await?;
    fixture.another().await?.evict_these(lease.targets(), None).await?;
    woken(&mut wakeups).await?;
    fixture.client.grant(&fixture.exclusive("job")).await?;
    PASSED
}

async fn c12_every_subscriber_is_woken<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let lease = fixture.exclusive("job");
    fixture.client.grant(&lease).await?;
    let other = fixture.another().await?;
    let mut subscriptions = Vec::new();
    for store in [fixture.client.store(), other.store(), other.store()] {
        subscriptions.push(store.subscribe(&[key("job")]).await?);
    }
    fixture.client.released(&lease).await?;
    for wakeups in &mut subscriptions {
        woken(wakeups).await?;
    }
    PASSED
}

async fn c12_one_of_several_keys_wakes<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let leases = [fixture.exclusive("a"), fixture.exclusive("b"), fixture.exclusive("c")];
    for lease in &leases {
        fixture.client.grant(lease).await?;
    }
    let keys = [key("a"), key("b"), key("c")];
    let mut wakeups = fixture.client.store().subscribe(&keys).await?;
    for lease in &leases {
        fixture.client.released(lease).await?;
        woken(&mut wakeups).await?;
    }
    PASSED
}

/// A quorum takes back the parts of a lease that was never granted: waiters who try then would only split again.
async fn c12_a_release_without_wakeup_wakes_nobody<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let (job, other) = (fixture.exclusive("job"), fixture.exclusive("other"));
    let mut wakeups = fixture.client.store().subscribe(&[key("job"), key("other")]).await?;
    for lease in [&job, &other] {
        fixture.client.grant(lease).await?;
        fixture.client.released(lease).await?;
        while woken(&mut wakeups).await? != lease.claims.first().key {}
        fixture.client.grant(lease).await?;
    }
    // A spurious hint follows the subscription, if any does.
    while wakeups.next().now_or_never().is_some() {}
    let quiet = ReleaseRequest::new(vec![job.ending().without_wakeup()]);
    fixture.client.release_all(quiet).await?;
    fixture.client.released(&other).await?;
    ensure_eq!(woken(&mut wakeups).await?, key("other"), "the first hint");
    fixture.client.grant(&fixture.exclusive("job")).await?;
    PASSED
}

/// A hint may be spurious, but it names a requested key.
async fn c12_a_hint_names_a_requested_key<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let mut wakeups = fixture.client.store().subscribe(&[key("job"), key("job%")]).await?;
    for name in ["other", "job_x", "jo", "JOB", "job"] {
        let lease = fixture.exclusive(name);
        fixture.client.grant(&lease).await?;
        fixture.client.released(&lease).await?;
    }
    let hint = woken(&mut wakeups).await?;
    ensure!([key("job"), key("job%")].contains(&hint), "a hint about {hint:?}");
    PASSED
}

async fn c12_a_dropped_subscription_disturbs_nobody<B: Backing>(
    fixture: &Fixture<B>,
) -> CaseResult {
    let lease = fixture.exclusive("job");
    fixture.client.grant(&lease).await?;
    let store = fixture.client.store();
    let mut kept = store.subscribe(&[key("job")]).await?;
    let mut dropped = store.subscribe(&[key("job"), key("other")]).await?;
    let polled = dropped.next().now_or_never();
    ensure!(polled != Some(key("other")), "a hint about a key that nobody touched");
    drop(dropped);
    fixture.client.released(&lease).await?;
    woken(&mut kept).await?;
    PASSED
}

/// A waiter that subscribes too late, and tries after the subscription, is served, and is woken by the next release.
async fn c12_a_hint_missed_before_the_subscription_does_no_harm<B: Backing>(
    fixture: &Fixture<B>,
) -> CaseResult {
    let other = fixture.another().await?;
    let (lease, waiter) = (fixture.exclusive("job"), fixture.exclusive("job"));
    other.grant(&lease).await?;
    fixture.client.refuse(&waiter).await?;
    other.released(&lease).await?;
    let mut wakeups = fixture.client.store().subscribe(&[key("job")]).await?;
    fixture.client.grant(&waiter).await?;
    other.released(&waiter).await?;
    woken(&mut wakeups).await?;
    PASSED
}

/// A release during an interruption may have freed the key: waiters are woken when the connection is back, and
/// are woken by later releases again.
async fn c12_a_cut_connection_wakes_waiters<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let behind = behind_proxies!(fixture);
    let lease = fixture.exclusive("job");
    fixture.client.grant(&lease).await?;
    let mut wakeups = behind.client.store().subscribe(&[key("job")]).await?;
    behind.proxies.iter().for_each(Proxy::cut);
    woken(&mut wakeups).await?;
    // Spurious hints are allowed, so only one that follows the release counts.
    while wakeups.next().now_or_never().is_some() {}
    fixture.client.released(&lease).await?;
    woken(&mut wakeups).await?;
    PASSED
}

/// Without a subscription, a waiter that tries again is served as soon as the key is free, and not before.
async fn c12_a_waiter_that_polls_needs_no_hint<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let lease = fixture.exclusive("job");
    fixture.client.grant(&lease).await?;
    let waiter = fixture.another().await?;
    for _ in 0..3 {
        waiter.refuse(&fixture.exclusive("job")).await?;
        fixture.pass(3).await;
    }
    fixture.client.released(&lease).await?;
    waiter.grant(&fixture.exclusive("job")).await?;
    PASSED
}

async fn c12_subscribing_changes_nothing<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let lease = fixture.exclusive("job");
    fixture.client.grant(&lease).await?;
    let before = fixture.observe().await?;
    let wakeups = fixture.client.store().subscribe(&[key("job"), key("unknown")]).await?;
    fixture.unchanged(&before).await?;
    ensure_eq!(fixture.client.list(Filter::default()).await?.len(), 1, "the records");
    drop(wakeups);
    fixture.unchanged(&before).await?;
    PASSED
}
