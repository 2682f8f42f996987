//! C10 where the network fails: a request without an answer is an error that states whether it may have acted.

use std::time::Duration;

use leasehold_core::{
    AcquireReply, Effect, Error, ErrorKind, EvictRequest, Filter, ListRequest, ReleaseRequest,
    RenewOutcome, Store,
};

use crate::attempt::Attempt;
use crate::case::{CaseResult, PASSED, behind_proxies, cases, rejected};
use crate::failure::{ensure, ensure_eq, take};
use crate::fixture::{BehindProxies, Fixture};
use crate::{Backing, Failure, Fault, Result};

cases! {
    c10_a_lost_reply_is_recovered_by_sending_again,
    c10_a_lost_request_may_be_sent_again,
    c10_a_dead_connection_is_replaced,
    c10_a_server_that_hangs_is_given_up,
}

/// Longer than an operation takes to give up, even on a busy machine.
const GIVEN_UP: Duration = Duration::from_secs(60);

/// Waits for an operation that must give up by itself.
async fn given_up<T>(operation: impl Future<Output = T>) -> Result<T> {
    let ended = tokio::time::timeout(GIVEN_UP, operation).await;
    ended.map_err(|_| Failure::new(format!("an operation did not give up within {GIVEN_UP:?}")))
}

/// Checks that a failure is reported as the store's.
fn unavailable(error: &Error) -> Result {
    ensure_eq!(error.kind(), ErrorKind::Unavailable, "the kind of {error:?}");
    Ok(())
}

/// Sends an acquire into the fault. Its error states whether the same request may be sent again, which then shows
/// the result of the first; or it did not act, or was rolled back.
async fn acquire_meets<B: Backing>(
    fixture: &Fixture<B>,
    behind: &BehindProxies<B::Store>,
    fault: Fault,
) -> Result {
    let lease = fixture.exclusive(&format!("{fault:?}"));
    fixture.followed().await?;
    behind.once(fault);
    let answer = given_up(behind.client.store().acquire(&lease.request())).await?;
    let stored = fixture.observe().await?.held(&lease.id).next().cloned();
    if let (Ok(AcquireReply::Granted(granted)), true) = (&answer, fixture.reports.resends) {
        let stored = stored.map(|row| row.token);
        ensure_eq!(
            stored,
            Some(granted.token),
            "{fault:?}: the token of a grant that was sent again"
        );
        return behind.client.released(&lease).await;
    }
    let error = rejected(answer)?;
    unavailable(&error)?;
    if error.effect() == Effect::NotApplied {
        ensure!(stored.is_none(), "{fault:?}: reported to have no effect, but left {stored:?}");
        return fresh(fixture, behind, &fixture.exclusive(lease.key().as_str())).await;
    }
    let Some(stored) = stored else { return fresh(fixture, behind, &lease).await };
    let again = behind.client.confirm(&lease).await?;
    ensure_eq!(again.token, stored.token, "{fault:?}: the token of a grant whose reply was lost");
    behind.client.released(&lease).await
}

/// Checks that the client still works: this lease is new.
async fn fresh<B: Backing>(
    fixture: &Fixture<B>,
    behind: &BehindProxies<B::Store>,
    lease: &Attempt,
) -> Result {
    behind.client.grant(lease).await?;
    fixture.holds(lease.key().as_str(), &[lease]).await?;
    behind.client.released(lease).await
}

async fn c10_a_lost_reply_is_recovered_by_sending_again<B: Backing>(
    fixture: &Fixture<B>,
) -> CaseResult {
    let behind = behind_proxies!(fixture);
    fresh(fixture, &behind, &fixture.exclusive("first")).await?;
    for fault in [Fault::CutAfter, Fault::SwallowAnswers] {
        acquire_meets(fixture, &behind, fault).await?;
    }
    PASSED
}

async fn c10_a_lost_request_may_be_sent_again<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let behind = behind_proxies!(fixture);
    fresh(fixture, &behind, &fixture.exclusive("first")).await?;
    acquire_meets(fixture, &behind, Fault::CutBefore).await?;
    PASSED
}

async fn c10_a_dead_connection_is_replaced<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let behind = behind_proxies!(fixture);
    fresh(fixture, &behind, &fixture.exclusive("first")).await?;
    for fault in [Fault::BlackHole, Fault::HalfOpen] {
        acquire_meets(fixture, &behind, fault).await?;
    }
    PASSED
}

/// Every operation gives up and reports no holder; what was held is held when the server answers again.
async fn c10_a_server_that_hangs_is_given_up<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let behind = behind_proxies!(fixture);
    let (lease, other) = (fixture.exclusive("held"), fixture.exclusive("other"));
    behind.client.grant(&lease).await?;
    let store = behind.client.store();
    fixture.followed().await?;
    behind.set(Fault::BlackHole);
    let (acquire, renew) = (other.request(), lease.renew(lease.term));
    let release = ReleaseRequest::new(vec![other.ending()]);
    let (list, purge) =
        (ListRequest::new(Filter::default()), EvictRequest::expired(Filter::default()));
    let (acquired, renewed, released, listed, purged) = given_up(async {
        tokio::join!(
            store.acquire(&acquire),
            store.renew(&renew),
            store.release(&release),
            store.list(&list),
            store.evict(&purge),
        )
    })
    .await?;
    unavailable(&rejected(acquired)?)?;
    match renewed {
        Err(error) => unavailable(&error)?,
        Ok(renewed) => {
            let error =
                take!(RenewOutcome::Failed(error) => error, &renewed.leases[0], "a renewal");
            unavailable(error)?;
        }
    }
    match released {
        Err(error) => unavailable(&error)?,
        Ok(released) => {
            let error = take!(
                leasehold_core::ReleaseOutcome::Failed(error) => error,
                &released.leases[0],
                "a release"
            );
            unavailable(error)?;
        }
    }
    match listed {
        Err(error) => unavailable(&error)?,
        // A quorum reports each node's failure.
        Ok(page) => ensure!(
            !page.nodes.is_empty() && page.nodes.iter().all(|node| node.error.is_some()),
            "listed by a server that does not answer: {page:?}"
        ),
    }
    unavailable(&rejected(purged)?)?;
    behind.set(Fault::None);
    // The first request may find that the old connection is dead.
    let mut answer = store.renew(&renew).await;
    for _ in 0..3 {
        match &answer {
            Ok(renewed) if matches!(renewed.leases[0], RenewOutcome::Held(_)) => break,
            _ => answer = store.renew(&renew).await,
        }
    }
    let renewed = answer?.leases.remove(0);
    ensure!(matches!(renewed, RenewOutcome::Held(_)), "renewed when all is well: {renewed:?}");
    fixture.holds("held", &[&lease]).await?;
    match behind.client.acquire(&fixture.exclusive("held")).await? {
        AcquireReply::Refused(_) => PASSED,
        granted => Err(Failure::new(format!("a foreign lock was granted: {granted:?}"))),
    }
}
