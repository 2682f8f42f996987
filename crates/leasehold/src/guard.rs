use std::fmt;
use std::future::Future;
use std::sync::Arc;

use leasehold_core::{
    Error, FencingToken, Filter, Lease, LeaseReleased, LeaseRenewed, LostReason, Release,
    Remaining, Renewal, Result, Ttl,
};

use crate::call::{Abandoned, Call};
use crate::events::Events;
use crate::held::{Held, Verdict, left, unanswered};
use crate::keeper::{Keeper, Releasing};
use crate::locker::Locker;

/// The right to be inside the critical section, for as long as its own clock says so.
///
/// The lease renews itself in the background. It can still be lost at any time: the process may be paused
/// past its term, the store may be unreachable for as long, or an operator may end it. Watch
/// [`lost`](Guard::lost), or work inside [`run`](Guard::run), and give [`token`](Guard::token) to whatever
/// the lock protects.
///
/// There are three ways out. [`release`](Guard::release) ends the lease and says what the store answered.
/// [`detach`](Guard::detach) hands it over. Dropping the guard releases it in the background, best effort:
/// it never blocks, and it is **not immediate**.
#[must_use = "the lock is released when its guard is dropped"]
pub struct Guard {
    held: Arc<Held>,
    locks: Locker,
}

impl Guard {
    pub(crate) fn new(held: Held, locks: Locker) -> Self {
        let held = Arc::new(held);
        locks.0.keeper.keep(&held);
        Self { held, locks }
    }

    /// The fencing token, where the store has them: larger than every earlier token of each of its keys (C7).
    pub fn token(&self) -> Option<FencingToken> {
        self.held.lease.token
    }

    /// What is held.
    pub fn lease(&self) -> &Lease {
        &self.held.lease
    }

    /// True if the grant was made by this call; false if a lease was adopted or went on.
    pub fn is_fresh(&self) -> bool {
        self.held.fresh
    }

    /// True until the lease is lost, by this process's clock and without I/O (F4, F5). Once false, for ever
    /// false.
    pub fn is_held(&self) -> bool {
        matches!(self.verdict(), Verdict::Held(_))
    }

    /// How much longer the holder may believe in the lease if no renewal succeeds; zero once it is lost.
    pub fn remaining(&self) -> Remaining {
        match self.verdict() {
            Verdict::Held(deadline) => left(deadline, self.keeper().clock.now()),
            Verdict::Lost { .. } | Verdict::Released => Remaining::For(std::time::Duration::ZERO),
        }
    }

    /// Ends, with the reason, as soon as the lease is lost, at the local deadline at the latest and without
    /// any reply from the store (F5). Never ends if the guard is released or handed over first. The future
    /// does not borrow the guard.
    ///
    /// # Cancel safety
    /// May be dropped at any time.
    pub fn lost(&self) -> impl Future<Output = LostReason> + Send + use<> {
        lost(Arc::clone(self.keeper()), Arc::clone(&self.held))
    }

    /// What happens to the lease from now on (F14).
    pub fn events(&self) -> Events {
        Events::new(self.held.subscribe())
    }

