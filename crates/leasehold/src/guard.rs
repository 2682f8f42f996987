use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use leasehold_core::{
    Error, Feature, FencingToken, Filter, Lease, LostReason, NodeReports, ReleaseOutcome,
    Remaining, RenewOutcome, Result, Ttl,
};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use crate::keeper::{Keeper, KeeperHandle};
use crate::lease::cleanup::Cleanup;
use crate::lease::events::Events;
use crate::lease::release_report::ReleaseReport;
use crate::lease::state::{HoldStatus, LeaseState, left};

/// The right to be inside the critical section, until its own clock shows that the lease is over.
///
/// The lease renews itself in the background. It can still be lost at any time: the process may pause past the
/// term, the store may be unreachable for as long, or an operator may end the lease. Watch [`lost`](Guard::lost),
/// or work inside [`run`](Guard::run) or [`spawn`](Guard::spawn), and pass [`token`](Guard::token) to whatever the lock
/// protects.
///
/// There are three ways to end a guard. [`release`](Guard::release) ends the lease and returns the store's answer.
/// [`detach`](Guard::detach) hands the lease over. Dropping the guard releases the lease in the background, best
/// effort: it never blocks, and it is **not immediate**.
#[must_use = "the lock is released when its guard is dropped"]
pub struct Guard {
    held: Arc<LeaseState>,
    keeper: Arc<KeeperHandle>,
    /// Dropping it has nothing left to do.
    is_over: bool,
}

impl Guard {
    /// `has_keeper` if the Keeper's task runs on the runtime of the caller.
    pub(crate) fn new(held: Arc<LeaseState>, keeper: &Arc<KeeperHandle>, has_keeper: bool) -> Self {
        keeper.keep(&held, has_keeper);
        Self { held, keeper: Arc::clone(keeper), is_over: false }
    }

    /// The fencing token, where the store has them: larger than every earlier token of each of its keys
    /// ([C7](crate::contract)).
    pub fn token(&self) -> Option<FencingToken> {
        self.held.lease.token
    }

    /// The fencing token, for what must have one. It never fails if the request was
    /// [`fenced`](crate::LockRequest::fenced), which a store without tokens refuses.
    ///
    /// # Errors
    /// `Unsupported` if the lease has none.
    pub fn fencing_token(&self) -> Result<FencingToken> {
        let none = || {
            Error::unsupported(
                "the lease has no fencing token; lock with fenced(), on a store that has tokens (a quorum has them with fenced=1)",
            )
        };
        self.token().ok_or_else(none)
    }

    /// What is held.
    pub fn lease(&self) -> &Lease {
        &self.held.lease
    }

    /// True if this call made the grant; false if the lease was adopted or continued.
    pub fn is_fresh(&self) -> bool {
        self.held.fresh
    }

    /// True until the lease is lost or released, by this process's clock and without I/O ([F4, F5](crate::contract)).
    /// Once false, for ever false. False in a forked child: the lease belongs to the parent.
    pub fn is_held(&self) -> bool {
        matches!(self.status(), HoldStatus::Held(_))
    }

    /// Fails unless the lease is held: for use right before each side effect.
    ///
    /// # Errors
    /// `Lost`, with the reason, and the last failed renewal if that is why; `Closed` if this process has released the
    /// lease without the guard (its [`Group`](crate::Group) did, or the leader resigned, was paused or shut down), and
    /// in a forked child.
    pub fn ensure_held(&self) -> Result<()> {
        ensure_held(self.keeper(), &self.held)
    }

    /// How much longer the holder may trust the lease if no renewal succeeds; zero once it is lost.
    pub fn remaining(&self) -> Remaining {
        match self.status() {
            HoldStatus::Held(deadline) => left(deadline, self.keeper().clock.now()),
            HoldStatus::Lost { .. } | HoldStatus::Released => Remaining::For(Duration::ZERO),
        }
    }

