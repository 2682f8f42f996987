use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{
    AcquireReply, AcquireRequest, Effect, Error, Granted, Random, RefusalReason, Refused, Store,
};

use crate::call::{Abandoned, Call, Leaves};
use crate::ids::Taking;
use crate::keeper::{Keeper, Releasing, caught};

/// What one try came to.
#[derive(Debug)]
pub(crate) enum Tried {
    /// Held at the store by a request that was sent at `sent`.
    Granted {
        granted: Granted,
        sent: Duration,
    },
    Refused(Refused),
    Failed(Error),
}

/// The shortest and the longest pause before a resend within one try.
const RESEND: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(500));

/// Makes one try, which ends by `limit` at the latest.
///
/// # Cancel safety
/// A request that was sent is finished by the Keeper, and what it won is released (F6).
pub(crate) async fn attempt(
    keeper: &Arc<Keeper>,
    request: Arc<AcquireRequest>,
    taking: Arc<Taking>,
    limit: Duration,
) -> Tried {
    let abandoned = Abandoned::default();
    let started = keeper.clock.now();
    let left = Left { keeper: Arc::clone(keeper), request: Arc::clone(&request), taking, started };
    let mut call = Call::new(
        keeper,
        abandoned.clone(),
        send(Arc::clone(keeper), request, abandoned, limit),
        left.clone(),
    );
    let reply = tokio::select! {
        biased;
        reply = &mut call => reply,
        () = keeper.clock.sleep_until(limit) => {
            return Tried::Failed(keeper.unanswered("acquire", limit.saturating_sub(started)));
        }
    };
    if reply.unsettled && !matches!(reply.tried, Tried::Granted { .. }) {
        // C3: an id abandoned after an unknown effect is released in the background, and never used again.
        keeper.release(left.acted());
    }
    reply.tried
}

/// What a try may leave at the store: what it asked for.
#[derive(Clone)]
struct Left {
    keeper: Arc<Keeper>,
    request: Arc<AcquireRequest>,
    taking: Arc<Taking>,
    started: Duration,
}

impl Left {
    fn releasing(&self) -> Releasing {
        Releasing::of_request(&self.request, Arc::clone(&self.taking), self.started)
    }

    /// What a request left that may have acted until now.
    fn acted(&self) -> Vec<Releasing> {
        vec![self.releasing().acted_by(self.keeper.clock.now())]
    }
}

impl Leaves for Left {
    type Reply = Reply;

    fn after(self, reply: Reply) -> Vec<Releasing> {
        let wanted = reply.unsettled || matches!(reply.tried, Tried::Granted { .. });
        if wanted { self.acted() } else { Vec::new() }
    }

    fn without(&self) -> Vec<Releasing> {
        vec![self.releasing()]
    }
}

/// The last answer, and whether an earlier request of the same try may still act.
struct Reply {
    tried: Tried,
    unsettled: bool,
}

/// Sends the request, and sends the same one again while its effect is unknown or the key is busy.
async fn send(
    keeper: Arc<Keeper>,
    request: Arc<AcquireRequest>,
    abandoned: Abandoned,
    limit: Duration,
) -> Reply {
    let mut random = Random::seeded();
    let mut pause = RESEND.0;
    let mut unsettled = false;
    loop {
        // F4: the term counts from before the request was sent.
        let sent = keeper.clock.now();
        let answer = caught(keeper.store.acquire(&request)).await.and_then(|answer| answer);
        let tried = match answer {
            Ok(AcquireReply::Granted(granted)) => Tried::Granted { granted, sent },
            Ok(AcquireReply::Refused(refused)) => Tried::Refused(refused),
            Err(error) => Tried::Failed(error),
        };
        unsettled |= matches!(&tried, Tried::Failed(e) if e.effect() == Effect::Unknown);
        let again = match &tried {
            Tried::Granted { .. } => false,
            Tried::Refused(refused) => matches!(refused.why, RefusalReason::Busy),
            // C3: resent only to learn the outcome of this very request.
            Tried::Failed(error) => error.effect() == Effect::Unknown && error.is_retryable(),
        };
        let next = keeper.clock.now().saturating_add(pause / 2 + random.up_to(pause / 2));
        if !again || next >= limit {
            return Reply { tried, unsettled };
        }
        keeper.clock.sleep_until(next).await;
        if abandoned.is_set() {
            return Reply { tried, unsettled };
        }
        pause = (pause * 2).min(RESEND.1);
    }
}
