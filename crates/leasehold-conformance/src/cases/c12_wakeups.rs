//! C12: wake-ups are hints; whoever waits also polls.

use std::time::Duration;

use futures_util::FutureExt;
use leasehold_core::{Filter, Key, Store, Wakeups};

use crate::attempt::key;
use crate::bench::Bench;
use crate::case::{PASSED, Verdict, behind_proxies, cases};
use crate::failure::{ensure, ensure_eq};
use crate::{Backing, Failure, Proxy, Result};

cases! {
    c12_a_release_wakes [Push],
    c12_a_release_of_another_client_wakes [Push],
    c12_an_eviction_wakes [Push],
    c12_every_subscriber_is_woken [Push],
    c12_one_of_several_keys_wakes [Push],
    c12_a_hint_names_a_key_that_was_asked_for [Push],
    c12_a_dropped_subscription_disturbs_nobody [Push],
    c12_a_hint_missed_before_the_subscription_does_no_harm [Push],
    c12_a_cut_connection_wakes_who_waits [Push],
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

async fn c12_a_release_wakes<B: Backing>(bench: &Bench<B>) -> Verdict {
    let lease = bench.exclusive("job");
    bench.client.grant(&lease).await?;
    let mut wakeups = bench.client.store().subscribe(&[key("job")]).await?;
    bench.client.released(&lease).await?;
    ensure_eq!(woken(&mut wakeups).await?, key("job"), "the key of the hint");
    let next = bench.exclusive("job");
    bench.client.grant(&next).await?;
    bench.client.released(&next).await?;
    woken(&mut wakeups).await?;
    PASSED
}

async fn c12_a_release_of_another_client_wakes<B: Backing>(bench: &Bench<B>) -> Verdict {
    let other = bench.another().await?;
    let lease = bench.exclusive("job");
    other.grant(&lease).await?;
    let mut wakeups = bench.client.store().subscribe(&[key("job")]).await?;
    other.released(&lease).await?;
    woken(&mut wakeups).await?;
    bench.client.grant(&bench.exclusive("job")).await?;
    PASSED
}

async fn c12_an_eviction_wakes<B: Backing>(bench: &Bench<B>) -> Verdict {
    let lease = bench.exclusive("job");
    bench.client.grant(&lease).await?;
    let mut wakeups = bench.client.store().subscribe(&[key("job")]).await?;
    bench.another().await?.evict_these(lease.targets(), None).await?;
    woken(&mut wakeups).await?;
    bench.client.grant(&bench.exclusive("job")).await?;
    PASSED
}

async fn c12_every_subscriber_is_woken<B: Backing>(bench: &Bench<B>) -> Verdict {
    let lease = bench.exclusive("job");
    bench.client.grant(&lease).await?;
    let other = bench.another().await?;
    let mut subscriptions = Vec::new();
    for store in [bench.client.store(), other.store(), other.store()] {
        subscriptions.push(store.subscribe(&[key("job")]).await?);
    }
    bench.client.released(&lease).await?;
    for wakeups in &mut subscriptions {
        woken(wakeups).await?;
    }
    PASSED
}

async fn c12_one_of_several_keys_wakes<B: Backing>(bench: &Bench<B>) -> Verdict {
    let leases = [bench.exclusive("a"), bench.exclusive("b"), bench.exclusive("c")];
    for lease in &leases {
        bench.client.grant(lease).await?;
    }
    let keys = [key("a"), key("b"), key("c")];
    let mut wakeups = bench.client.store().subscribe(&keys).await?;
    for lease in &leases {
        bench.client.released(lease).await?;
        woken(&mut wakeups).await?;
    }
    PASSED
}

/// A hint may be spurious, but it is about what was asked.
async fn c12_a_hint_names_a_key_that_was_asked_for<B: Backing>(bench: &Bench<B>) -> Verdict {
    let mut wakeups = bench.client.store().subscribe(&[key("job"), key("job%")]).await?;
    for name in ["other", "job_x", "jo", "JOB", "job"] {
        let lease = bench.exclusive(name);
        bench.client.grant(&lease).await?;
        bench.client.released(&lease).await?;
    }
    let hint = woken(&mut wakeups).await?;
    ensure!([key("job"), key("job%")].contains(&hint), "a hint about {hint:?}");
    PASSED
}

async fn c12_a_dropped_subscription_disturbs_nobody<B: Backing>(bench: &Bench<B>) -> Verdict {
    let lease = bench.exclusive("job");
    bench.client.grant(&lease).await?;
    let store = bench.client.store();
    let mut kept = store.subscribe(&[key("job")]).await?;
    let mut dropped = store.subscribe(&[key("job"), key("other")]).await?;
    let polled = dropped.next().now_or_never();
    ensure!(polled != Some(key("other")), "a hint about a key that nobody touched");
    drop(dropped);
    bench.client.released(&lease).await?;
    woken(&mut kept).await?;
    PASSED
}

/// Subscribed too late, a waiter that tries behind the subscription is served, and hears of the next release.
async fn c12_a_hint_missed_before_the_subscription_does_no_harm<B: Backing>(
    bench: &Bench<B>,
) -> Verdict {
    let other = bench.another().await?;
    let (lease, waiter) = (bench.exclusive("job"), bench.exclusive("job"));
    other.grant(&lease).await?;
    bench.client.refuse(&waiter).await?;
    other.released(&lease).await?;
    let mut wakeups = bench.client.store().subscribe(&[key("job")]).await?;
    bench.client.grant(&waiter).await?;
    other.released(&waiter).await?;
    woken(&mut wakeups).await?;
    PASSED
}

/// What was released while nobody could be told may be free: whoever waits is told when the connection is back, and hears
/// of later releases again.
async fn c12_a_cut_connection_wakes_who_waits<B: Backing>(bench: &Bench<B>) -> Verdict {
    let behind = behind_proxies!(bench);
    let lease = bench.exclusive("job");
    bench.client.grant(&lease).await?;
    let mut wakeups = behind.client.store().subscribe(&[key("job")]).await?;
    behind.proxies.iter().for_each(Proxy::cut);
    woken(&mut wakeups).await?;
    // Spurious hints are allowed, so only one that comes with a release counts.
    while wakeups.next().now_or_never().is_some() {}
    bench.client.released(&lease).await?;
    woken(&mut wakeups).await?;
    PASSED
}

/// Without any subscription a waiter that tries again is served as soon as the key is free, and not before.
async fn c12_a_waiter_that_polls_needs_no_hint<B: Backing>(bench: &Bench<B>) -> Verdict {
    let lease = bench.exclusive("job");
    bench.client.grant(&lease).await?;
    let waiter = bench.another().await?;
    for _ in 0..3 {
        waiter.refuse(&bench.exclusive("job")).await?;
        bench.pass(3).await;
    }
    bench.client.released(&lease).await?;
    waiter.grant(&bench.exclusive("job")).await?;
    PASSED
}

async fn c12_subscribing_changes_nothing<B: Backing>(bench: &Bench<B>) -> Verdict {
    let lease = bench.exclusive("job");
    bench.client.grant(&lease).await?;
    let before = bench.observe().await?;
    let wakeups = bench.client.store().subscribe(&[key("job"), key("unknown")]).await?;
    bench.unchanged(&before).await?;
    ensure_eq!(bench.client.list(Filter::default()).await?.len(), 1, "the records");
    drop(wakeups);
    bench.unchanged(&before).await?;
    PASSED
}
