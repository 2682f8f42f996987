//! C15: a dropped future leaves connections usable and other callers unaffected; its own effect is unknown.

use std::time::Duration;

use futures_util::future::join_all;
use leasehold_core::{
    EvictRequest, Filter, ListRequest, Mode, ReleaseOutcome, ReleaseRequest, Remaining,
    RenewOutcome, Store,
};

use crate::attempt::{Attempt, all_of, key};
use crate::case::{CaseResult, PASSED, behind_proxies, cases};
use crate::dropped::dropped_after;
use crate::failure::{ensure, ensure_eq};
use crate::fixture::Fixture;
use crate::{Backing, Failure, Fault, Result};

cases! {
    c15_a_future_that_was_never_polled_sends_nothing,
    c15_an_acquire_dropped_at_any_poll,
    c15_a_renewal_dropped_at_any_poll,
    c15_a_release_dropped_at_any_poll,
    c15_an_eviction_dropped_at_any_poll,
    c15_a_listing_dropped_at_any_poll,
    c15_a_subscription_dropped_at_any_poll,
    c15_many_dropped_at_once_leave_the_store_usable,
    c15_a_caller_dropped_behind_a_slow_network_harms_no_other,
}

/// More polls than any operation takes.
const MANY: usize = 1_000;

/// Uses the same client for something else.
async fn still_usable<B: Backing>(fixture: &Fixture<B>) -> Result {
    let other = fixture.exclusive("other");
    fixture.client.grant(&other).await?;
    fixture.client.held(&other, other.term).await?;
    fixture.client.released(&other).await?;
    Ok(())
}

/// An attempt at two keys, or one if the store takes no more.
fn pair<B: Backing>(fixture: &Fixture<B>, n: usize) -> Attempt {
    let names = [format!("a:{n}"), format!("b:{n}")];
    let names = [names[0].as_str(), names[1].as_str()];
    let names = if fixture.can.many_keys { &names[..] } else { &names[..1] };
    fixture.attempt(all_of(names, Mode::Exclusive))
}

fn never_ended() -> CaseResult {
    Err(Failure::new(format!("an operation took more than {MANY} polls")))
}

async fn c15_a_future_that_was_never_polled_sends_nothing<B: Backing>(
    fixture: &Fixture<B>,
) -> CaseResult {
    let lease = fixture.exclusive("job");
    fixture.client.grant(&lease).await?;
    let before = fixture.observe().await?;
    let store = fixture.client.store();
    drop(store.acquire(&fixture.exclusive("other").request()));
    drop(store.renew(&lease.renew(fixture.ttl(50))));
    drop(store.release(&ReleaseRequest::new(vec![lease.ending()])));
    drop(store.evict(&EvictRequest::exactly(lease.targets(), None)));
    drop(store.list(&ListRequest::new(Filter::default())));
    drop(store.subscribe(&[key("job")]));
    still_usable(fixture).await?;
    let after = fixture.observe().await?;
    ensure_eq!(after.essence().0, before.essence().0, "the leases after futures never polled");
    let record = fixture.client.only(lease.filter()).await?;
    fixture.remains(record.remaining(), 10, "the term")?;
    PASSED
}

async fn c15_an_acquire_dropped_at_any_poll<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    for polls in 0..MANY {
        let lease = pair(fixture, polls);
        let request = lease.request();
        let answer = dropped_after(polls, fixture.client.store().acquire(&request)).await;
        let ended = answer.transpose()?.is_some();
        let rows = fixture.observe().await?.held(&lease.id).count();
        ensure!(rows == 0 || rows == lease.claims.len(), "a half acquired lease: {rows} rows");
        ensure!(polls > 0 || rows == 0, "an acquire acted that was never polled");
        still_usable(fixture).await?;
        // Sent again, the same request shows what became of it.
        fixture.client.acquire(&lease).await?;
        ensure_eq!(
            fixture.observe().await?.held(&lease.id).count(),
            lease.claims.len(),
            "the rows"
        );
        fixture.another().await?.refuse(&pair(fixture, polls)).await?;
        fixture.client.released(&lease).await?;
        if ended {
            return PASSED;
        }
    }
    never_ended()
}

async fn c15_a_renewal_dropped_at_any_poll<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    for polls in 0..MANY {
        let lease = pair(fixture, polls);
        fixture.client.grant(&lease).await?;
        let request = lease.renew(fixture.ttl(40));
        let answer = dropped_after(polls, fixture.client.store().renew(&request)).await;
        let ended = answer.transpose()?.is_some();
        still_usable(fixture).await?;
        for record in fixture.client.list(lease.filter()).await? {
            let Remaining::For(rest) = record.remaining() else {
                return Err(Failure::new("a lease lost its end"));
            };
            let whole = fixture.about(rest, fixture.ticks(10), "").is_ok()
                || fixture.about(rest, fixture.ticks(40), "").is_ok();
            let most = fixture.ticks(10) + fixture.can.margin + fixture.reports.unit;
            let unchanged = rest <= most;
            ensure!(whole && (polls > 0 || unchanged), "half renewed: {rest:?}");
        }
        let renewed = fixture.client.renew(&lease, fixture.ttl(40)).await?;
        ensure!(matches!(renewed, RenewOutcome::Held(_)), "renewed again: {renewed:?}");
        fixture.client.released(&lease).await?;
        if ended {
            return PASSED;
        }
    }
    never_ended()
}