    /// Ends, with the reason, as soon as the lease is lost: at the local deadline at the latest, and without any
    /// reply from the store ([F5](crate::contract)). Never ends if the guard is released or handed over first. The
    /// future does not borrow the guard.
    ///
    /// # Cancel safety
    /// May be dropped at any time.
    pub fn lost(&self) -> impl Future<Output = LostReason> + Send + use<> {
        lost(Arc::clone(self.keeper()), Arc::clone(&self.held))
    }

    /// What each node of a quorum reported about the lease when it was granted or last renewed; empty on any
    /// other store.
    pub fn nodes(&self) -> NodeReports {
        self.held.nodes()
    }

    /// The events of the lease from now on ([F14](crate::contract)).
    pub fn events(&self) -> Events {
        Events::new(self.held.subscribe())
    }

    /// Runs `work` for as long as the lease is held; on loss `work` is dropped at its next await. The clock
    /// is checked each time before `work` continues, so that it does not run after the machine slept past the term, and
    /// once more when `work` has completed.
    ///
    /// Only `work` itself is dropped. A task is not part of the future that started it: tokio lets it continue when its
    /// handle is dropped. So give `run` the work, and let [`spawn`](Guard::spawn) run what needs a task of its own:
    ///
    /// ```
    /// # async fn worker() {}
    /// # async fn both(guard: leasehold::Guard) -> Result<(), Box<dyn std::error::Error>> {
    /// // Wrong: on loss only the handle is dropped, and the worker continues without the lock.
    /// // guard.run(tokio::spawn(worker())).await?;
    /// guard.run(worker()).await?;
    /// guard.spawn(worker()).await??;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`ensure_held`](Guard::ensure_held): if the lease ended before `work` completed, whatever `work` returned.
    ///
    /// # Cancel safety
    /// As `work`; the guard is untouched.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output> {
        run(Arc::clone(self.keeper()), Arc::clone(&self.held), work).await
    }

    /// Runs `work` as [`run`](Guard::run) does, on a task of its own, so that it runs beside its caller. When the lease
    /// is lost, released or handed over, `work` is dropped at its next await. The task ends with what `run` would
    /// return.
    ///
    /// Dropping the handle detaches the task, which still ends with the lease. Nothing can stop work from outside that
    /// never awaits, or a thread of `spawn_blocking`: give these the guard, in an `Arc`, to
    /// [`ensure_held`](Guard::ensure_held) before each side effect. Before you release the lock, end the task, by
    /// [`JoinHandle::abort`](tokio::task::JoinHandle::abort) or a signal of your own, and await its handle: else its
    /// last step may still run when the next holder begins.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let locks = leasehold::Locker::new(leasehold::LocalStore::new());
    /// let guard = locks.lock("report").await?;
    /// let rows = guard.spawn(async { 42 });
    /// // … something else meanwhile …
    /// assert_eq!(rows.await??, 42); // fails as `Lost` if the lease was lost before it was done
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    pub fn spawn<F>(&self, work: F) -> JoinHandle<Result<F::Output>>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        let work = run(Arc::clone(self.keeper()), Arc::clone(&self.held), work);
        Handle::current().spawn(work)
    }

    /// Checks with the store whether it still has the lease, on all its keys. If not, the lease is lost.
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
        let records = self.keeper.holders(filter).await?;
        let whole = claims.keys().all(|key| records.iter().any(|r| r.key == *key && !r.kept));
        if !whole {
            self.keeper().apply_absence(&self.held, sent);
        }
        Ok(whole && self.is_held())
    }

    /// Renews now, independently of the renewals in the background, and states what remains.
    ///
    /// # Errors
    /// `Lost` if the lease is lost; else as any operation, and the lease is held until its local deadline.
    ///
    /// # Cancel safety
    /// May be dropped; the lease may have been renewed.
    pub async fn renew(&self) -> Result<Remaining> {
        let keeper = self.keeper();
        self.renew_until(keeper.clock.now().saturating_add(keeper.limit)).await
    }

    /// Renews, and waits for the answer until `until`.
    pub(crate) async fn renew_until(&self, until: Duration) -> Result<Remaining> {
        self.ensure_held()?;
        let leases = [Arc::clone(&self.held)];
        match self.keeper().renew_for(&leases, until).await.pop() {
            Some((HoldStatus::Lost { reason, .. }, _)) => Err(self.held.lost_error(reason)),
            Some((HoldStatus::Held(_), RenewOutcome::Failed(error))) => Err(error),
            Some((HoldStatus::Held(end), _)) => Ok(left(end, self.keeper().clock.now())),
            Some((HoldStatus::Released, _)) | None => Err(released(self.keeper())),
        }
    }

    /// Ends the lease and returns the store's answer ([C13](crate::contract)).
    ///
    /// `Ok` does not report that the work was protected to its end; the [`outcome`](ReleaseReport::outcome) does:
    /// `Released` if it was held until now; `Kept` if its keys stay taken for the rest of `min_hold`; `Expired` if
    /// its term had passed, by our clock or the store's, so that the critical section overran; `NotHeld` if the
    /// store did not have it. If the lease was already lost, the answer comes at once, without a request.
    ///
    /// # Errors
    /// If the store did not answer. The release then continues in the background until it is answered or the term
    /// has passed.
    ///
    /// # Cancel safety
    /// A release that was begun is completed in the background.
    pub async fn release(self) -> Result<ReleaseReport> {
        self.release_keeping(Duration::ZERO).await
    }

    /// As [`release`](Guard::release), and the keys stay taken for at least `keep` from now on, or for the rest of `min_hold` if that is
    /// longer.
    ///
    /// # Errors
    /// `Unsupported` or `InvalidInput`, and the lease is released at once in the background, if the store cannot keep keys taken, or
    /// not for so long; else as [`release`](Guard::release).
    ///
    /// # Cancel safety
    /// A release that was begun is completed in the background.
    pub async fn release_keeping(mut self, keep: Duration) -> Result<ReleaseReport> {
        if !keep.is_zero() {
            let can = &self.keeper().can;
            if !can.keep {
                return Err(can.lacks(Feature::Keep));
            }
            can.admit(&Ttl::new(keep.max(can.min_term).max(Ttl::MIN))?)?;
        }
        let ended = self.end(keep).await;
        self.is_over = true;
        ended
    }

    /// As [`release_keeping`](Guard::release_keeping), for a guard that others hold too.
    pub(crate) async fn end(&self, keep: Duration) -> Result<ReleaseReport> {
        let unasked = match self.keeper().finish(&self.held) {
            HoldStatus::Held(_) => None,
            HoldStatus::Released
            | HoldStatus::Lost { reason: LostReason::Gone | LostReason::Evicted(_), .. } => {
                Some(ReleaseOutcome::NotHeld)
            }
            HoldStatus::Lost { .. } => Some(ReleaseOutcome::Expired),
        };
        if let Some(outcome) = unasked {
            return Ok(ReleaseReport::new(outcome, NodeReports::default()));
        }
        let mut cleanup = Cleanup::of_held(&self.held);
        if !keep.is_zero() {
            cleanup = cleanup.kept_until(self.keeper().clock.now().saturating_add(keep));
        }
        let mut reports = self.keeper.release_for(vec![cleanup]).await;
        let report = reports.pop().expect("one report for each lease");
        match report.outcome {
            ReleaseOutcome::Failed(error) => Err(error),
            _ => Ok(report),
        }
    }

    /// Hands the lease over: it is no longer renewed here, and nothing releases it. A process that
    /// [adopts](crate::Locker::adopt) it within its term continues to hold it; else it ends with its term.
    pub fn detach(mut self) -> Lease {
        let lease = self.held.lease.clone();
        self.keeper().finish(&self.held);
        self.is_over = true;
        lease
    }

    /// Ends when the hold does, with the reason if it was lost.
    pub(crate) fn ended(&self) -> impl Future<Output = Option<LostReason>> + Send + use<> {
        ended(Arc::clone(self.keeper()), Arc::clone(&self.held))
    }

    pub(crate) fn held(&self) -> &Arc<LeaseState> {
        &self.held
    }

    pub(crate) fn status(&self) -> HoldStatus {
        status(self.keeper(), &self.held)
    }

    pub(crate) fn keeper(&self) -> &Arc<Keeper> {
        &self.keeper
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let keeper = self.keeper();
        if keeper.runs_in_another_process() {
            // The fork may have copied shared state while it was locked: leave it untouched.
            std::mem::forget((Arc::clone(&self.held), Arc::clone(&self.keeper)));
            return;
        }
        if let HoldStatus::Held(_) = keeper.finish(&self.held) {
            keeper.release([Cleanup::of_held(&self.held)]);
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("lease", &self.held.lease)
            .field("held", &self.held.is_held(self.keeper.clock.now()))
            .finish_non_exhaustive()
    }
}

