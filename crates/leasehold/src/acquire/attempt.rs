use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{
    AcquireReply, AcquireRequest, BoxFuture, Effect, Error, Granted, Random, RefusalReason,
    Refused, Store, Wait,
};

use crate::keeper::in_flight::{InFlight, OnOrphan};
use crate::keeper::{Keeper, at_once, caught};
use crate::lease::cleanup::Cleanup;

/// The outcome of one try.
#[derive(Debug)]
pub(crate) enum AttemptOutcome {
    /// The store granted it to a request that was sent at `sent`.
    Granted {
        granted: Granted,
        sent: Duration,
    },
    Refused(Refused),
    Failed(Error),
}

impl AttemptOutcome {
    /// The name of the outcome in metrics.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Granted { .. } => "granted",
            Self::Refused(_) => "refused",
            Self::Failed(_) => "failed",
        }
    }

    /// Whether the store has decided, so that the request is not sent again and leaves nothing unknown.
    fn is_decided(&self) -> bool {
        match self {
            Self::Granted { .. } => true,
            Self::Refused(refused) => !matches!(refused.why, RefusalReason::Busy),
            Self::Failed(_) => false,
        }
    }
}

/// The shortest and the longest pause before a resend within one try.
const RESEND: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(500));

/// For how long after its start a try sends again to learn an outcome, where its caller wants a number of tries: a store
/// that is silent takes its own limit each time.
const RESENDING: Duration = Duration::from_secs(1);

/// The instants of one try.
#[derive(Clone, Copy)]
pub(crate) struct Times {
    /// When it starts.
    start: Duration,
    /// Until when it sends again to learn an outcome.
    resend_by: Duration,
    /// When it ends at the latest.
    limit: Duration,
}

impl Times {
    /// The times of a try that starts at `start`, for a caller with this wait.
    pub(crate) fn new(start: Duration, wait: Wait, limit: Duration) -> Self {
        let resend_by = match wait {
            Wait::No | Wait::Attempts(_) => start.saturating_add(RESENDING).min(limit),
            Wait::UpTo(_) | Wait::Forever => limit,
        };
        Self { start, resend_by, limit }
    }
}

/// Makes one try; `may_leave` is what it may leave at the store if nobody awaits its outcome. Returns also whether it
/// ended at once, without a wait.
///
/// # Cancel safety
/// The Keeper finishes a request that was sent, and releases what it wins (F6).
pub(crate) async fn attempt(
    keeper: &Arc<Keeper>,
    request: AcquireRequest,
    may_leave: impl FnOnce() -> Cleanup,
    times: Times,
) -> (AttemptOutcome, bool) {
    let mut sending: BoxFuture<_> = Box::pin(send(Arc::clone(keeper), request, times.start));
    // What is decided at once, as in a store of this process, needs nobody to finish it.
    match at_once(&mut sending).await {
        Some(Sent { outcome, .. }) if outcome.is_decided() => return (outcome, true),
        Some(sent) => sending = Box::pin(ready(sent)),
        None => {}
    }
    let duty = OnOrphan::new(keeper, vec![may_leave()]);
    (Box::pin(see_through(keeper, sending, duty, times)).await, false)
}

/// Waits for the outcome of a try that was sent.
async fn see_through(
    keeper: &Arc<Keeper>,
    sending: BoxFuture<'static, Sent>,
    duty: Arc<OnOrphan>,
    times: Times,
) -> AttemptOutcome {
    let Times { start, limit, .. } = times;
    let resending = resend(Arc::clone(keeper), sending, Arc::clone(&duty), times);
    let mut in_flight = InFlight::new(&duty, resending);
    tokio::select! {
        biased;
        outcome = &mut in_flight => {
            if matches!(outcome, AttemptOutcome::Granted { .. }) {
                // From here on, releasing it is the caller's duty.
                duty.settle();
            }
            outcome
        }
        () = keeper.clock.sleep_until(limit) => {
            AttemptOutcome::Failed(keeper.unanswered("acquire", limit.saturating_sub(start)))
        }
    }
}

/// A request and its outcome.
struct Sent {
    request: AcquireRequest,
    outcome: AttemptOutcome,
}

/// Sends the request at `sent`.
async fn send(keeper: Arc<Keeper>, request: AcquireRequest, sent: Duration) -> Sent {
    let answer = caught(keeper.store.acquire(&request)).await.and_then(|answer| answer);
    let outcome = match answer {
        // F4: the term counts from before the request was sent.
        Ok(AcquireReply::Granted(granted)) => AttemptOutcome::Granted { granted, sent },
        Ok(AcquireReply::Refused(refused)) => AttemptOutcome::Refused(refused),
        Err(error) => AttemptOutcome::Failed(error),
    };
    Sent { request, outcome }
}

/// Waits for the request's outcome, and sends it again while its effect is unknown or the key is busy.
///
/// If the request may have acted, `duty` keeps naming it (C3): an id abandoned after an unknown effect is released
/// in the background and never used again.
async fn resend(
    keeper: Arc<Keeper>,
    mut sending: BoxFuture<'static, Sent>,
    duty: Arc<OnOrphan>,
    times: Times,
) -> AttemptOutcome {
    let mut pause = RESEND.0;
    let mut unsettled = false;
    loop {
        let Sent { request, outcome } = sending.await;
        unsettled |= matches!(&outcome, AttemptOutcome::Failed(e) if e.effect() == Effect::Unknown);
        let again_by = match &outcome {
            AttemptOutcome::Refused(refused) => {
                matches!(refused.why, RefusalReason::Busy).then_some(times.limit)
            }
            // C3: sent again only to learn the outcome of this request.
            AttemptOutcome::Failed(error) => {
                let may_learn = error.effect() == Effect::Unknown && error.is_retryable();
                may_learn.then_some(times.resend_by)
            }
            AttemptOutcome::Granted { .. } => None,
        };
        let next = again_by.and_then(|by| {
            let pause = pause / 2 + Random::seeded().up_to(pause / 2);
            Some(keeper.clock.now().saturating_add(pause)).filter(|next| *next < by)
        });
        if let Some(next) = next {
            keeper.clock.sleep_until(next).await;
        }
        if next.is_none() || duty.is_orphaned() {
            if !unsettled && !matches!(outcome, AttemptOutcome::Granted { .. }) {
                duty.settle();
            }
            return outcome;
        }
        pause = (pause * 2).min(RESEND.1);
        sending = Box::pin(send(Arc::clone(&keeper), request, keeper.clock.now()));
    }
}