async fn c15_a_release_dropped_at_any_poll<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    for polls in 0..MANY {
        let lease = pair(fixture, polls);
        fixture.client.grant(&lease).await?;
        let request = ReleaseRequest::new(vec![lease.ending()]);
        let answer = dropped_after(polls, fixture.client.store().release(&request)).await;
        let ended = answer.transpose()?.is_some();
        let rows = fixture.observe().await?.held(&lease.id).count();
        ensure!(rows == 0 || rows == lease.claims.len(), "a half released lease: {rows} rows");
        ensure!(polls > 0 || rows > 0, "a release acted that was never polled");
        still_usable(fixture).await?;
        let again = fixture.client.release(&lease).await?;
        ensure!(
            matches!(again, ReleaseOutcome::Released | ReleaseOutcome::NotHeld),
            "released again: {again:?}"
        );
        fixture.client.grant(&pair(fixture, polls)).await?;
        if ended {
            return PASSED;
        }
    }
    never_ended()
}

async fn c15_an_eviction_dropped_at_any_poll<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    for polls in 0..MANY {
        let lease = fixture.exclusive(&format!("job:{polls}"));
        fixture.client.grant(&lease).await?;
        let request = EvictRequest::exactly(lease.targets(), None);
        let answer = dropped_after(polls, fixture.client.store().evict(&request)).await;
        let ended = answer.transpose()?.is_some();
        let rows = fixture.observe().await?.held(&lease.id).count();
        ensure!(polls > 0 || rows == 1, "an eviction acted that was never polled");
        still_usable(fixture).await?;
        fixture.client.evict(request).await?;
        fixture.holds(lease.key().as_str(), &[]).await?;
        fixture.client.lost(&lease).await?;
        if ended {
            return PASSED;
        }
    }
    never_ended()
}

async fn c15_a_listing_dropped_at_any_poll<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let lease = fixture.exclusive("job");
    fixture.client.grant(&lease).await?;
    let before = fixture.observe().await?;
    for polls in 0..MANY {
        let request = ListRequest::new(Filter::default());
        let answer = dropped_after(polls, fixture.client.store().list(&request)).await;
        let ended = answer.transpose()?.is_some();
        fixture.unchanged(&before).await?;
        fixture.client.only(lease.filter()).await?;
        if ended {
            return PASSED;
        }
    }
    never_ended()
}

async fn c15_a_subscription_dropped_at_any_poll<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    for polls in 0..MANY {
        let keys = [key("job")];
        let answer = dropped_after(polls, fixture.client.store().subscribe(&keys)).await;
        if let Some(mut wakeups) = answer.transpose()? {
            dropped_after(1, wakeups.next()).await;
            drop(wakeups);
            still_usable(fixture).await?;
            return PASSED;
        }
        still_usable(fixture).await?;
    }
    never_ended()
}

async fn c15_many_dropped_at_once_leave_the_store_usable<B: Backing>(
    fixture: &Fixture<B>,
) -> CaseResult {
    let leases: Vec<_> = (0..50).map(|n| fixture.exclusive(&format!("job:{n}"))).collect();
    let requests: Vec<_> = leases.iter().map(Attempt::request).collect();
    let store = fixture.client.store();
    let dropped = requests.iter().map(|request| dropped_after(1, store.acquire(request)));
    for answer in join_all(dropped).await.into_iter().flatten() {
        answer?;
    }
    still_usable(fixture).await?;
    for lease in &leases {
        fixture.client.acquire(lease).await?;
        fixture.holds(lease.key().as_str(), &[lease]).await?;
    }
    PASSED
}

async fn c15_a_caller_dropped_behind_a_slow_network_harms_no_other<B: Backing>(
    fixture: &Fixture<B>,
) -> CaseResult {
    let behind = behind_proxies!(fixture);
    let store = behind.client.store();
    behind.set(Fault::Delay(Duration::from_millis(50)));
    let (dropped, other) = (fixture.exclusive("job"), fixture.exclusive("other"));
    let request = dropped.request();
    let (answer, granted) =
        tokio::join!(dropped_after(1, store.acquire(&request)), behind.client.grant(&other));
    granted?;
    ensure!(answer.is_none(), "answered at the first poll: {answer:?}");
    // Sent again, the same request shows what became of it.
    behind.client.acquire(&dropped).await?;
    fixture.holds("job", &[&dropped]).await?;
    // Nobody gets the page that another has asked for.
    for polls in 1..10 {
        let request = ListRequest::new(Filter::default());
        dropped_after(polls, store.list(&request)).await.transpose()?;
        behind.client.only(other.filter()).await?;
    }
    behind.client.released(&other).await?;
    PASSED
}