fn status(keeper: &Arc<Keeper>, held: &Arc<LeaseState>) -> HoldStatus {
    // What a fork copied may have been locked: it is not touched.
    if keeper.runs_in_another_process() { HoldStatus::Released } else { keeper.status(held) }
}

/// Fails unless the lease is held.
fn ensure_held(keeper: &Arc<Keeper>, held: &Arc<LeaseState>) -> Result<()> {
    match status(keeper, held) {
        HoldStatus::Held(_) => Ok(()),
        HoldStatus::Lost { reason, .. } => Err(held.lost_error(reason)),
        HoldStatus::Released => Err(released(keeper)),
    }
}

/// The error for a lease that was released without its guard.
fn released(keeper: &Keeper) -> Error {
    Error::closed(if keeper.runs_in_another_process() {
        "the guard belongs to the process that forked this one; lock in this process"
    } else {
        "the lease was given back in this process: by its guard or its group, a resignation, a pause or a shutdown; lock again"
    })
}

/// Polls `work` for as long as the lease is held, and drops it with the future.
async fn run<F: Future>(keeper: Arc<Keeper>, held: Arc<LeaseState>, work: F) -> Result<F::Output> {
    let mut ended = pin!(ended(Arc::clone(&keeper), Arc::clone(&held)));
    let mut work = pin!(work);
    poll_fn(|context| {
        if let Poll::Ready(reason) = ended.as_mut().poll(context) {
            let error = reason.map(|reason| held.lost_error(reason));
            return Poll::Ready(Err(error.unwrap_or_else(|| released(&keeper))));
        }
        if let Err(error) = ensure_held(&keeper, &held) {
            return Poll::Ready(Err(error));
        }
        work.as_mut().poll(context).map(|output| ensure_held(&keeper, &held).map(|()| output))
    })
    .await
}

/// Ends with the reason of a loss; never, if the lease is released or handed over first.
async fn lost(keeper: Arc<Keeper>, held: Arc<LeaseState>) -> LostReason {
    match ended(keeper, held).await {
        Some(reason) => reason,
        None => std::future::pending().await,
    }
}

/// Ends when the hold does, with the reason if it was lost.
async fn ended(keeper: Arc<Keeper>, held: Arc<LeaseState>) -> Option<LostReason> {
    loop {
        let changed = held.changed().notified();
        tokio::pin!(changed);
        changed.as_mut().enable();
        match keeper.status(&held) {
            HoldStatus::Lost { reason, .. } => return Some(reason),
            HoldStatus::Released => return None,
            HoldStatus::Held(Some(deadline)) => tokio::select! {
                () = changed => {}
                () = keeper.clock.sleep_until(deadline) => {}
            },
            HoldStatus::Held(None) => changed.await,
        }
    }
}
