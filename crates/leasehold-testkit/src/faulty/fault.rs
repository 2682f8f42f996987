use std::future::{Future, pending};
use std::time::Duration;

use leasehold_core::{
    AcquireReply, Effect, Error, RefusalReason, Refused, RenewOutcome, RenewReply, Result,
};
use tokio::time::sleep;

use super::request::{Reply, Request};

/// What happens to one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// The store cannot be reached: the request is not sent, and the error shows it.
    Unreachable,
    /// The request is lost, and its effect is unknown.
    LostRequest,
    /// As [`LostRequest`](Self::LostRequest), after this long.
    LostLate(Duration),
    /// The request is carried out, and its reply is lost.
    LostReply,
    /// The request never reaches the store.
    Hung,
    /// The request reaches the store when the test calls [`up`](super::Script::up), and not before.
    Stalled,
    /// The request reaches the store after this long.
    SlowRequest(Duration),
    /// The request reaches the store after up to this long.
    Jitter(Duration),
    /// The request is carried out at once, and its reply takes this long.
    SlowReply(Duration),
    /// The request reaches the store after this long, and its reply never comes.
    Unheard(Duration),
    /// The request reaches the store after this long, even if its caller is gone.
    Detached(Duration),
    /// The client may not send it.
    Denied,
    /// The server can no longer do it.
    Incompatible,
    /// The store refuses it for this long.
    Quarantined(Duration),
    /// Each lease of a renewal fails. Other requests are carried out.
    EntriesFailed,
    /// Another operation on the key of an acquire is in progress. Other requests are carried out.
    Busy,
    /// Another client, whom the store cannot name, holds the key of an acquire. Other requests are carried out.
    Unnamed,
    /// As [`Unnamed`](Self::Unnamed), and its releases wake nobody: the key is to be polled this often.
    Foreign(Duration),
    /// The store panics.
    Panic,
}

/// The error of a store that grants nothing for `rest`.
pub fn quarantined(rest: Duration) -> Error {
    Error::unavailable(Effect::NotApplied, "the store is in quarantine").with_retry_after(rest)
}

impl Fault {
    /// Carries `request` out as `act` does, with this fault. `up` ends when the store can be reached again.
    pub(super) async fn carry<A>(
        self,
        request: Request,
        up: impl Future<Output = ()> + Send,
        act: impl FnOnce(Request) -> A + Send,
    ) -> Result<Reply>
    where
        A: Future<Output = Result<Reply>> + Send + 'static,
    {
        let gone = |effect| Err(Error::unavailable(effect, "the network failed"));
        if let Some(reply) = self.reply(&request) {
            return Ok(reply);
        }
        match self {
            Self::Unreachable => return gone(Effect::NotApplied),
            Self::LostRequest => return gone(Effect::Unknown),
            Self::LostLate(time) => {
                sleep(time).await;
                return gone(Effect::Unknown);
            }
            Self::Denied => return Err(Error::denied("the password is wrong")),
            Self::Incompatible => {
                return Err(Error::incompatible("the server has no tables any more"));
            }
            Self::Quarantined(rest) => return Err(quarantined(rest)),
            Self::Panic => panic!("planted"),
            Self::Hung => return pending().await,
            Self::Stalled => up.await,
            Self::SlowRequest(time) | Self::Unheard(time) => sleep(time).await,
            Self::Jitter(most) => sleep(most.mul_f64(fastrand::f64())).await,
            Self::Detached(time) => {
                let act = act(request);
                #[expect(clippy::disallowed_methods, reason = "its caller may be gone by then")]
                let late = tokio::spawn(async move {
                    sleep(time).await;
                    act.await
                });
                return late.await.expect("a store does not panic");
            }
            _ => {}
        }
        let reply = act(request).await;
        match self {
            Self::LostReply => reply.and_then(|_| gone(Effect::Unknown)),
            Self::SlowReply(time) => {
                sleep(time).await;
                reply
            }
            Self::Unheard(_) => pending().await,
            _ => reply,
        }
    }

    /// The reply in place of the store's.
    fn reply(self, request: &Request) -> Option<Reply> {
        let why = match (self, request) {
            (Self::EntriesFailed, Request::Renew(request)) => {
                let failed = RenewOutcome::Failed(Error::unavailable(Effect::NotApplied, "busy"));
                let failed = vec![failed; request.leases().len()];
                return Some(Reply::Renew(RenewReply::new(failed)));
            }
            (Self::Busy, _) => RefusalReason::Busy,
            (Self::Unnamed | Self::Foreign(_), _) => RefusalReason::Held(None),
            _ => return None,
        };
        let Request::Acquire(request) = request else { return None };
        let mut refused = Refused::new(request.claims().first().key.clone(), why, None);
        if let Self::Foreign(within) = self {
            refused.poll_within = Some(within);
        }
        Some(Reply::Acquire(AcquireReply::Refused(refused)))
    }
}
