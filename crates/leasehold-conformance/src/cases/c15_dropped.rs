//! C15: a dropped future leaves connections usable and other callers unaffected; its own effect is unknown.

use std::time::Duration;

use futures_util::future::join_all;
use leasehold_core::{
    Evict, Filter, LeaseReleased, LeaseRenewed, List, Mode, Release, Remaining, Store,
};

use crate::attempt::{Attempt, all_of, key};
use crate::bench::Bench;
use crate::case::{PASSED, Verdict, behind_proxies, cases};
use crate::dropped::dropped_after;
use crate::failure::{ensure, ensure_eq};
use crate::{Backing, Failure, Fault, Result};

cases! {
    c15_what_was_never_polled_sends_nothing,
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
async fn still_usable<B: Backing>(bench: &Bench<B>) -> Result {
    let other = bench.exclusive("other");
    bench.client.grant(&other).await?;
    bench.client.held(&other, other.term).await?;
    bench.client.released(&other).await?;
    Ok(())
}

/// An attempt at as many keys as the store takes at once, up to two.
fn pair<B: Backing>(bench: &Bench<B>, n: usize) -> Attempt {
    let names = [format!("a:{n}"), format!("b:{n}")];
    let names = [names[0].as_str(), names[1].as_str()];
    let names = if bench.can.many_keys { &names[..] } else { &names[..1] };
    bench.attempt(all_of(names, Mode::Exclusive))
}

fn never_ended() -> Verdict {
    Err(Failure::new(format!("an operation took more than {MANY} polls")))
}

async fn c15_what_was_never_polled_sends_nothing<B: Backing>(bench: &Bench<B>) -> Verdict {
    let lease = bench.exclusive("job");
    bench.client.grant(&lease).await?;
    let before = bench.observe().await?;
    let store = bench.client.store();
    drop(store.acquire(&bench.exclusive("other").request()));
    drop(store.renew(&lease.renew(bench.ttl(50))));
    drop(store.release(&Release::new(vec![lease.ending()])));
    drop(store.evict(&Evict::exactly(lease.targets(), None)));
    drop(store.list(&List::new(Filter::default())));
    drop(store.subscribe(&[key("job")]));
    still_usable(bench).await?;
    let after = bench.observe().await?;
    ensure_eq!(after.essence().0, before.essence().0, "the leases after futures never polled");
    let record = bench.client.only(lease.filter()).await?;
    bench.remains(record.remaining(), 10, "the term")?;
    PASSED
}

async fn c15_an_acquire_dropped_at_any_poll<B: Backing>(bench: &Bench<B>) -> Verdict {
    for polls in 0..MANY {
        let lease = pair(bench, polls);
        let request = lease.request();
        let answer = dropped_after(polls, bench.client.store().acquire(&request)).await;
        let ended = answer.transpose()?.is_some();
        let rows = bench.observe().await?.held(&lease.id).count();
        ensure!(rows == 0 || rows == lease.claims.len(), "a half acquired lease: {rows} rows");
        ensure!(polls > 0 || rows == 0, "an acquire acted that was never polled");
        still_usable(bench).await?;
        // Sent again, the same request learns what became of it.
        bench.client.acquire(&lease).await?;
        ensure_eq!(bench.observe().await?.held(&lease.id).count(), lease.claims.len(), "the rows");
        bench.another().await?.refuse(&pair(bench, polls)).await?;
        bench.client.released(&lease).await?;
        if ended {
            return PASSED;
        }
    }
    never_ended()
}

async fn c15_a_renewal_dropped_at_any_poll<B: Backing>(bench: &Bench<B>) -> Verdict {
    for polls in 0..MANY {
        let lease = pair(bench, polls);
        bench.client.grant(&lease).await?;
        let request = lease.renew(bench.ttl(40));
        let answer = dropped_after(polls, bench.client.store().renew(&request)).await;
        let ended = answer.transpose()?.is_some();
        still_usable(bench).await?;
        for record in bench.client.list(lease.filter()).await? {
            let Remaining::For(rest) = record.remaining() else {
                return Err(Failure::new("a lease lost its end"));
            };
            let whole = bench.about(rest, bench.ticks(10), "").is_ok()
                || bench.about(rest, bench.ticks(40), "").is_ok();
            ensure!(whole && (polls > 0 || rest <= bench.ticks(10)), "half renewed: {rest:?}");
        }
        let renewed = bench.client.renew(&lease, bench.ttl(40)).await?;
        ensure!(matches!(renewed, LeaseRenewed::Held(_)), "renewed again: {renewed:?}");
        bench.client.released(&lease).await?;
        if ended {
            return PASSED;
        }
    }
    never_ended()
}

async fn c15_a_release_dropped_at_any_poll<B: Backing>(bench: &Bench<B>) -> Verdict {
    for polls in 0..MANY {
        let lease = pair(bench, polls);
        bench.client.grant(&lease).await?;
        let request = Release::new(vec![lease.ending()]);
        let answer = dropped_after(polls, bench.client.store().release(&request)).await;
        let ended = answer.transpose()?.is_some();
        let rows = bench.observe().await?.held(&lease.id).count();
        ensure!(rows == 0 || rows == lease.claims.len(), "a half released lease: {rows} rows");
        ensure!(polls > 0 || rows > 0, "a release acted that was never polled");
        still_usable(bench).await?;
        let again = bench.client.release(&lease).await?;
        ensure!(
            matches!(again, LeaseReleased::Released | LeaseReleased::NotHeld),
            "released again: {again:?}"
        );
        bench.client.grant(&pair(bench, polls)).await?;
        if ended {
            return PASSED;
        }
    }
    never_ended()
}

async fn c15_an_eviction_dropped_at_any_poll<B: Backing>(bench: &Bench<B>) -> Verdict {
    for polls in 0..MANY {
        let lease = bench.exclusive(&format!("job:{polls}"));
        bench.client.grant(&lease).await?;
        let request = Evict::exactly(lease.targets(), None);
        let answer = dropped_after(polls, bench.client.store().evict(&request)).await;
        let ended = answer.transpose()?.is_some();
        let rows = bench.observe().await?.held(&lease.id).count();
        ensure!(polls > 0 || rows == 1, "an eviction acted that was never polled");
        still_usable(bench).await?;
        bench.client.evict(request).await?;
        bench.holds(lease.key().as_str(), &[]).await?;
        bench.client.lost(&lease).await?;
        if ended {
            return PASSED;
        }
    }
    never_ended()
}

async fn c15_a_listing_dropped_at_any_poll<B: Backing>(bench: &Bench<B>) -> Verdict {
    let lease = bench.exclusive("job");
    bench.client.grant(&lease).await?;
    let before = bench.observe().await?;
    for polls in 0..MANY {
        let request = List::new(Filter::default());
        let answer = dropped_after(polls, bench.client.store().list(&request)).await;
        let ended = answer.transpose()?.is_some();
        bench.unchanged(&before).await?;
        bench.client.only(lease.filter()).await?;
        if ended {
            return PASSED;
        }
    }
    never_ended()
}

async fn c15_a_subscription_dropped_at_any_poll<B: Backing>(bench: &Bench<B>) -> Verdict {
    for polls in 0..MANY {
        let keys = [key("job")];
        let answer = dropped_after(polls, bench.client.store().subscribe(&keys)).await;
        if let Some(mut wakeups) = answer.transpose()? {
            dropped_after(1, wakeups.next()).await;
            drop(wakeups);
            still_usable(bench).await?;
            return PASSED;
        }
        still_usable(bench).await?;
    }
    never_ended()
}

async fn c15_many_dropped_at_once_leave_the_store_usable<B: Backing>(bench: &Bench<B>) -> Verdict {
    let leases: Vec<_> = (0..50).map(|n| bench.exclusive(&format!("job:{n}"))).collect();
    let requests: Vec<_> = leases.iter().map(Attempt::request).collect();
    let store = bench.client.store();
    let dropped = requests.iter().map(|request| dropped_after(1, store.acquire(request)));
    for answer in join_all(dropped).await.into_iter().flatten() {
        answer?;
    }
    still_usable(bench).await?;
    for lease in &leases {
        bench.client.acquire(lease).await?;
        bench.holds(lease.key().as_str(), &[lease]).await?;
    }
    PASSED
}

async fn c15_a_caller_dropped_behind_a_slow_network_harms_no_other<B: Backing>(
    bench: &Bench<B>,
) -> Verdict {
    let behind = behind_proxies!(bench);
    let store = behind.client.store();
    behind.set(Fault::Delay(Duration::from_millis(50)));
    let (dropped, other) = (bench.exclusive("job"), bench.exclusive("other"));
    let request = dropped.request();
    let (answer, granted) =
        tokio::join!(dropped_after(1, store.acquire(&request)), behind.client.grant(&other));
    granted?;
    ensure!(answer.is_none(), "answered at the first poll: {answer:?}");
    // Sent again, the same request learns what became of it.
    behind.client.acquire(&dropped).await?;
    bench.holds("job", &[&dropped]).await?;
    behind.client.released(&other).await?;
    PASSED
}
