//! The background task of a `Locker`: renews leases, finishes abandoned requests, releases dropped guards.

pub(crate) mod in_flight;
mod list;
mod mailbox;
mod release;
mod renew;
mod schedule;
mod task;

use std::fmt;
use std::future::{Future, poll_fn};
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_util::FutureExt;
use leasehold_core::term::Drift;
use leasehold_core::{
    AnyStore, BoxFuture, Capabilities, Clock, Effect, Error, Record, Result, Store,
};
use tokio::runtime::Handle;

use self::mailbox::Mailbox;
use self::schedule::Schedule;
use self::task::Tasks;
use crate::lease::cleanup::Cleanup;
use crate::lease::ids::Ids;
use crate::lease::state::{HoldStatus, LeaseState};
use crate::queue::Queues;
use crate::telemetry;

/// Limits are shown in whole milliseconds.
const HALF: Duration = Duration::from_micros(500);

/// What a `Locker`, its guards and the background task share.
pub(crate) struct Keeper {
    pub(crate) store: AnyStore,
    pub(crate) can: Capabilities,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) drift: Drift,
    /// The limit of one operation.
    pub(crate) limit: Duration,
    pub(crate) queues: Arc<Queues>,
    pub(crate) ids: Arc<Ids>,
    schedule: Schedule,
    mailbox: Mailbox,
    tasks: Tasks,
    /// The id of the process in which the task runs, 0 if it does not.
    running_in: AtomicU32,
    /// The `Locker` and its guards are gone: the task ends when its work is done.
    orphaned: AtomicBool,
    /// The last renewal that was answered had failed.
    failing: AtomicBool,
    /// The second of the last warning that a caller waits for itself; 0 before the first.
    warned_at: AtomicU64,
}

impl Keeper {
    pub(crate) fn new(
        store: AnyStore,
        clock: Arc<dyn Clock>,
        drift: Drift,
        limit: Duration,
    ) -> Self {
        Self {
            can: store.capabilities(),
            store,
            clock,
            drift,
            limit,
            queues: Arc::default(),
            ids: Ids::of_this_process(),
            schedule: Schedule::default(),
            mailbox: Mailbox::default(),
            tasks: Tasks::default(),
            running_in: AtomicU32::new(0),
            orphaned: AtomicBool::new(false),
            failing: AtomicBool::new(false),
            warned_at: AtomicU64::new(0),
        }
    }

    /// Starts the task on the caller's runtime, unless it runs on one that is driven; true if it runs here. A runtime
    /// that ends takes its task with it; the next acquire starts another (F3). `process` is this process.
    pub(crate) fn ensure_running(self: &Arc<Self>, process: u32) -> Result<bool> {
        let running = self.running_in.load(Ordering::Acquire);
        if running != 0 && running != process {
            return Err(Error::unexpected(
                "this process was forked after its Locker had started, and the task that renews its leases runs in \
                 the parent; create the Locker after the fork",
            ));
        }
        self.ensure_driven()
    }

    /// As [`ensure_running`](Self::ensure_running), in the process in which the task runs, or in which none does.
    fn ensure_driven(self: &Arc<Self>) -> Result<bool> {
        match Handle::try_current() {
            Ok(runtime) => self.run_on(&runtime),
            Err(_) if self.running_in.load(Ordering::Acquire) != 0 => Ok(false),
            Err(error) => {
                let message = "a lock needs a tokio runtime to renew it; call this inside one";
                Err(Error::unexpected(message).with_source(error))
            }
        }
    }

    /// True in a process that was forked after the task began. What the task's threads had locked at the fork
    /// stays locked here for ever.
    pub(crate) fn runs_in_another_process(&self) -> bool {
        let running = self.running_in.load(Ordering::Acquire);
        running != 0 && running != std::process::id()
    }

    /// Fails on a runtime without timers, which would only panic.
    pub(crate) fn check_timers(&self) -> Result<()> {
        let later = self.clock.now().saturating_add(Duration::from_secs(1));
        let ask = || {
            let mut timer = self.clock.sleep_until(later);
            timer.poll_unpin(&mut Context::from_waker(Waker::noop())).is_ready()
        };
        catch_unwind(AssertUnwindSafe(ask)).map_err(|_| {
            Error::unexpected("this tokio runtime has no timers; build it with enable_time()")
        })?;
        if leasehold_driver::is_beside_paused_time(&*self.clock) {
            telemetry::paused_time();
        }
        Ok(())
    }

    /// Logs that a caller waits for a lease that it holds itself: as a warning once a minute.
    pub(crate) fn waits_for_itself(&self, holder: &Record) {
        let now = self.clock.now().as_secs().max(1);
        let last = self.warned_at.load(Ordering::Relaxed);
        let warns = last == 0 || now >= last.saturating_add(60);
        if warns {
            self.warned_at.store(now, Ordering::Relaxed);
        }
        telemetry::waits_for_itself(self.can.name, holder, warns);
    }

    /// Adds a held lease. `is_here` if the task runs on the runtime of the holder.
    pub(crate) fn keep(self: &Arc<Self>, held: &Arc<LeaseState>, is_here: bool) {
        telemetry::granted(self.can.name, &held.lease, held.fresh);
        let counted = telemetry::Held::new(self.can.name, held.label());
        let is_sooner = self.schedule.insert(held, counted);
        if !is_here {
            // The runtime of the task may have ended while the store was asked, or nobody drives it.
            self.ensure_driven().map(drop).unwrap_or_else(|error| telemetry::no_runtime(&error));
        }
        if is_sooner {
            self.tasks.wake();
        }
    }

