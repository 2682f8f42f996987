use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{
    Acquire, Acquired, Effect, Ending, Error, Granted, Random, Refused, Store, Why,
};

use crate::call::{Abandoned, Call};
use crate::keeper::{Keeper, Releasing};
use crate::own_ids::Named;

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
    request: Acquire,
    named: Option<Arc<Named>>,
    limit: Duration,
) -> Tried {
    let abandoned = Abandoned::default();
    let releasing = Releasing {
        ending: Ending::new(request.id().clone(), request.claims().keys().cloned()),
        until: None,
        named: named.clone(),
    };
    let orphan = {
        let (keeper, releasing) = (Arc::clone(keeper), releasing.clone());
        move |reply: Reply| reply.leaves_something().then(|| releasing.until_term(&keeper, &reply))
    };
    let started = keeper.clock.now();
    let sending = send(Arc::clone(keeper), request, named, abandoned.clone(), limit);
    let mut call = Call::new(keeper, abandoned, sending, orphan);
    let reply = tokio::select! {
        biased;
        reply = &mut call => reply,
        () = keeper.clock.sleep_until(limit) => {
            return Tried::Failed(crate::held::unanswered(limit.saturating_sub(started)));
        }
    };
    drop(call);
    if reply.unsettled && !matches!(reply.tried, Tried::Granted { .. }) {
        // C3: an id abandoned after an unknown effect is released in the background, and never used again.
        keeper.release(releasing.until_term(keeper, &reply));
    }
    reply.tried
}

/// The last answer, and whether an earlier request of the same try may still act.
pub(crate) struct Reply {
    tried: Tried,
    unsettled: bool,
    term_end: Duration,
}

impl Reply {
    fn leaves_something(&self) -> bool {
        self.unsettled || matches!(self.tried, Tried::Granted { .. })
    }
}

impl Releasing {
    fn until_term(mut self, keeper: &Keeper, reply: &Reply) -> Self {
        self.until = Some(reply.term_end.max(keeper.clock.now()));
        self
    }
}

/// Sends the request, and sends the same one again while its effect is unknown or the key is busy.
async fn send(
    keeper: Arc<Keeper>,
    request: Acquire,
    _named: Option<Arc<Named>>,
    abandoned: Abandoned,
    limit: Duration,
) -> Reply {
    let mut random = Random::seeded();
    let mut pause = RESEND.0;
    let mut unsettled = false;
    let term = request.term().duration().unwrap_or_default();
    loop {
        // F4: the term counts from before the request was sent.
        let sent = keeper.clock.now();
        let tried = match keeper.store.acquire(&request).await {
            Ok(Acquired::Granted(granted)) => Tried::Granted { granted, sent },
            Ok(Acquired::Refused(refused)) => Tried::Refused(refused),
            Err(error) => Tried::Failed(error),
        };
        unsettled |= matches!(&tried, Tried::Failed(e) if e.effect() == Effect::Unknown);
        let again = match &tried {
            Tried::Granted { .. } => false,
            Tried::Refused(refused) => matches!(refused.why, Why::Busy),
            // C3: resent only to learn the outcome of this very request.
            Tried::Failed(error) => error.effect() == Effect::Unknown && error.is_retryable(),
        };
        let next = keeper.clock.now().saturating_add(pause / 2 + random.up_to(pause / 2));
        if !again || abandoned.is_set() || next >= limit {
            return Reply { tried, unsettled, term_end: keeper.clock.now().saturating_add(term) };
        }
        keeper.clock.sleep_until(next).await;
        if abandoned.is_set() {
            return Reply { tried, unsettled, term_end: keeper.clock.now().saturating_add(term) };
        }
        pause = (pause * 2).min(RESEND.1);
    }
}