    /// Runs `work` for as long as the lease is held; on loss `work` is dropped at its next await.
    ///
    /// # Errors
    /// `Lost`, with the reason.
    ///
    /// # Cancel safety
    /// As `work`; the guard is untouched.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output> {
        tokio::select! {
            biased;
            reason = self.lost() => Err(Error::lease_lost(reason)),
            output = work => Ok(output),
        }
    }

    /// Asks the store whether it still has the lease, on all its keys. If not, the lease is lost.
    ///
    /// # Errors
    /// As any operation; the lease is then held or not as before.
    ///
    /// # Cancel safety
    /// May be dropped.
    pub async fn verify(&self) -> Result<bool> {
        if !self.is_held() {
            return Ok(false);
        }
        let Lease { id, claims, .. } = &self.held.lease;
        let filter = Filter::default().with_keys(claims.keys().cloned()).with_lease(id.clone());
        let sent = self.keeper().clock.now();
        let records = self.locks.list(filter).await?;
        let whole = claims.keys().all(|key| records.iter().any(|r| r.key == *key && !r.kept));
        if !whole {
            self.keeper().apply_renewal(&self.held, sent, LeaseRenewed::Lost(None));
        }
        Ok(whole && self.is_held())
    }

    /// Renews now, beside the renewals in the background, and says what remains.
    ///
    /// # Errors
    /// `Lost` if the lease is; else as any operation, and the lease is held until its local deadline.
    ///
    /// # Cancel safety
    /// May be dropped; the lease may have been renewed.
    pub async fn renew(&self) -> Result<Remaining> {
        self.renew_by(self.held.renewal(self.keeper().clock.now())).await
    }

    /// The second step of a lease without end (F6).
    pub(crate) async fn renew_to_never(&self) -> Result<()> {
        let Lease { id, claims, owner, .. } = self.held.lease.clone();
        let mut renewal = Renewal::extend(id, claims, Ttl::NEVER);
        if let Some(owner) = owner {
            renewal = renewal.with_owner(owner);
        }
        self.renew_by(renewal).await.map(|_| ())
    }

    async fn renew_by(&self, renewal: Renewal) -> Result<Remaining> {
        if let Verdict::Lost { reason, .. } = self.verdict() {
            return Err(Error::lease_lost(reason));
        }
        let (sent, outcome) = self.keeper().renew_one(renewal).await?;
        let failure = match &outcome {
            LeaseRenewed::Failed(error) => Some(error.clone()),
            LeaseRenewed::Held(_) | LeaseRenewed::Lost(_) => None,
        };
        match (self.keeper().apply_renewal(&self.held, sent, outcome), failure) {
            (Verdict::Lost { reason, .. }, _) => Err(Error::lease_lost(reason)),
            (_, Some(error)) => Err(error),
            (Verdict::Held(deadline), None) => Ok(left(deadline, self.keeper().clock.now())),
            (Verdict::Released, None) => Ok(Remaining::For(std::time::Duration::ZERO)),
        }
    }

    /// Ends the lease and says what the store answered (C13).
    ///
    /// `Released` if it was held until now; `Kept` if its keys stay taken for the rest of `min_hold`;
    /// `Expired` if its term had passed, by our clock or the store's, so that the critical section overran;
    /// `NotHeld` if the store did not have it. A lease that is lost already is not asked about: the answer
    /// comes at once.
    ///
    /// # Errors
    /// If the store could not be asked. The release then goes on in the background until it is answered or
    /// the term has passed.
    ///
    /// # Cancel safety
    /// A release that was begun is finished in the background.
    pub async fn release(self) -> Result<LeaseReleased> {
        let keeper = Arc::clone(self.keeper());
        let held = Arc::clone(&self.held);
        match keeper.finish(&held) {
            Verdict::Held(_) => {}
            Verdict::Released
            | Verdict::Lost { reason: LostReason::Gone | LostReason::Evicted(_), .. } => {
                return Ok(LeaseReleased::NotHeld);
            }
            Verdict::Lost { .. } => return Ok(LeaseReleased::Expired),
        }
        let releasing = Releasing::of(&held, keeper.clock.now());
        let request = Release::new(vec![releasing.ending.clone()]);
        let asking = {
            let keeper = Arc::clone(&keeper);
            async move {
                let answer = keeper.release_now(&request).await;
                answer.map(|leases| leases.into_iter().next())
            }
        };
        let retry = releasing.clone();
        let unanswered_call = move |answer: Result<Option<LeaseReleased>>| {
            let answered = matches!(answer, Ok(Some(outcome)) if !is_failure(&outcome));
            (!answered).then_some(retry)
        };
        let mut call = Call::new(&keeper, Abandoned::default(), asking, unanswered_call);
        let until = keeper.clock.now().saturating_add(keeper.limit);
        let answer = tokio::select! {
            biased;
            answer = &mut call => answer,
            () = keeper.clock.sleep_until(until) => return Err(unanswered(keeper.limit)),
        };
        match answer {
            Ok(Some(LeaseReleased::Failed(error))) | Err(error) => {
                keeper.release(releasing);
                Err(error)
            }
            Ok(Some(outcome)) => Ok(outcome),
            Ok(None) => {
                keeper.release(releasing);
                Err(unanswered(keeper.limit))
            }
        }
    }

    /// Hands the lease over: it is no longer renewed here, and nothing releases it. Whoever
    /// [adopts](Locker::adopt) it within its term goes on holding it; else it ends with its term.
    pub fn detach(self) -> Lease {
        let lease = self.held.lease.clone();
        self.keeper().finish(&self.held);
        lease
    }

    pub(crate) fn verdict(&self) -> Verdict {
        self.keeper().verdict(&self.held)
    }

    fn keeper(&self) -> &Arc<Keeper> {
        &self.locks.0.keeper
    }
}

fn is_failure(outcome: &LeaseReleased) -> bool {
    matches!(outcome, LeaseReleased::Failed(_))
}

impl Drop for Guard {
    fn drop(&mut self) {
        let keeper = self.keeper();
        if let Verdict::Held(_) = keeper.finish(&self.held) {
            keeper.release(Releasing::of(&self.held, keeper.clock.now()));
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("lease", &self.held.lease)
            .field("held", &self.is_held())
            .finish_non_exhaustive()
    }
}

async fn lost(keeper: Arc<Keeper>, held: Arc<Held>) -> LostReason {
    loop {
        let changed = held.changed().notified();
        tokio::pin!(changed);
        changed.as_mut().enable();
        match keeper.verdict(&held) {
            Verdict::Lost { reason, .. } => return reason,
            Verdict::Released => std::future::pending().await,
            Verdict::Held(Some(deadline)) => tokio::select! {
                () = changed => {}
                () = keeper.clock.sleep_until(deadline) => {}
            },
            Verdict::Held(None) => changed.await,
        }
    }
}