    /// The held leases, oldest first.
    pub(crate) fn leases(&self) -> Vec<Arc<LeaseState>> {
        self.schedule.all()
    }

    /// Whether the clock shows that the lease is still held. The first caller to find it lost releases it in the
    /// background.
    pub(crate) fn status(self: &Arc<Self>, held: &Arc<LeaseState>) -> HoldStatus {
        let status = held.status(self.clock.now());
        self.settle(held, &status);
        status
    }

    /// Ends a hold at its holder's request and forgets it.
    pub(crate) fn finish(self: &Arc<Self>, held: &Arc<LeaseState>) -> HoldStatus {
        let now = self.clock.now();
        let status = held.finish(now);
        match &status {
            HoldStatus::Held(_) => {
                self.schedule.remove(held);
                let held_for = now.saturating_sub(held.started);
                telemetry::hold_ended(self.can.name, held.label(), held_for);
            }
            other => self.settle(held, other),
        }
        status
    }

    /// Acts once on a loss: forgets the lease and releases it in the background (F5), because the store may hold
    /// it, or some of its keys, for longer than the deadline here.
    fn settle(self: &Arc<Self>, held: &Arc<LeaseState>, status: &HoldStatus) {
        if let HoldStatus::Lost { reason, news: true } = status {
            self.schedule.remove(held);
            let held_for = self.clock.now().saturating_sub(held.started);
            telemetry::lost(self.can.name, held.label(), &held.lease, reason, held_for);
            self.release([Cleanup::of_lost(held)]);
            // Waiters of this process may try.
            self.queues.released(held.lease.claims.keys());
        }
    }

    /// Notes that the next wake of a lease may have changed.
    fn reschedule(&self, held: &Arc<LeaseState>) {
        if self.schedule.reschedule(held) {
            self.tasks.wake();
        }
    }

    /// Wakes the task, and starts it if there is a runtime.
    pub(crate) fn attend(self: &Arc<Self>) {
        if let Err(error) = self.ensure_running(std::process::id()) {
            // The term ends what is left; the Keeper of the next acquire continues the work.
            telemetry::no_runtime(&error);
        }
        if !self.runs_in_another_process() {
            self.tasks.wake();
        }
    }

    /// Lets the task end when its work is done.
    fn orphan(&self) {
        self.orphaned.store(true, Ordering::Release);
        self.tasks.wake();
    }

    /// Returns true when nothing is left to release or finish, or false at `until`. Leases without end that are
    /// left by then are given up.
    pub(crate) async fn drained(self: &Arc<Self>, until: Duration) -> bool {
        self.attend();
        tokio::select! {
            biased;
            () = self.mailbox.drained() => true,
            () = self.clock.sleep_until(until) => {
                self.mailbox.close();
                false
            }
        }
    }

    /// The error for a request that was not answered in time.
    pub(crate) fn unanswered(&self, operation: &'static str, limit: Duration) -> Error {
        // It may be what was left of a longer one.
        let millis = limit.saturating_add(HALF).as_millis();
        let limit = match u64::try_from(millis) {
            Ok(millis @ 1..) => Duration::from_millis(millis),
            _ => limit,
        };
        let message = format!("the store did not answer within {limit:?}");
        Error::unavailable(Effect::Unknown, message).with_context(self.can.name, operation)
    }

    /// Waits for an operation, up to the limit.
    pub(crate) async fn limited<T>(
        &self,
        operation: &'static str,
        request: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let until = self.clock.now().saturating_add(self.limit);
        tokio::select! {
            biased;
            reply = caught(request) => reply.and_then(|reply| reply),
            () = self.clock.sleep_until(until) => Err(self.unanswered(operation, self.limit)),
        }
    }
}

impl fmt::Debug for Keeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keeper").field("store", &self.store).finish_non_exhaustive()
    }
}

/// A `Locker`'s or guard's handle to the Keeper. When the last one is dropped, the task ends once its work is
/// done.
pub(crate) struct KeeperHandle(Arc<Keeper>);

impl KeeperHandle {
    pub(crate) fn new(keeper: Keeper) -> Arc<Self> {
        Arc::new(Self(Arc::new(keeper)))
    }
}

impl Deref for KeeperHandle {
    type Target = Arc<Keeper>;

    fn deref(&self) -> &Arc<Keeper> {
        &self.0
    }
}

impl Drop for KeeperHandle {
    fn drop(&mut self) {
        if !self.runs_in_another_process() {
            self.orphan();
        }
    }
}

/// The output of a future whose first poll ends it.
pub(crate) async fn at_once<T>(future: &mut BoxFuture<'_, T>) -> Option<T> {
    poll_fn(|context| {
        Poll::Ready(match future.as_mut().poll(context) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        })
    })
    .await
}

/// Turns a panic of a store into an error, so that it ends one request and not the Keeper.
pub(crate) async fn caught<T>(request: impl Future<Output = T>) -> Result<T> {
    AssertUnwindSafe(request)
        .catch_unwind()
        .await
        .map_err(|_| Error::unexpected("the store panicked").with_effect(Effect::Unknown))
}
