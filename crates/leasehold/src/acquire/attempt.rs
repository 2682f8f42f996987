use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{
    AcquireReply, AcquireRequest, Effect, Error, Granted, Random, RefusalReason, Refused, Store,
    Wait,
};

use crate::keeper::in_flight::{InFlight, OnOrphan};
use crate::keeper::{Keeper, caught};
use crate::lease::cleanup::Cleanup;
use crate::lease::ids::Ownership;

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
}

/// The shortest and the longest pause before a resend within one try.
const RESEND: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(500));

/// For how long after its start a try sends again to learn an outcome, where its caller wants a number of tries: a store
/// that is silent takes its own limit each time.
const RESENDING: Duration = Duration::from_secs(1);

/// Makes one try, which ends by `limit` at the latest.
///
/// # Cancel safety
/// The Keeper finishes a request that was sent, and releases what it wins (F6).
pub(crate) async fn attempt(
    keeper: &Arc<Keeper>,
    request: AcquireRequest,
    ownership: Arc<Ownership>,
    wait: Wait,
    limit: Duration,
) -> AttemptOutcome {
    let started = keeper.clock.now();
    let resend_by = match wait {
        Wait::No | Wait::Attempts(_) => started.saturating_add(RESENDING),
        Wait::UpTo(_) | Wait::Forever => Duration::MAX,
    };
    let cleanup = Cleanup::of_request(&request, ownership, started);
    let duty = OnOrphan::new(keeper, vec![cleanup]);
    let sending = send(Arc::clone(keeper), request, Arc::clone(&duty), limit, resend_by);
    let mut in_flight = InFlight::new(&duty, sending);
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
            AttemptOutcome::Failed(keeper.unanswered("acquire", limit.saturating_sub(started)))
        }
    }
}

/// Sends the request, and sends it again while its effect is unknown or the key is busy.
///
/// If the request may have acted, `duty` keeps naming it (C3): an id abandoned after an unknown effect is released
/// in the background and never used again.
async fn send(
    keeper: Arc<Keeper>,
    request: AcquireRequest,
    duty: Arc<OnOrphan>,
    limit: Duration,
    resend_by: Duration,
) -> AttemptOutcome {
    let mut random = Random::seeded();
    let mut pause = RESEND.0;
    let mut unsettled = false;
    loop {
        // F4: the term counts from before the request was sent.
        let sent = keeper.clock.now();
        let answer = caught(keeper.store.acquire(&request)).await.and_then(|answer| answer);
        let outcome = match answer {
            Ok(AcquireReply::Granted(granted)) => AttemptOutcome::Granted { granted, sent },
            Ok(AcquireReply::Refused(refused)) => AttemptOutcome::Refused(refused),
            Err(error) => AttemptOutcome::Failed(error),
        };
        unsettled |= matches!(&outcome, AttemptOutcome::Failed(e) if e.effect() == Effect::Unknown);
        let again_by = match &outcome {
            AttemptOutcome::Refused(refused) if matches!(refused.why, RefusalReason::Busy) => limit,
            // C3: sent again only to learn the outcome of this request.
            AttemptOutcome::Failed(error)
                if error.effect() == Effect::Unknown && error.is_retryable() =>
            {
                limit.min(resend_by)
            }
            _ => Duration::ZERO,
        };
        let next = keeper.clock.now().saturating_add(pause / 2 + random.up_to(pause / 2));
        let ends = next >= again_by;
        if !ends {
            keeper.clock.sleep_until(next).await;
        }
        if ends || duty.is_orphaned() {
            if !unsettled && !matches!(outcome, AttemptOutcome::Granted { .. }) {
                duty.settle();
            }
            return outcome;
        }
        pause = (pause * 2).min(RESEND.1);
    }
}
